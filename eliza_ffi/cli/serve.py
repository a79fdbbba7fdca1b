"""``eliza-ffi serve`` and ``mcp``: serve a model over HTTP, or as tools for agents (MCP)."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from .._resources import default_model_path
from ..async_model import AsyncModel
from ..errors import InvalidArgumentError, NotSupportedError
from ..hub import HubName, read_name
from ..serve.settings import QuestionSet, ServeSettings
from .console import UsageError, add_model_arguments, add_options, given, open_model
from .files import read_text
from .questions import (
    THINKING,
    add_asking_arguments,
    add_deciding_arguments,
    read_asking,
    read_calibration,
    read_question_file,
)

KEY_VARIABLE = "ELIZA_FFI_API_KEY"
"""The environment variable that may hold an API key."""

T = TypeVar("T")

NEEDED = (
    "starlette",
    "uvicorn",
    "prometheus_client",
    "pydantic",
    "brotli",
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
)
"""The modules of the extra ``serve``, to check before a server starts."""

EPILOG = """\
Endpoints: POST /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/decisions
and /v1/systemone; GET /, /v1/models, /health, /metrics and /openapi.json. After SIGTERM or SIGINT
it finishes the running requests, then exits; a second signal exits immediately.
"""


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_options(
        parser.add_argument_group("server"),
        {
            "--port N": "port to listen on; 0 = any free port (default: 8080)",
            "--alias NAME": "name of the model in responses (default: its file name without the "
            "extension, or its name on Hugging Face)",
            "--queue N": "maximum number of waiting requests; further ones are rejected (default: "
            "256)",
        },
    )
    parser.set_defaults(port=8080, queue=256)
    _add_access_arguments(parser)
    _add_set_arguments(parser)
    add_model_arguments(parser)


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Give agents the tools choose, rank and decide, over standard input and output or by HTTP."
    )
    add_options(
        parser.add_argument_group("server"),
        {
            "--port N": "port to listen on; 0 = any free port (default: none, the tools use "
            "standard input and output instead of HTTP)"
        },
    )
    _add_access_arguments(parser)
    _add_set_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(alias=None, queue=0)


def _add_access_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "access", "without these options, only programs on this machine have access"
    )
    add_options(
        group,
        {
            "--host ADDRESS": "address to listen on (default: 127.0.0.1)",
            "--api-key-file FILE": "require an API key from FILE, which has a key in each line; # "
            f"begins a comment line (default: the key in {KEY_VARIABLE}, if set)",
            "--without-key": "accept requests without an API key even if other machines can reach "
            "the address",
            "--cors-origin ORIGIN ...": "allow requests from web pages of ORIGIN, * = any; repeat "
            "for more (default: none)",
            "--allowed-host NAME ...": "accept this host name besides localhost; repeat for more",
            "--deadline SECONDS": "time limit of a request, waiting included (default: 600)",
            "--log-requests": "log a line for each request: its x-request-id, path, status and "
            "duration",
        },
    )
    group.set_defaults(host="127.0.0.1", deadline=600.0)


def _add_set_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "named questions",
        "A request to /v1/decisions or /v1/systemone with the name as `model` needs no questions. "
        "The name is that of the file, up to the first dot: tickets.json and "
        "tickets.calibration.json belong together. A calibration or a prior contains its "
        "questions.",
    )
    add_options(
        group,
        {
            "--questions FILE ...": "read the questions from FILE (repeat for more); from a "
            "folder: its .json and .toml files, in which NAME.calibration.json is the calibration "
            "of NAME",
            "--calibration FILE ...": "apply this calibration, a file written by eliza-ffi "
            "calibrate (repeat for more)",
            "--prior PRIOR ...": "divide the probabilities by a prior: a FILE written by "
            "eliza-ffi decide --save-prior for the set with its name (repeat for more), or "
            "options or none for all questions (default: auto)",
        },
    )
    add_deciding_arguments(group)
    add_asking_arguments(parser)


def _check_modules(modules: Sequence[str], extra: str) -> None:
    """Raise NotSupportedError if a module of an extra is missing."""
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        raise NotSupportedError(
            f"{extra} requires {', '.join(missing)}: pip install 'eliza-ffi[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its parent is there
        return False


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    _check_modules(NEEDED, "serve")
    from ..serve import server  # not at the top, because its dependencies are optional

    settings = _logged_settings(arguments)
    # Listen before loading the model, so that an address in use is reported at once.
    with (
        _listening_on(server.listen, settings) as listening,
        open_model(arguments, arguments.n_slots) as model,
    ):
        generates = server.check_model(model, settings)
        if not generates:
            logging.warning("the model cannot generate text: only /v1/embeddings answers")
        ready = f"{settings.name} is served at {_url_of(listening)}"
        sent = server.serve(
            model, settings, listening, lambda: print(ready, flush=True), generates=generates
        )
    if sent == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def run_mcp(arguments: argparse.Namespace) -> int:
    """Serve the tools until standard input ends, or until SIGTERM or SIGINT."""
    _check_modules(("mcp", *NEEDED), "mcp")
    from ..serve import mcp, server  # not at the top, because their dependencies are optional

    by_http = arguments.port is not None
    if not by_http:
        for name in ("api_key_file", "without_key", "cors_origin", "allowed_host", "log_requests"):
            if getattr(arguments, name):
                raise UsageError(f"--{name.replace('_', '-')} requires --port")
        arguments.port = 0
    settings = _logged_settings(arguments)
    with ExitStack() as stack:
        # Listen before loading the model, so that an address in use is reported at once.
        listening = stack.enter_context(_listening_on(server.listen, settings)) if by_http else None
        model = stack.enter_context(open_model(arguments, arguments.n_slots))
        if not server.check_model(model, settings):
            raise NotSupportedError("the model cannot generate text")
        tools = mcp.make_mcp_server(AsyncModel.of(model), settings)
        if listening is None:
            tools.run()
            return 0
        ready = f"{settings.name} is served at {_url_of(listening).rstrip('/')}{mcp.PATH}"
        sent = mcp.serve_mcp(tools, settings, listening, lambda: print(ready, flush=True))
    if sent == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _logged_settings(arguments: argparse.Namespace) -> ServeSettings:
    """Return the settings of a server, and begin to log as they say."""
    settings = read_settings(arguments)
    logging.basicConfig(level=logging.WARNING, format="eliza-ffi: %(message)s")
    if settings.logs_requests:
        logging.getLogger("eliza_ffi.serve").setLevel(logging.INFO)
    return settings


def _listening_on(
    listen: Callable[[ServeSettings], socket.socket], settings: ServeSettings
) -> socket.socket:
    """Return the listening socket of a server; an error names the address."""
    try:
        return listen(settings)
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        raise OSError(error.errno, error.strerror, address) from error


def read_settings(arguments: argparse.Namespace) -> ServeSettings:
    model = read_name(arguments.model or default_model_path())
    name = str(model) if isinstance(model, HubName) else Path(model).stem
    keys = _keys(arguments)
    priors, prior_files = _priors(arguments.prior or ())
    asking = {**read_asking(arguments), "prior": priors[0] if priors else None}
    asking |= given(arguments, *THINKING)
    try:
        return ServeSettings(
            name=name if arguments.alias is None else arguments.alias,
            **given(arguments, "host", "port", "without_key", "deadline"),
            keys=keys,
            cors_origins=tuple(arguments.cors_origin or ()),
            hosts=tuple(arguments.allowed_host or ()),
            n_waiting=arguments.queue,
            logs_requests=arguments.log_requests,
            asking=asking,
            sets=_sets(arguments, asking, prior_files),
        )
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from None


def _priors(priors: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of priors for all questions, at most one, and the files of priors."""
    names = [each for each in priors if each in ("auto", "options", "none")]
    if "inputs" in priors:
        raise UsageError(
            "--prior inputs needs a table: write a prior with eliza-ffi decide TABLE --prior "
            "inputs --save-prior FILE, and pass --prior FILE"
        )
    if len(names) > 1:
        raise UsageError(f"--prior is given twice for all questions: {names[0]} and {names[1]}")
    return names, [each for each in priors if each not in names]


