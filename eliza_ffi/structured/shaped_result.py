"""The results of a shape: a field that has been written, and the whole answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from ..checks import short_repr
from .fill_result import FillResult
from .json_reader import Path

__all__ = ["FieldFill", "ShapedResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class FieldFill:
    """A field, or an item of an array, that has been written.

    Attributes
    ----------
    path : tuple of str or int
        Where it is: keys and places, from the outside in.
    value : Any
        Its value, as JSON data.
    read_partial : callable
        Reads `partial`.
    """

    path: Path
    value: Any
    read_partial: Callable[[], Any] = field(compare=False)

    @functools.cached_property
    def partial(self) -> Any:
        """The answer up to this field.

        For a pydantic model, an object with the finished fields and no others; otherwise JSON data.
        It is made at the first access. All partial answers share their finished parts.
        """
        return self.read_partial()

    def __repr__(self) -> str:
        return f"FieldFill({self.path!r}, {short_repr(self.value)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "value": self.value, "partial": self.partial}


@dataclass(frozen=True)
class ShapedResult(FillResult, Generic[T]):
    """A whole answer of a shape.

    Attributes
    ----------
    value : T
        What was asked for: JSON data of a schema, an object of a class, otherwise the text.
    relaxed : tuple of str
        What of the schema was not enforced while the answer was written, each with its JSON
        pointer. The value is valid all the same.
    is_closed : bool
        Whether `max_tokens` cut the answer, which was then brought to its end.
    """

    value: T
    relaxed: tuple[str, ...] = ()
    is_closed: bool = False

    @classmethod
    def of(
        cls, result: FillResult, relaxed: tuple[str, ...] = (), is_closed: bool = False
    ) -> ShapedResult[Any]:
        """Return a result as that of a shape."""
        known = {field.name: getattr(result, field.name) for field in fields(result)}
        return ShapedResult(**known, relaxed=relaxed, is_closed=is_closed)

    @property
    def truncated(self) -> bool:
        """Whether the answer was brought to its end because of `max_tokens`."""
        return self.is_closed or super().truncated

    def __repr__(self) -> str:
        return self._described(self.value)
