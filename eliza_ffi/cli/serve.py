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
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from .._resources import default_model_path
from ..async_model import AsyncModel
from ..errors import InvalidArgumentError, NotSupportedError
from ..evidence.cascade import Cascade, CascadeCalibration, ModelSource
from ..hub import HubName, read_name
from ..model import Model
from ..serve.settings import LabelSettings, QuestionSet, ServeSettings
from ..tables.label_file import draw_rows
from .console import UsageError, add_model_arguments, add_options, given, open_model, refuse
from .files import read_text
from .questions import (
    add_asking_arguments,
    add_cascade_arguments,
    add_deciding_arguments,
    add_table_arguments,
    below_of,
    checked_prior,
    read_asking,
    read_calibration,
    read_cascade,
    read_question_file,
    read_table,
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

SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)
"""The options with the default settings of sampling."""

EPILOG = """\
Endpoints: POST /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/rerank,
/v1/decisions, /v1/decisions/batch, /v1/systemone, /v1/labels,
/v1/labels/next, /v1/labels/undo and /v1/labels/back; GET /,
/v1/models, /v1/models/NAME, /health, /healthz, /readyz, /livez, /metrics and /openapi.json.
After SIGTERM or SIGINT it finishes the running requests, then exits; a second signal exits
immediately.
"""

LLAMA_SERVER_FLAGS = (
    ("--jinja",),
    ("--embedding", "--embeddings"),
    ("--metrics",),
    ("-cb", "--cont-batching"),
    ("--cache-prompt",),
    ("--ui", "--webui"),
)
"""Flags that turn on parts of llama-server which this server always has. They are accepted, so that
a command line of llama-server works, and have no effect."""


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    for names in LLAMA_SERVER_FLAGS:
        parser.add_argument(*names, action="store_true", help=argparse.SUPPRESS)
    add_options(
        parser.add_argument_group("server"),
        {
            "--port N": "port to listen on; 0 = any free port (default: 8080)",
            "--alias NAME": "name of the model in responses (default: its file name without the "
            "extension, or its name on Hugging Face)",
        },
    )
    parser.set_defaults(port=8080)
    _add_access_arguments(parser)
    _add_default_arguments(parser)
    _add_set_arguments(parser)
    add_options(
        parser.add_argument_group(
            "labels", "clients send labels to /v1/labels, and sets of questions learn from them"
        ),
        {
            "--learn FILE ...": "store the labels of the set NAME in FILE, which is called "
            "NAME.labels.csv, and fit the set's calibration to them; repeat for more sets",
            "--table FILE": "offer rows of this table, whose inputs are in --column, for labels on "
            "the page, for the only set of --learn",
            "--label-key NAME ...": "accept labels only from the API key NAME of --api-key-file; "
            "repeat for more (default: any key)",
        },
    )
    add_table_arguments(parser)
    group = parser.add_argument_group(
        "several models", "decide as a cascade; the first model answers all other requests"
    )
    add_cascade_arguments(group)
    add_model_arguments(parser, decides=True)


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Give agents the tools choose, rank and decide, over standard input and output or HTTP."
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
    add_model_arguments(parser, decides=True)
    parser.set_defaults(alias=None, max_tokens=0, **dict.fromkeys(SAMPLING))
    parser.set_defaults(learn=None, label_key=None, table=None, column=None, then=None)


def _add_default_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "defaults",
        "For requests without their own values. Labels have no maximum length, and only text "
        "without a constraint or tools is sampled.",
    )
    add_options(
        group,
        {
            "--max-tokens N": "generate at most N tokens; 0 = no limit (default: 0, but 16 for "
            "/v1/completions)",
            "--temperature TEMPERATURE": "sampling temperature: 0 = greedy (default: 1)",
            "--top-k TOP_K": "sample only from the TOP_K most probable tokens; 0 = off "
            "(default: 0)",
            "--top-p TOP_P": "sample only from the most probable tokens whose probabilities add "
            "up to TOP_P; 1 = off (default: 1)",
            "--min-p MIN_P": "sample only tokens that are at least MIN_P times as probable as the "
            "most probable one; 0 = off (default: 0)",
            "--repeat-penalty REPEAT_PENALTY": "make tokens of the recent text less probable; "
            "1 = off (default: 1)",
            "--presence-penalty PENALTY": "make tokens of the recent text less probable by a "
            "constant; 0 = off (default: 0)",
            "--frequency-penalty PENALTY": "make tokens of the recent text less probable, for each "
            "time that they occur; 0 = off (default: 0)",
        },
    )
    group.set_defaults(max_tokens=0)


