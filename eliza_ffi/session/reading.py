"""Read a structured answer while the model generates it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeVar

from ..checks import check_flag, check_kind
from ..errors import ContextFullError, FillError, InvalidAnswerError
from ..library.protocol import StreamStep
from ..structured.fill_result import FillResult, PartialField
from ..structured.json_reader import JsonReader, copied
from ..structured.shape import Shape
from .generation import Generation

T = TypeVar("T")


class Reading(Generic[T]):
    """Reads one answer from the steps of its run.

    Parameters
    ----------
    shape
        The shape of the answer.
    tells_fields
        Whether to yield the fields before the result.
    """

    def __init__(self, shape: Shape[T], tells_fields: bool = True) -> None:
        self._shape = check_kind("shape", shape, Shape, "a Shape, as shape_of() returns it")
        self._begin = time.perf_counter()
        reads = check_flag("tells_fields", tells_fields)
        self._json = JsonReader(shape.json_of) if reads and shape.json_of is not None else None
        self._n_read = 0

    def take(self, step: StreamStep | Generation) -> Iterator[PartialField | FillResult[T]]:
        """Yield the fields that a step completes; for the last step, yield the result, too.

        Raises
        ------
        FillError
            If a limit truncated the answer. Its attribute `partial` has the partial answer.
        InvalidAnswerError
            If the answer is not valid against its schema, or its class rejects it.
        """
        if isinstance(step, StreamStep):
            yield from self._read(step.text)
        else:
            result = self._filled(step)
            yield from self._read(result.text[self._n_read :], is_last=True)
            yield self._shaped(result)

    def _read(self, text: str, is_last: bool = False) -> Iterator[PartialField]:
        self._n_read += len(text)
        reader = self._json
        if reader is None:
            return
        for path, value, partial in chain(reader.push(text), reader.finish() if is_last else ()):
            if path:  # an empty path is the whole answer
                yield PartialField(path, copied(value), partial)

    def _filled(self, result: Generation) -> FillResult[Any]:
        stats = result.stats
        filled: FillResult[Any] = FillResult(
            text=result.text,
            value=None,
            spans=tuple([each for each in result.choices.values() if each.kind == "enum"]),
            tokens=result.tokens,
            complete=result.finish_reason == "end",
            forward_passes=-1 if stats is None else stats.passes_after_prompt,
            seconds=time.perf_counter() - self._begin,
            stats=stats,
            choices=result.choices,
        )
        if result.finish_reason == "context_full":
            full = ContextFullError("the context is full: shorten the prompt or raise n_ctx")
            raise FillError(f"the answer has not ended: {full}", filled) from full
        if result.finish_reason == "length" and self._shape.close is not None:
            whole = self._shape.close(result.tokens)
            if whole is not None:
                tokens, text = whole
                return replace(filled, tokens=tokens, text=text, complete=True, is_closed=True)
        if not filled.complete:
            length = f"the answer has not ended after {len(result.tokens)} tokens"
            steps = "raise max_tokens, limit the strings and lists of the schema"
            if self._shape.close is None:
                text = f'{length}: {steps}, or pass on_limit="close"'
            else:
                text = f'{length}, and on_limit="close" found no short ending: {steps}'
            raise FillError(text, filled)
        return filled

    def _shaped(self, result: FillResult[Any]) -> FillResult[T]:
        try:
            value = self._shape.value(result.text)
        except ValueError as error:
            raise InvalidAnswerError(
                f"the answer is not valid: {error}: {result.text:.500}", result
            ) from error
        return replace(result, value=value, relaxed=self._shape.relaxed)
