"""Read a structured answer while the model generates it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeVar

from ..errors import ContextFullError, FillError, InvalidAnswerError
from ..library.protocol import StreamStep
from ..structured.fill_result import FillResult, PartialField
from ..structured.guidance import GuidanceMasks
from ..structured.json_reader import JsonReader, copied
from .generation import Generation

T = TypeVar("T")


class Reading(Generic[T]):
    """Reads one answer from the steps of its run.

    Parameters
    ----------
    value
        Returns the value of a complete answer; raises ValueError if it is not valid.
    json_of
        The class that the JSON is read as. With None, there are no fields before the result.
    """

    def __init__(self, value: Callable[[str], T], json_of: Any = None) -> None:
        self._value = value
        self._begin = time.perf_counter()
        self._json = None if json_of is None else JsonReader(json_of)
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
        masks: Any = None if isinstance(step, StreamStep) else step.args.constraint
        result = None if isinstance(step, StreamStep) else self._filled(step, masks)
        if self._json is not None:
            text = step.text if result is None else result.text[self._n_read :]
            self._n_read += len(text)
            at_end = self._json.finish() if result is not None else ()
            for path, value, partial in chain(self._json.push(text), at_end):
                if path:  # an empty path is the whole answer
                    yield PartialField(path, copied(value), partial)
        if result is not None:
            try:
                answer = self._value(result.text)
            except ValueError as error:
                raise InvalidAnswerError(
                    f"the answer is not valid: {error}: {result.text:.500}", result
                ) from error
            yield replace(result, value=answer, relaxed=masks.relaxed)

    def _filled(self, result: Generation, masks: GuidanceMasks) -> FillResult[Any]:
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
        if filled.complete:
            return filled
        if result.finish_reason == "context_full":
            full = ContextFullError("the context is full: shorten the prompt or raise n_ctx")
            raise FillError(f"the answer has not ended: {full}", filled) from full
        length = f"the answer has not ended after {len(result.tokens)} tokens"
        steps = "raise max_tokens, limit the strings and lists of the schema"
        if result.args.on_limit == "error":
            raise FillError(f'{length}: {steps}, or pass on_limit="close"', filled)
        whole = masks.close(result.tokens) if result.finish_reason == "length" else None
        if whole is None:
            tried = 'and on_limit="close" found no short ending'
            raise FillError(f"{length}, {tried}: {steps}", filled)
        return replace(filled, tokens=whole[0], text=whole[1], complete=True, is_closed=True)
