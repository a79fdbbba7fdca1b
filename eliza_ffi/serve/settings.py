"""What can be set of a server, and what is refused because it would not be safe."""

from __future__ import annotations

from dataclasses import dataclass

from ..decisions.prompts import LabelStyle
from ..decisions.scoring import Rule
from ..errors import InvalidArgumentError
from .hosts import allowed_host, allowed_origin, is_loopback

__all__ = ["ServeSettings"]


@dataclass(frozen=True)
class ServeSettings:
    """How a model is served.

    Attributes
    ----------
    name : str
        What the model is called in answers.
    host : str
        The address to listen on.
    port : int
        0 = any that is free.
    keys : tuple of str
        API keys, any of which opens the endpoints; none = they are open.
    without_key : bool
        Whether an address that others can reach may be served without a key.
    cors_origins : tuple of str
        Origins whose pages may send requests, such as ``https://example.org``; ``*`` = any.
    hosts : tuple of str
        Names, in addition to localhost, that clients may send in the Host header. The header is
        checked without a key, or if names are given here. IP addresses are always accepted.
    n_waiting : int
        Requests that wait while others are answered; one more is refused.
    deadline : float
        Seconds that a request may take, its wait included.
    labels, orders, scoring
        How questions are asked; see :meth:`~eliza_ffi.Model.decide`.

    Raises
    ------
    InvalidArgumentError
        If a value is out of range or malformed, or others could reach the server without a key.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[str, ...] = ()
    without_key: bool = False
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    n_waiting: int = 256
    deadline: float = 60.0
    labels: LabelStyle = "text"
    orders: int = 1
    scoring: Rule = "legal"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidArgumentError(f"the port must be 0 to 65535, not {self.port}")
        if self.n_waiting < 0:
            raise InvalidArgumentError(f"the queue must be 0 or more, not {self.n_waiting}")
        if not 0.0 < self.deadline <= 86_400.0:
            raise InvalidArgumentError(f"the deadline must be up to 86400 s, not {self.deadline}")
        if any(not key.isascii() or not key.isprintable() or " " in key for key in self.keys):
            raise InvalidArgumentError("an API key must be of printable ASCII without spaces")
        if "" in self.keys:
            raise InvalidArgumentError("an API key is empty")
        if not is_loopback(self.host) and not self.keys and not self.without_key:
            raise InvalidArgumentError(
                f"others can reach {self.host}: give --api-key-file, or --without-key to let "
                "anyone ask"
            )
        object.__setattr__(self, "hosts", tuple(allowed_host(each) for each in self.hosts))
        origins = tuple(allowed_origin(each) for each in self.cors_origins)
        object.__setattr__(self, "cors_origins", origins)

    @property
    def checks_host(self) -> bool:
        """Whether names in the Host header are checked."""
        return not self.keys or bool(self.hosts)
