"""What filling a skeleton comes to, and how it is put together while it is written."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from ..checks import short_repr
from ..errors import InvalidArgumentError, NativeFault
from ..library.protocol import SpanResult, StreamStats
from .placed_span import PlacedSpan

__all__ = ["AnswerWriter", "FillResult", "SpanFill"]


@dataclass(frozen=True)
class SpanFill:
    """A span that has been filled.

    Attributes
    ----------
    index : int
        Its place in the skeleton, from 0.
    key : str or None
    kind : str
    before : str
        The known text between the value before and this one.
    text : str
        The value as it is written.
    value : Any
        What the text stands for. Of a pattern or rule that is not JSON, the text.
    logprob : float or None
        Natural logarithm of the value's probability among the legal values, token by token. None
        for free values, unless asked for. That of a free value which optional parameters may
        follow includes what follows.
    tokens : tuple of int
        The tokens that begin inside the value. One that begins in the text before it, as with a
        quote and what follows, belongs to that text. Empty where the library does not tell.
    truncated : bool
        Whether the value was brought to its end because of `max_tokens`.
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

    def __repr__(self) -> str:
        name = self.index if self.key is None else self.key
        end = ", truncated" if self.truncated else ""
        return f"SpanFill({name!r}, {self.kind}, {short_repr(self.value)}{end})"


@dataclass(frozen=True)
class FillResult:
    """A filled skeleton.

    Attributes
    ----------
    text : str
        The whole answer.
    value : Any
        Its value; None if it is not JSON as a whole, or not complete.
    spans : tuple of SpanFill
        In the order they were written; literals are not among them.
    tokens : tuple of int
        Of the whole answer.
    complete : bool
        False in the `partial` result of an error.
    forward_passes : int
        Passes through the model beyond those of the prompt; -1 if the library does not count.
    elapsed : float
        Seconds from the prompt's tokens to the answer, prefill included.
    stats : StreamStats or None
    """

    text: str
    value: Any
    spans: tuple[SpanFill, ...]
    tokens: tuple[int, ...]
    complete: bool
    forward_passes: int
    elapsed: float
    stats: StreamStats | None

    @property
    def truncated(self) -> bool:
        """Whether any value was brought to its end because of `max_tokens`."""
        return any(span.truncated for span in self.spans)

    @property
    def fields(self) -> dict[str, Any]:
        """The values of the spans that have a key."""
        return {span.key: span.value for span in self.spans if span.key is not None}

    def __repr__(self) -> str:
        return self._described(self.text)

    def _described(self, content: object) -> str:
        end = ", truncated" if self.truncated else "" if self.complete else ", incomplete"
        return f"{type(self).__name__}({short_repr(content)}, {len(self.tokens)} tokens{end})"


class AnswerWriter:
    """An answer as it is written.

    Attributes
    ----------
    text : str
    tokens : tuple of int
        What the library has written so far. Known text that it still holds back is not in it.
    """

    def __init__(self) -> None:
        self.text = ""
        self.tokens: tuple[int, ...] = ()
        self._token_bytes: tuple[int, ...] = ()
        self._first_token_at = 0
        self._filled: list[tuple[SpanFill, int]] = []
        self._end_of_last = 0

    def write(self, known: str) -> None:
        """Add a known text."""
        self.text += known

    def take_tokens(self, tokens: tuple[int, ...], token_bytes: tuple[int, ...]) -> None:
        """Take all tokens since the prompt, in place of those taken before.

        Parameters
        ----------
        tokens
        token_bytes
            How many bytes each of them spells; empty where the library does not tell.
        """
        self.tokens = tokens
        self._token_bytes = token_bytes

    def align(self) -> None:
        """Find where the tokens begin, now that they end where the text does.

        Behind a healed prompt that may be inside the answer, whose first bytes then end the token
        that took the place of the prompt's last one; or in front of it, where that token became
        shorter.
        """
        if self._token_bytes:
            self._first_token_at = len(self.text.encode()) - sum(self._token_bytes)

    def write_value(self, placed: PlacedSpan, text: str, result: SpanResult) -> None:
        """Add the value of a span.

        Raises
        ------
        NativeFault
            If the text is not a value that the span may have.
        """
        data = text.encode("utf-8", "surrogatepass")
        try:
            if len(data) not in placed.ends(data, 0):
                raise InvalidArgumentError("not a legal value")
            value = placed.value(text)
        except InvalidArgumentError as error:
            raise NativeFault(
                f"the library wrote {text!r:.200} for a span of kind {placed.span.kind}: {error}"
            ) from None
        filled = SpanFill(
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
        """Whether a limit has ended the last value."""
        return bool(self._filled) and self._filled[-1][0].truncated

    def spans(self) -> tuple[SpanFill, ...]:
        """Return the spans filled so far."""
        starts = self._token_starts()
        return tuple(self._with_tokens(filled, start, starts) for filled, start in self._filled)

    def last_span(self) -> SpanFill:
        """Return the span filled last."""
        filled, start = self._filled[-1]
        return self._with_tokens(filled, start, self._token_starts())

    def _token_starts(self) -> list[int]:
        """Return at which byte each token begins, and at last where the last one ends."""
        return list(accumulate(self._token_bytes, initial=self._first_token_at))

    def _with_tokens(self, filled: SpanFill, start: int, token_starts: list[int]) -> SpanFill:
        end = start + len(filled.text.encode())
        inside = slice(bisect_left(token_starts, start), bisect_left(token_starts, end))
        return replace(filled, tokens=self.tokens[inside])
