"""The result of filling a skeleton, and the object that collects it span by span."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from ..checks import short_repr
from ..errors import InvalidArgumentError, NativeFaultError
from ..library.protocol import SpanResult, StreamStats
from .placed_span import PlacedSpan


@dataclass(frozen=True)
class FilledSpan:
    """A filled span.

    Attributes
    ----------
    index : int
        The index of the span in the skeleton, from 0.
    key : str or None
    kind : str
    before : str
        The fixed text between the previous value and this one.
    text : str
        The text of the value in the answer.
    value : Any
        The value that the text spells. If a rule matched text that is not JSON, this is
        the text itself.
    logprob : float or None
        Natural logarithm of the value's probability among the allowed values, computed token by
        token. None for free values unless log-probabilities were requested. If optional parameters
        of an action may follow a free value, the log-probability also covers the text after it.
    tokens : tuple of int
        The tokens that begin inside the value. A token that begins in the fixed text before it,
        such as a quote together with the first letters, is not included. Empty if the library does
        not report tokens.
    truncated : bool
        Whether `max_tokens` was reached and the value was closed early.
    """

    index: int
    key: str | None
    kind: str
    before: str
    text: str
    value: Any
    logprob: float | None
    tokens: tuple[int, ...]
    truncated: bool

    @property
    def probability(self) -> float | None:
        """The probability that belongs to `logprob`."""
        return None if self.logprob is None else math.exp(self.logprob)

    def __repr__(self) -> str:
        name = self.index if self.key is None else self.key
        end = ", truncated" if self.truncated else ""
        return f"FilledSpan({name!r}, {self.kind}, {short_repr(self.value)}{end})"


@dataclass(frozen=True)
class FillResult:
    """A filled skeleton.

    Attributes
    ----------
    text : str
        The whole answer.
    value : Any
        The value of the answer as JSON. None if the answer is not JSON or not complete.
    spans : tuple of FilledSpan
        The filled spans in the order in which they were written, without literals.
    tokens : tuple of int
        The tokens of the whole answer.
    complete : bool
        False in the `partial` result of an error.
    forward_passes : int
        Forward passes after the prompt; -1 if the library does not count them.
    seconds : float
        Seconds from the tokenized prompt to the finished answer, prefill included.
    stats : StreamStats or None
    reasoning : str or None
        What the model wrote before the answer; None without ``think=``.
    """

    text: str
    value: Any
    spans: tuple[FilledSpan, ...]
    tokens: tuple[int, ...]
    complete: bool
    forward_passes: int
    seconds: float
    stats: StreamStats | None
    reasoning: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether `max_tokens` was reached and a value was closed early."""
        return any(span.truncated for span in self.spans)

    @property
    def fields(self) -> dict[str, Any]:
        """The values of the spans that have a key, by key."""
        return {span.key: span.value for span in self.spans if span.key is not None}

    def __repr__(self) -> str:
        return self._described(self.text)

    def _described(self, content: object) -> str:
        end = ", truncated" if self.truncated else "" if self.complete else ", incomplete"
        return f"{type(self).__name__}({short_repr(content)}, {len(self.tokens)} tokens{end})"


class AnswerWriter:
    """Collects the text, the tokens and the spans of an answer while it is written.

    Fixed text that the library still holds back is not included in `tokens`.
    """

    def __init__(self) -> None:
        self.text = ""
        self.tokens: tuple[int, ...] = ()
        self._token_bytes: tuple[int, ...] = ()
        self._first_token_at = 0
        self._filled: list[tuple[FilledSpan, int]] = []
        self._end_of_last = 0

    def write(self, fixed: str) -> None:
        """Append fixed text."""
        self.text += fixed

    def take_tokens(self, tokens: tuple[int, ...], token_bytes: tuple[int, ...]) -> None:
        """Replace the tokens of the answer, and the number of bytes that each of them spells.

        `tokens` are all tokens since the prompt. `token_bytes` is empty if the library does not
        report it.
        """
        self.tokens = tokens
        self._token_bytes = token_bytes

    def align(self) -> None:
        """Compute the byte at which the first token begins. The last token must end with the text.

        Prompt healing may replace the prompt's last token. If the new token is longer, it also
        spells the first bytes of the answer, and the first token begins inside the answer. If the
        new token is shorter, the first token begins before the answer.
        """
        if self._token_bytes:
            self._first_token_at = len(self.text.encode()) - sum(self._token_bytes)

    def write_value(self, placed: PlacedSpan, text: str, result: SpanResult) -> None:
        """Append the value of a span; raise NativeFaultError if the span does not allow it."""
        try:
            if len(text) not in placed.ends(text, 0):
                raise InvalidArgumentError("the span does not allow this text")
            value = placed.value(text)
        except InvalidArgumentError as error:
            raise NativeFaultError(
                f"the library wrote {text!r:.200} for a span of kind {placed.span.kind}: {error}"
            ) from None
        filled = FilledSpan(
            index=placed.index,
            key=placed.span.key,
            kind=placed.span.kind,
            before=self.text[self._end_of_last :],
            text=text,
            value=value,
            logprob=result.logprob,
            tokens=(),
            truncated=result.truncated,
        )
        self._filled.append((filled, len(self.text.encode())))
        self.text += text
        self._end_of_last = len(self.text)

    @property
    def is_truncated(self) -> bool:
        """Whether the last value is truncated."""
        return bool(self._filled) and self._filled[-1][0].truncated

    def spans(self) -> tuple[FilledSpan, ...]:
        """Return the spans filled so far."""
        starts = self._token_starts()
        return tuple(self._with_tokens(filled, start, starts) for filled, start in self._filled)

    def last_span(self) -> FilledSpan:
        """Return the most recently filled span."""
        filled, start = self._filled[-1]
        return self._with_tokens(filled, start, self._token_starts())

    def _token_starts(self) -> list[int]:
        """Return the byte offset at which each token begins, and the end of the last token."""
        return list(accumulate(self._token_bytes, initial=self._first_token_at))

    def _with_tokens(self, filled: FilledSpan, start: int, token_starts: list[int]) -> FilledSpan:
        end = start + len(filled.text.encode())
        inside = slice(bisect_left(token_starts, start), bisect_left(token_starts, end))
        return replace(filled, tokens=self.tokens[inside])