def _sets(
    arguments: argparse.Namespace, asking: Mapping[str, Any], prior_files: Sequence[str]
) -> dict[str, QuestionSet]:
    files, found = _files_in(arguments.questions or ())
    questions = _by_name(files, read_question_file)
    calibrations = _by_name([*(arguments.calibration or ()), *found], read_calibration)
    priors = _by_name(prior_files, read_calibration)
    both = calibrations.keys() & priors.keys()
    if both:
        raise UsageError(
            f"the set {min(both)!r} has a --calibration and a --prior: a calibration contains a "
            "prior"
        )
    learned = calibrations | priors
    names = dict.fromkeys((*questions, *learned))
    without = [name for name in names if name not in calibrations]
    if arguments.abstain is not None and without:
        raise UsageError(f"--abstain risk requires a --calibration for the set {without[0]!r}")
    if not names and (arguments.abstain or arguments.min_probability):
        raise UsageError(
            "--abstain and --min-probability require --questions, --calibration or the FILE of a "
            "--prior"
        )
    own = given(arguments, "min_probability", "abstain")
    sets = {}
    for name in names:
        asked = questions[name] if name in questions else learned[name].asked
        if name not in questions and len(asked) > 1 and any(each.name is None for each in asked):
            raise UsageError(
                f"the set {name!r} has questions without a name: give --questions, too"
            )
        fitted: dict[str, Any] = {}
        if name in learned:  # fitted without reasoning
            fitted = {"prior" if name in priors else "calibration": learned[name]}
            fitted |= {"think": 0, "think_below": 1.0, "think_share": 1.0}
        sets[name] = QuestionSet(name, asked, {**asking, **own, **fitted})
    return sets


def _files_in(paths: Sequence[str]) -> tuple[list[str | Path], list[Path]]:
    """Return the files of questions, and the calibrations in folders."""
    files: list[str | Path] = [path for path in paths if not Path(path).is_dir()]
    calibrations: list[Path] = []
    for folder in (Path(path) for path in paths if Path(path).is_dir()):
        inside = sorted(each for each in folder.iterdir() if each.suffix in (".json", ".toml"))
        fitted = [each for each in inside if each.name.endswith(".calibration.json")]
        if not inside:
            raise UsageError(f"{folder} contains no .json or .toml file")
        files += (each for each in inside if each not in fitted)
        calibrations += fitted
    return files, calibrations


def _by_name(paths: Sequence[str | Path], read: Callable[[Path], T]) -> dict[str, T]:
    """Read files, and map the names of their sets to their contents."""
    found: dict[str, T] = {}
    for path in map(Path, paths):
        name = path.name.partition(".")[0]
        if not name:
            raise UsageError(f"{path}: the name of a set is that of its file up to the first dot")
        if name in found:
            raise UsageError(f"two files are named {name!r}: {path} and another one")
        found[name] = read(path)
    return found


def _keys(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.api_key_file is not None:
        lines = [line.strip() for line in read_text(arguments.api_key_file).splitlines()]
        keys = tuple(line for line in lines if line and not line.startswith("#"))
        if not keys:
            raise UsageError(f"{arguments.api_key_file} contains no API key")
        return keys
    key = os.environ.get(KEY_VARIABLE)
    return () if key is None else (key,)


def _url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