def _add_access_arguments(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    add_options(
        limits,
        {
            "--queue N": "maximum number of waiting requests; further ones are rejected (default: "
            "256)",
            "--deadline SECONDS": "time limit of a request, waiting included (default: 600)",
            "--max-body N": "maximum size of a request's body in MiB (default: 1)",
            "--max-tools N": "offer the model at most N tools of a request, those that fit the "
            "user's last message best; 0 = all (default: 0)",
            "--max-options N": "maximum number of options or labels of a question, up to 100000 "
            "(default: 255)",
        },
    )
    limits.set_defaults(queue=256, deadline=600.0, max_body=1, max_options=255, max_tools=0)
    group = parser.add_argument_group(
        "access", "without these options, only programs on this machine have access"
    )
    add_options(
        group,
        {
            "--host ADDRESS": "address to listen on, or the path of a Unix socket, which needs a "
            "slash (default: 127.0.0.1)",
            "--api-key-file FILE": "require an API key from FILE; each line is KEY, or NAME KEY "
            "with a name for the log; # begins a comment line (default: the key in "
            f"{KEY_VARIABLE}, if set)",
            "--without-key": "accept requests without an API key even if other machines can reach "
            "the address",
            "--cors-origin ORIGIN ...": "allow requests from web pages of ORIGIN, * = any; repeat "
            "for more (default: none)",
            "--allowed-host NAME ...": "accept this host name besides localhost; repeat for more",
            "--log-requests": "log a line for each request: its x-request-id, path, status, "
            "duration, tokens and finish reason",
        },
    )
    group.set_defaults(host="127.0.0.1")


def _add_set_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "named questions",
        "A request to /v1/decisions or /v1/systemone with the name as `model` needs no questions. "
        "The name is the file's name up to the first dot: tickets.json and "
        "tickets.calibration.json belong together. A calibration contains its questions.",
    )
    add_options(
        group,
        {
            "--questions FILE ...": "read the questions from FILE (repeat for more); from a "
            "folder: its .json and .toml files, in which NAME.calibration.json is the calibration "
            "of NAME",
            "--calibration FILE ...": "apply this calibration, a file written by eliza-ffi "
            "calibrate (or eliza-ffi decide --save-prior; repeat for more)",
            "--prior PRIOR": "divide the probabilities by a prior: options or none, for all "
            "questions without a calibration (default: auto)",
        },
    )
    add_deciding_arguments(group)
    add_asking_arguments(parser)


def _check_modules(modules: Sequence[str], extra: str) -> None:
    """Raise NotSupportedError if a module of an extra is missing."""
    missing = []
    for name in modules:
        with suppress(ModuleNotFoundError):  # not even its parent is there
            if importlib.util.find_spec(name) is not None:
                continue
        missing.append(name)
    if missing:
        raise NotSupportedError(
            f"{extra} requires {', '.join(missing)}: pip install 'eliza-ffi[{extra}]'"
        )


def run_serve(arguments: argparse.Namespace) -> int:
    _check_modules(NEEDED, "serve")
    from ..serve import endpoint, server  # not at the top: their dependencies are optional

    settings = _logged_settings(arguments)
    # Listen before loading the model, so that an address in use is reported at once.
    with ExitStack() as stack:
        listening = stack.enter_context(_listening_on(server.listen, settings))
        with server.answering_while_loading(listening, settings):
            model = stack.enter_context(open_model(arguments, arguments.n_slots))
            cascade = _cascade(arguments, settings, model, stack)
            server.check_model(model, settings, cascade)
        if model.session.kind != "decoder":
            path = endpoint.PATHS[model.session.kind]
            logging.warning(
                "the model cannot generate text: only decisions and %s are answered", path
            )
        ready = f"{settings.name} is served at {_url_of(listening)}"
        sent = server.serve(model, settings, listening, lambda: print(ready, flush=True), cascade)
    if sent == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _cascade(
    arguments: argparse.Namespace, settings: ServeSettings, model: Model, stack: ExitStack
) -> Cascade | None:
    """Open the other models of a cascade, until the stack is closed."""
    if not arguments.then:
        return None
    cascade = read_cascade(arguments, settings.decide_options)
    first, *others = cascade.sources
    opened = [
        (stack.enter_context(each.open()), each.settings)
        for each in others
        if isinstance(each, ModelSource)
    ]
    return Cascade([(model, first.settings), *opened], below=cascade.below)


def run_mcp(arguments: argparse.Namespace) -> int:
    _check_modules(("mcp", *NEEDED), "mcp")
    from ..serve import mcp, server  # not at the top, because their dependencies are optional

    by_http = arguments.port is not None
    if not by_http:
        names = ("api_key_file", "without_key", "cors_origin", "allowed_host", "log_requests")
        refuse(arguments, names, "requires --port")
        arguments.port = 0
    settings = _logged_settings(arguments)
    with ExitStack() as stack:
        listening, loading = None, ExitStack()
        if by_http:  # before loading the model, so that an address in use is reported at once
            listening = stack.enter_context(_listening_on(server.listen, settings))
            loading.enter_context(server.answering_while_loading(listening, settings))
        with loading:
            model = stack.enter_context(open_model(arguments, arguments.n_slots))
            server.check_model(model, settings)
        if listening is None:
            mcp.make_mcp_server(AsyncModel.of(model), settings).run()
            return 0
        ready = f"{settings.name} is served at {_url_of(listening).rstrip('/')}{mcp.PATH}"
        sent = mcp.serve_mcp(
            AsyncModel.of(model), settings, listening, lambda: print(ready, flush=True)
        )
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
        address = settings.host
        address += "" if settings.is_unix_socket else f":{settings.port}"
        raise OSError(error.errno, error.strerror, address) from error


