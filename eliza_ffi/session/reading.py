"""Read a structured answer while the model generates it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from ..errors import ContextFullError, FillError, InvalidAnswerError
from ..library.protocol import StreamStep
from ..structured.fill_result import FillResult, PartialField
from ..structured.json_reader import Finished, JsonReader, copied
from .generation import Generation

T = TypeVar("T")


def read_answer(
    writing: Generation, value: Callable[[str], T], json_of: Any = None
) -> Generator[PartialField | FillResult[T], None, None]:
    """Generate an answer: yield its fields as soon as they are complete, and then the result.

    Parameters
    ----------
    value
        Returns the value of a complete answer; raises ValueError if it is not valid.
    json_of
        The class that the JSON is read as. With None, there are no fields before the result.

    Raises
    ------
    FillError
        If a limit truncated the answer. Its attribute `partial` has the partial answer.
    InvalidAnswerError
        If the answer is not valid against its schema, or its class rejects it.
    """
    begin = time.perf_counter()
    reader, n_read = None if json_of is None else JsonReader(json_of), 0
    with closing(writing.steps()) as steps:
        for step in steps:
            if reader is not None and isinstance(step, StreamStep):
                n_read += len(step.text)
                yield from _fields(reader.push(step.text))
    result = whole_answer(writing, time.perf_counter() - begin)
    if reader is not None:  # the answer may have been closed
        yield from _fields(chain(reader.push(result.text[n_read:]), reader.finish()))
    masks: Any = writing.args.constraint
    yield replace(result, value=valid_value(result, value), relaxed=masks.relaxed)


def _fields(finished: Iterable[Finished]) -> Iterator[PartialField]:
    for path, value, partial in finished:
        if path:  # an empty path is the whole answer
            yield PartialField(path, copied(value), partial)


def valid_value(answer: FillResult[Any], value: Callable[[str], T]) -> T:
    """Return the value of an answer; raise InvalidAnswerError if `value` raises ValueError."""
    try:
        return value(answer.text)
    except ValueError as error:
        message = f"the answer is not valid: {error}: {answer.text:.500}"
        raise InvalidAnswerError(message, answer) from error


def whole_answer(writing: Generation, seconds: float = 0.0) -> FillResult[Any]:
    """Return a generated answer without its value; raise FillError if a limit truncated it."""
    stats = writing.stats
    filled: FillResult[Any] = FillResult(
        text=writing.text,
        value=None,
        spans=tuple([each for each in writing.choices.values() if each.kind == "enum"]),
        tokens=writing.tokens,
        complete=writing.finish_reason == "end",
        forward_passes=-1 if stats is None else stats.passes_after_prompt,
        seconds=seconds,
        stats=stats,
        choices=writing.choices,
    )
    if filled.complete:
        return filled
    if writing.finish_reason == "context_full":
        full = ContextFullError("the context is full: shorten the prompt or raise n_ctx")
        raise FillError(f"the answer has not ended: {full}", filled) from full
    length = f"the answer has not ended after {len(writing.tokens)} tokens"
    steps = "raise max_tokens, limit the strings and lists of the schema"
    if writing.args.on_limit == "error":
        raise FillError(f'{length}: {steps}, or pass on_limit="close"', filled)
    masks: Any = writing.args.constraint
    whole = masks.close(writing.tokens) if writing.finish_reason == "length" else None
    if whole is None:
        tried = 'and on_limit="close" found no short ending'
        raise FillError(f"{length}, {tried}: {steps}", filled)
    return replace(filled, tokens=whole[0], text=whole[1], complete=True, is_closed=True)
