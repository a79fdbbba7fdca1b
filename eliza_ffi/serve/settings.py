"""The settings of a server. Unsafe combinations are rejected."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..decisions.questions import MAX_CHOICES, MAX_OPTIONS, Question
from ..errors import InvalidArgumentError
from ..evidence.calibration import Calibration
from ..evidence.cascade import CascadeCalibration
from ..sampling.params import Sampling

_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>{_NAME.pattern}|\[[0-9a-f:.]+\])"
    r"(:(?P<port>[0-9]{1,5}))?/?"
)
MAX_BODY = 2**30
"""The largest value of `ServeSettings.max_body`."""

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class QuestionSet:
    """Questions that the server knows, so that a request needs only the name and the input.

    `decide_options` has keyword arguments of :meth:`~eliza_ffi.Model.decide`, such as the
    calibration.
    """

    name: str  # what requests send as `model`
    questions: tuple[Question, ...]
    decide_options: Mapping[str, Any]

    @property
    def is_calibrated(self) -> bool:
        """Whether the probabilities are calibrated. A prior alone does not calibrate them."""
        calibration = self.decide_options.get("calibration")
        return calibration is not None and not calibration.is_prior

    @property
    def cascade_options(self) -> dict[str, Any]:
        """The keyword arguments for a cascade, whose models have the others."""
        own = ("calibration", "min_probability")
        return {name: self.decide_options[name] for name in own if name in self.decide_options}

    def calibrated(self, calibration: Calibration | CascadeCalibration) -> QuestionSet:
        """Return the set with a calibration, which was fitted without reasoning."""
        fitted = {"calibration": calibration, "prior": None, "think": 0}
        return replace(self, decide_options={**self.decide_options, **fitted})


@dataclass(frozen=True)
class LabelSettings:
    """The file of a set's labels. `rows` are texts of a table to label, by number."""

    path: Path
    column: str = "input"  # of the inputs
    rows: Mapping[int, str] | None = None


@dataclass(frozen=True)
class ServeSettings:
    """The settings of a server."""

    name: str  # of the model, in responses
    host: str = "127.0.0.1"  # the address to listen on; with a slash: the path of a Unix socket
    port: int = 8080  # 0 = any free port
    keys: tuple[str, ...] = ()  # a request must contain one of them; empty = no key is required
    key_names: Mapping[str, str] = field(default_factory=dict)  # of keys, for the log
    without_key: bool = False  # allows a server without keys that other machines can reach
    cors_origins: tuple[str, ...] = ()  # whose pages may send requests; "*" = any
    hosts: tuple[str, ...] = ()  # allowed in the Host header besides localhost and IP addresses
    n_waiting: int = 256  # waiting requests; further ones are rejected
    max_body: int = 2**20  # bytes of a request's body, as it is sent and decompressed
    max_tools: int = 0  # that the model is offered; 0 = all
    max_options: int = MAX_OPTIONS  # of a choice, and labels
    deadline: float = 600.0  # seconds for a request, with its time in the queue
    logs_requests: bool = False  # failures are always logged
    # Defaults of requests. `sampling` has fields of `Sampling`, for text without a constraint.
    max_tokens: int = 0  # 0 = no limit, or the usual 16 tokens of /v1/completions
    sampling: Mapping[str, Any] = field(default_factory=dict)
    decide_options: Mapping[str, Any] = field(default_factory=dict)  # keywords of `Model.decide`
    sets: Mapping[str, QuestionSet] = field(default_factory=dict)
    labels: Mapping[str, LabelSettings] = field(default_factory=dict)  # of the sets that learn
    label_keys: tuple[str, ...] = ()  # the names of the keys that may send labels; empty = all

    def __post_init__(self) -> None:
        size, largest = self.max_body / 2**20, MAX_BODY // 2**20
        for option, value, is_right, expected in (
            ("--port", self.port, 0 <= self.port <= 65535, "0 to 65535"),
            ("--queue", self.n_waiting, self.n_waiting >= 0, "0 or more"),
            ("--max-body", f"{size:g}", 0 < size <= largest, f"above 0 and at most {largest} MiB"),
            ("--max-tools", self.max_tools, self.max_tools >= 0, "0 or more"),
            (
                *("--max-options", self.max_options, 2 <= self.max_options <= MAX_CHOICES),
                f"2 to {MAX_CHOICES}",
            ),
            (
                *("--deadline", self.deadline, 0.0 < self.deadline <= 86_400.0),
                "above 0 and at most 86400 seconds",
            ),
            ("--max-tokens", self.max_tokens, 0 <= self.max_tokens < 2**31, f"0 to {2**31 - 1}"),
        ):
            if not is_right:
                raise InvalidArgumentError(f"{option} must be {expected}, got {value}")
        Sampling(**self.sampling)  # raises an error that names the field
        if self.name in self.sets:
            raise InvalidArgumentError(
                f"a set of questions has the model's name {self.name!r}: rename its file, or give "
                "--alias"
            )
        if self.labels and len(self.keys) > 1 and not self.label_keys:
            raise InvalidArgumentError(
                "--learn needs --label-key if there are several API keys: the name of a key that "
                "may send labels"
            )
        if unknown := {*self.label_keys} - {*self.key_names.values()}:
            raise InvalidArgumentError(
                f"--label-key: no API key has the name {min(unknown)!r}; lines NAME KEY of "
                "--api-key-file give keys a name"
            )
        if any(not key.isascii() or not key.isprintable() or " " in key for key in self.keys):
            raise InvalidArgumentError("an API key must be printable ASCII without spaces")
        if "" in self.keys:
            raise InvalidArgumentError("an API key is empty")
        if not is_loopback(self.host) and not self.keys and not self.without_key:
            raise InvalidArgumentError(
                f"other machines can reach {self.host}: give --api-key-file, or --without-key to "
                "accept requests from anyone"
            )
        object.__setattr__(self, "hosts", tuple(map(_allowed_host, self.hosts)))
        object.__setattr__(self, "cors_origins", tuple(map(_allowed_origin, self.cors_origins)))

    @property
    def is_unix_socket(self) -> bool:
        return "/" in self.host

    @property
    def checks_host(self) -> bool:
        """Whether the server checks the Host header: without keys, or if hosts are given."""
        return not self.keys or bool(self.hosts)


def _allowed_host(host: str) -> str:
    """Normalize a host name or IP address, for comparison with Host headers."""
    name = host.strip().lower().removesuffix(".")
    if not _NAME.fullmatch(name) and not is_address(name):
        raise InvalidArgumentError(
            "--allowed-host: expected a host name without scheme, port or path, such as "
            f"models.example, got {host!r}"
        )
    return name


def _allowed_origin(origin: str) -> str:
    """Normalize an origin, for comparison with Origin headers; ``*`` means any."""
    text = origin.strip()
    if text == "*":
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None or int(found["port"] or 0) > 65535:
        raise InvalidArgumentError(
            "--cors-origin: expected an origin such as https://pages.example or "
            f"http://localhost:3000, or *, got {origin!r}"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    is_default = port is None or int(port) == _PORTS.get(scheme)
    return f"{scheme}://{host}" + ("" if is_default else f":{int(port)}")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if "/" in host:  # the path of a Unix socket
        return True
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