def read_settings(arguments: argparse.Namespace) -> ServeSettings:
    model = read_name(arguments.model or default_model_path())
    name = str(model) if isinstance(model, HubName) else Path(model).stem
    keys = _keys(arguments)  # their names by key
    decide_options = {**read_asking(arguments), "prior": checked_prior(arguments.prior)}
    decide_options |= given(arguments, "think")
    if not arguments.then:
        below_of(arguments)
    elif arguments.learn or arguments.abstain:
        option = "--learn" if arguments.learn else "--abstain"
        raise UsageError(f"--then cannot be combined with {option}")
    sets = _sets(arguments, decide_options)
    try:
        return ServeSettings(
            name=name if arguments.alias is None else arguments.alias,
            **given(
                arguments, "host", "port", "without_key", "deadline", "max_options", "max_tools"
            ),
            keys=tuple(keys),
            key_names={key: name for key, name in keys.items() if name},
            max_body=arguments.max_body * 2**20,
            cors_origins=tuple(arguments.cors_origin or ()),
            hosts=tuple(arguments.allowed_host or ()),
            n_waiting=arguments.queue,
            logs_requests=arguments.log_requests,
            max_tokens=arguments.max_tokens,
            sampling={
                name: value
                for name, value in given(arguments, *SAMPLING).items()
                if value is not None
            },
            decide_options=decide_options,
            sets=sets,
            labels=_labels(arguments, sets),
            label_keys=tuple(arguments.label_key or ()),
        )
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from None


def _sets(
    arguments: argparse.Namespace, decide_options: Mapping[str, Any]
) -> dict[str, QuestionSet]:
    files, found = _files_in(arguments.questions or ())
    questions = _by_name(files, read_question_file)
    read: Any = CascadeCalibration.load if arguments.then else read_calibration
    calibrations: dict[str, Any] = _by_name([*(arguments.calibration or ()), *found], read)
    names = dict.fromkeys((*questions, *calibrations))
    without = [name for name in names if name not in calibrations]
    if arguments.abstain is not None and without:
        raise UsageError(f"--abstain risk requires a --calibration for the set {without[0]!r}")
    if not names and (arguments.abstain or arguments.min_probability):
        raise UsageError("--abstain and --min-probability require --questions or --calibration")
    own = given(arguments, "min_probability", "abstain")
    sets = {}
    for name in names:
        asked = questions[name] if name in questions else calibrations[name].asked
        if name not in questions and len(asked) > 1 and any(each.name is None for each in asked):
            raise UsageError(
                f"the set {name!r} has questions without a name: give --questions, too"
            )
        sets[name] = QuestionSet(name, asked, {**decide_options, **own})
        if name in calibrations:
            sets[name] = sets[name].calibrated(calibrations[name])
    return sets


def _labels(
    arguments: argparse.Namespace, sets: Mapping[str, QuestionSet]
) -> dict[str, LabelSettings]:
    column = arguments.column or "input"
    labels = _by_name(arguments.learn or (), lambda path: LabelSettings(path, column))
    if arguments.table is not None:
        if len(labels) != 1:
            raise UsageError("--table requires --learn with one file")
        rows = draw_rows(read_table(arguments), column)
        labels = {name: replace(each, rows=rows) for name, each in labels.items()}
    for name in labels:
        if name not in sets:
            raise UsageError(
                f"--learn {labels[name].path}: there is no set {name!r}: call the file "
                f"NAME.labels.csv, where NAME is a file of --questions or --calibration"
            )
    return labels


def _files_in(paths: Sequence[str]) -> tuple[list[str | Path], list[Path]]:
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
    found: dict[str, T] = {}
    for path in map(Path, paths):
        name = path.name.partition(".")[0]
        if not name:
            raise UsageError(f"{path}: the name of a set is that of its file up to the first dot")
        if name in found:
            raise UsageError(f"two files are named {name!r}: {path} and another one")
        found[name] = read(path)
    return found


def _keys(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the API keys, each with its name; "" = it has none."""
    if arguments.api_key_file is not None:
        lines = [line.strip() for line in read_text(arguments.api_key_file).splitlines()]
        keys = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, _, key = line.rpartition(" ")
                keys[key] = name.strip()
        if not keys:
            raise UsageError(f"{arguments.api_key_file} contains no API key")
        return keys
    only = os.environ.get(KEY_VARIABLE)
    return {} if only is None else {only: ""}


def _url_of(listening: socket.socket) -> str:
    if isinstance(listening.getsockname(), str):
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
