"""``eliza-ffi mcp``: tools for agents over the Model Context Protocol (MCP)."""

from __future__ import annotations

import argparse
import logging
import signal
from contextlib import ExitStack

from ..async_model import AsyncModel
from ..errors import NotSupportedError
from .console import UsageError, add_model_arguments, open_model, whole_number
from .serve import (
    NEEDED,
    add_access_arguments,
    add_set_arguments,
    check_modules,
    listening_on,
    read_settings,
    url_of,
)

__all__ = ["add_mcp_arguments", "run_mcp"]


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Give agents the tools choose, rank and decide, over standard input and output or by HTTP."
    )
    group = parser.add_argument_group("server")
    group.add_argument(
        "--port",
        type=whole_number,
        metavar="N",
        help="port to listen on; 0 = any free port (default: none, the tools use standard input "
        "and output instead of HTTP)",
    )
    add_access_arguments(parser)
    add_set_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(alias=None, queue=0)


def run_mcp(arguments: argparse.Namespace) -> int:
    """Serve the tools until standard input ends, or until SIGTERM or SIGINT."""
    check_modules(("mcp", *NEEDED), "mcp")
    from ..serve import mcp, server  # not at the top, because their dependencies are optional

    by_http = arguments.port is not None
    if not by_http:
        for name in ("api_key_file", "without_key", "cors_origin", "allowed_host", "log_requests"):
            if getattr(arguments, name):
                raise UsageError(f"--{name.replace('_', '-')} requires --port")
        arguments.port = 0
    settings = read_settings(arguments)
    logging.basicConfig(level=logging.WARNING, format="eliza-ffi: %(message)s")
    if settings.logs_requests:
        logging.getLogger("eliza_ffi.serve").setLevel(logging.INFO)
    with ExitStack() as stack:
        # Listen before loading the model, so that an address in use is reported at once.
        listening = stack.enter_context(listening_on(server.listen, settings)) if by_http else None
        model = stack.enter_context(open_model(arguments, arguments.n_slots))
        if not server.check_model(model, settings):
            raise NotSupportedError("the model cannot generate text")
        tools = mcp.make_mcp_server(AsyncModel.of(model), settings)
        if listening is None:
            tools.run()
            return 0
        ready = f"{settings.name} is served at {url_of(listening).rstrip('/')}{mcp.PATH}"
        sent = mcp.serve_mcp(tools, settings, listening, lambda: print(ready, flush=True))
    if sent == signal.SIGINT:
        raise KeyboardInterrupt
    return 0
