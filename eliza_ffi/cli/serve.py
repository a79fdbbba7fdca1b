"""``eliza-ffi serve``: a model behind HTTP."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from .._resources import default_model_path
from ..errors import InvalidArgumentError, NotSupportedError
from ..serve.settings import ServeSettings
from .console import UsageError, add_model_arguments, open_model, whole_number
from .files import read_text
from .questions import add_asking_arguments, read_asking

__all__ = ["add_serve_arguments", "run_serve"]

KEY_VARIABLE = "ELIZA_API_KEY"
"""The environment variable that may hold the key."""

NEEDED = ("starlette", "uvicorn", "prometheus_client")

EPILOG = """\
Endpoints: POST /v1/decisions and /v1/systemone; GET /, /v1/models, /health, /metrics and
/openapi.json. After SIGTERM or SIGINT it finishes the running requests, then exits; a second
signal exits immediately.
"""


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = EPILOG
    group = parser.add_argument_group("server")
    group.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (127.0.0.1)"
    )
    group.add_argument(
        "--port", type=whole_number, default=8080, metavar="N", help="0 = any that is free (8080)"
    )
    group.add_argument("--alias", metavar="NAME", help="what the model is called (its file's name)")
    group.add_argument(
        "--queue", type=whole_number, default=256, metavar="N", help="requests that may wait (256)"
    )
    group.add_argument(
        "--deadline", type=float, default=60.0, metavar="SECONDS", help="for each request (60)"
    )
    group = parser.add_argument_group("who may ask", "this machine's own programs, without more")
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        help=f"API keys, one a line, any of which opens it; or one in {KEY_VARIABLE}",
    )
    group.add_argument(
        "--without-key",
        action="store_true",
        help="let anyone ask who can reach an address that is not this machine's alone",
    )
    group.add_argument(
        "--cors-origin",
        action="append",
        metavar="ORIGIN",
        help="an origin whose pages may send requests, or * for any; repeat for more (none)",
    )
    group.add_argument(
        "--allowed-host",
        action="append",
        metavar="NAME",
        help="another host name than localhost that clients may use; repeat for more",
    )
    add_asking_arguments(parser)
    add_model_arguments(parser)


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NotSupportedError(
            f"serving needs {', '.join(missing)}: pip install 'eliza-ffi[serve]'"
        )
    from ..serve import server  # what it needs may not be installed

    settings = _settings(arguments)
    logging.basicConfig(level=logging.WARNING, format="eliza-ffi: %(message)s")
    # First of all: whether the address is free is known at once, and the model takes its time.
    with (
        _listening(server.listen, settings) as listening,
        open_model(arguments, arguments.n_slots) as model,
    ):
        server.check_model(model, settings)
        said = f"{settings.name} is served at {_url(listening)}"
        sent = server.serve(model, settings, listening, lambda: print(said, flush=True))
    if sent == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _listening(
    listen: Callable[[ServeSettings], socket.socket], settings: ServeSettings
) -> socket.socket:
    try:
        return listen(settings)
    except OSError as error:  # which names no address
        address = f"{settings.host}:{settings.port}"
        raise OSError(error.errno, error.strerror, address) from error


def _settings(arguments: argparse.Namespace) -> ServeSettings:
    asked = read_asking(arguments)
    path = default_model_path() if arguments.model is None else Path(arguments.model)
    keys = _keys(arguments)
    try:
        return ServeSettings(
            name=path.stem if arguments.alias is None else arguments.alias,
            host=arguments.host,
            port=arguments.port,
            keys=keys,
            without_key=arguments.without_key,
            cors_origins=tuple(arguments.cors_origin or ()),
            hosts=tuple(arguments.allowed_host or ()),
            n_waiting=arguments.queue,
            deadline=arguments.deadline,
            labels=asked.labels,
            orders=asked.orders,
            scoring=asked.scoring,
        )
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from None


def _keys(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.api_key_file is not None:
        lines = [line.strip() for line in read_text(arguments.api_key_file).splitlines()]
        keys = tuple(line for line in lines if line)
        if not keys:
            raise UsageError(f"{arguments.api_key_file} holds no API key")
        return keys
    key = os.environ.get(KEY_VARIABLE)
    return () if key is None else (key,)


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
