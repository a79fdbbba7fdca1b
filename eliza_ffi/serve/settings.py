"""The settings of a server. Unsafe combinations are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._lazy import lazy_property
from ..decisions.learning.drift import RecentAnswers
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from .hosts import allowed_host, allowed_origin, is_loopback

__all__ = ["QuestionSet", "ServeSettings"]


@dataclass(frozen=True)
class QuestionSet:
    """Questions that the server knows, so that a request needs only the name and the input.

    Attributes
    ----------
    name : str
        What requests send as ``model``.
    questions : tuple of Question
    asking : mapping
        Keyword arguments of :meth:`~eliza_ffi.Model.decide`, such as the calibration or the prior.
    """

    name: str
    questions: tuple[Question, ...]
    asking: Mapping[str, Any]

    @lazy_property
    def recent(self) -> RecentAnswers | None:
        """The recent answers, to compare them with those of the calibration, if there is one."""
        calibration = self.asking.get("calibration")
        return None if calibration is None else RecentAnswers(calibration)

    @property
    def is_calibrated(self) -> bool:
        """Whether the probabilities are calibrated. A prior alone does not calibrate them."""
        return self.asking.get("calibration") is not None


@dataclass(frozen=True)
class ServeSettings:
    """The settings of a server.

    Attributes
    ----------
    name : str
        The model's name in responses.
    host : str
        The address to listen on.
    port : int
        The port to listen on; 0 = any free port.
    keys : tuple of str
        API keys. A request must contain one of them. Empty = no key is required.
    without_key : bool
        Whether the server may run without keys on an address that other machines can reach.
    cors_origins : tuple of str
        Origins whose pages may send requests, such as ``https://example.org``; ``*`` = any.
    hosts : tuple of str
        Names, in addition to localhost, that clients may send in the Host header. The header is
        checked if there are no keys, or if there are names here. IP addresses are always accepted.
    n_waiting : int
        The maximum number of waiting requests. Further requests are rejected.
    deadline : float
        The time limit of a request in seconds, including its time in the queue.
    logs_requests : bool
        Whether to log a line for each request. Failures are always logged.
    asking : mapping
        Settings for prompts and scoring: keyword arguments of :meth:`~eliza_ffi.Model.decide`.
    sets : mapping of str to QuestionSet
        The named sets of questions.

    Raises
    ------
    InvalidArgumentError
        If a value is out of range or malformed, or if other machines could use the server without
        a key although `without_key` is False.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[str, ...] = ()
    without_key: bool = False
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    n_waiting: int = 256
    deadline: float = 600.0
    logs_requests: bool = False
    asking: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, QuestionSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidArgumentError(f"--port must be 0 to 65535, got {self.port}")
        if self.n_waiting < 0:
            raise InvalidArgumentError(f"--queue must be 0 or more, got {self.n_waiting}")
        if not 0.0 < self.deadline <= 86_400.0:
            raise InvalidArgumentError(
                f"--deadline must be above 0 and at most 86400 seconds, got {self.deadline}"
            )
        if self.name in self.sets:
            raise InvalidArgumentError(
                f"a set of questions has the model's name {self.name!r}: rename its file, or give "
                "--alias"
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
        object.__setattr__(self, "hosts", tuple(allowed_host(each) for each in self.hosts))
        origins = tuple(allowed_origin(each) for each in self.cors_origins)
        object.__setattr__(self, "cors_origins", origins)

    @property
    def checks_host(self) -> bool:
        """Whether the server checks the name in the Host header."""
        return not self.keys or bool(self.hosts)
