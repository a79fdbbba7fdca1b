"""The results of filling a shape: each finished field, and the whole answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from .._lazy import lazy_property
from ..checks import short_repr
from .fill_result import FilledSpan, FillResult
from .json_reader import Path

T = TypeVar("T")


@dataclass(frozen=True)
class PartialField:
    """A finished field of an object, or a finished item of an array.

    Attributes
    ----------
    path : tuple of str or int
        The keys and array indices that lead to the field, outermost first.
    value : Any
        The field's value, as JSON data.
    read_partial : callable
        Computes `partial`.
    """

    path: Path
    value: Any
    read_partial: Callable[[], Any] = field(compare=False)

    @lazy_property
    def partial(self) -> Any:
        """The answer up to this field.

        For a pydantic model, this is an instance that has only the finished fields; otherwise it
        is JSON data. It is created on first access. All partial answers share their finished parts.
        """
        return self.read_partial()

    def __repr__(self) -> str:
        return f"PartialField({self.path!r}, {short_repr(self.value)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "value": self.value, "partial": self.partial}


@dataclass(frozen=True)
class StructuredResult(FillResult, Generic[T]):
    """The complete answer for a shape.

    Attributes
    ----------
    value : T
        JSON data for a schema, an instance for a class, and the text for a regular expression or
        a grammar.
    relaxed : tuple of str
        The parts of the schema that were not enforced while the answer was written, each with its
        JSON pointer. The value was validated afterwards, so it is valid against them too.
    is_closed : bool
        Whether the answer reached `max_tokens` and was completed with a short ending.
    choices : mapping of str to FilledSpan
        The values that were chosen as a whole (enums, constants and booleans), each by the keys and
        indices that lead to it, such as ``"pets.0.kind"``. Also the decisions about the structure,
        with a ``?`` after the path: for ``"note?"`` the name of the field that came where ``note``
        could have come, or None if the object ended; for ``"pets.1?"`` whether the list went on.
        `spans` has the values alone.
    """

    value: T
    relaxed: tuple[str, ...] = ()
    is_closed: bool = False
    choices: Mapping[str, FilledSpan] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls, result: FillResult, relaxed: tuple[str, ...] = (), is_closed: bool = False
    ) -> StructuredResult[Any]:
        """Convert a plain fill result to the result of a shape."""
        copied = {field.name: getattr(result, field.name) for field in fields(result)}
        return StructuredResult(**copied, relaxed=relaxed, is_closed=is_closed)

    @property
    def truncated(self) -> bool:
        """Whether `max_tokens` was reached and the answer was closed early."""
        return self.is_closed or super().truncated

    def __repr__(self) -> str:
        return self._described(self.value)
