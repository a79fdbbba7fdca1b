"""Reading an answer of a shape while it comes, whoever writes it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Generic, TypeVar

from ..checks import check_flag, check_kind
from ..errors import ContextFullError, FillError, InvalidAnswerError
from ..library.protocol import StreamStep
from ..runner.request import RunResult
from ..skeleton.fill_result import FillResult, SpanFill
from .growing import Growing
from .json_reader import JsonReader, Path, copied
from .shape import Shape

__all__ = ["FieldFill", "Reading", "ShapedResult", "Step"]

T = TypeVar("T")

Step = SpanFill | FillResult | StreamStep | RunResult
"""What the runner brings, of a skeleton or under masks."""


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
    read_partial: Callable[[], Any] = field(repr=False, compare=False)

    @functools.cached_property
    def partial(self) -> Any:
        """The answer up to this field.

        For a pydantic model, an object with the finished fields and no others; otherwise JSON data.
        It is made at the first access. All partial answers share their finished parts.
        """
        return self.read_partial()

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


class Reading(Generic[T]):
    """One answer on its way.

    Parameters
    ----------
    shape
        What it shall be.
    tells_fields
        Whether fields are asked for, or the result alone.
    """

    def __init__(self, shape: Shape[T], tells_fields: bool = True) -> None:
        self._shape = check_kind("shape", shape, Shape, "a Shape, as of shape_of()")
        self._begin = time.perf_counter()
        reads = check_flag("tells_fields", tells_fields)
        self._json = JsonReader() if reads and shape.json_of is not None else None
        self._growing = Growing(shape.json_of)
        self._n_read = 0

    def take(self, step: Step) -> Iterator[FieldFill | ShapedResult[T]]:
        """Return what a step of the runner brings; of its last, the result.

        Raises
        ------
        FillError
            If the answer was cut by a limit. What was written is its `partial`.
        InvalidAnswerError
            If the answer is not valid against its schema, or its class rejects it.
        """
        if isinstance(step, SpanFill):
            yield from self._read(step.before + step.text)
        elif isinstance(step, StreamStep):
            yield from self._read(step.text)
        else:
            result = step if isinstance(step, FillResult) else self._filled(step)
            yield from self._read(result.text[self._n_read :], is_last=True)
            yield self._shaped(result)

    def _read(self, text: str, is_last: bool = False) -> Iterator[FieldFill]:
        self._n_read += len(text)
        reader = self._json
        if reader is None:
            return
        for path, value in chain(reader.push(text), reader.finish() if is_last else ()):
            if path:  # else it is the answer itself
                yield FieldFill(path, copied(value), self._growing.add(path, value))

    def _filled(self, result: RunResult) -> FillResult:
        stats = result.stats
        filled = FillResult(
            text=result.text,
            value=None,
            spans=(),
            tokens=result.tokens,
            complete=result.finish_reason == "end",
            forward_passes=-1 if stats is None else stats.passes_after_prompt,
            elapsed=time.perf_counter() - self._begin,
            stats=stats,
        )
        if result.finish_reason == "context_full":
            full = ContextFullError("the context is full: shorten the prompt or raise n_ctx")
            raise FillError(f"the answer has not ended: {full}", filled) from full
        if result.finish_reason == "length" and self._shape.close is not None:
            whole = self._shape.close(result.tokens)
            if whole is not None:
                tokens, text = whole
                closed = replace(filled, tokens=tokens, text=text, complete=True)
                return ShapedResult.of(closed, is_closed=True)
        if not filled.complete:
            raise FillError(
                f"the answer came to {len(result.tokens)} tokens and has not ended: raise "
                f'max_tokens, bound the shape\'s texts and lists, or pass on_limit="close"',
                filled,
            )
        return filled

    def _shaped(self, result: FillResult) -> ShapedResult[T]:
        try:
            value = self._shape.value(result.text)
        except ValueError as error:
            raise InvalidAnswerError(
                f"the answer is not valid: {error}: {result.text:.500}", result
            ) from error
        if not isinstance(result, ShapedResult):
            result = ShapedResult.of(result)
        return replace(result, value=value, relaxed=self._shape.relaxed)
