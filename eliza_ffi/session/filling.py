"""Fill a skeleton, an answer in which fixed text alternates with spans that the model writes.

A run opens a stream, prefills the prompt, calls the library once per span, and closes the stream.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..errors import (
    ContextFullError,
    ElizaError,
    FillError,
    GenerationCancelledError,
    InvalidArgumentError,
    NativeFaultError,
)
from ..library.protocol import SpanResult
from ..structured.fill_result import FilledSpan, FillResult
from ..structured.placed_span import PlacedSpan, Script
from .requests import Request
from .run import Run


class Filling:
    """The filling of a skeleton for a request; `run` is the run that it is a part of."""

    def __init__(self, run: Run[Any], args: Request) -> None:
        self._run, self._binding = run, run.binding
        self._skeleton: Any = args.constraint
        self._sampling = args.span_sampling
        self.args = args
        self._is_healing = args.heal_prompt  # True until the first span has been written
        self._text = ""
        # All tokens since the prompt, except those of fixed text that the library still holds back,
        # and the number of bytes of each (empty if the library does not report it).
        self._tokens: tuple[int, ...] = ()
        self._token_bytes: tuple[int, ...] = ()
        self._first_token_at = 0  # the byte of the text
        self._filled: list[tuple[FilledSpan, int]] = []  # each with the byte at which it begins
        self._end_of_last = 0  # value, in characters

    def steps(self) -> Generator[FilledSpan | FillResult[Any], None, None]:
        """Fill the skeleton: yield each span, then the result.

        If the library fails on a span, or `max_tokens` is reached, the FillError has the partial
        answer.
        """
        self._begin = time.perf_counter()
        args = self.args
        config = replace(args, max_tokens=0, temperature=0.0)
        sampling = None if args.sampling is None else args.sampling.to_json()
        with self._run.opened(config, args.prompt_tokens, sampling) as self._stream:
            script = self._skeleton.script()
            placed: PlacedSpan | None = next(script)
            while placed is not None:
                self._run.check()
                following = _next_span(script, self._fill_checked(placed))
                result = None if following is not None else self._result(complete=True)
                if not placed.is_literal:
                    yield from self._spans(self._filled[-1:])
                placed = following
        assert result is not None
        yield result

    def _result(self, complete: bool = False) -> FillResult[Any]:
        """Return the answer so far."""
        value = stats = None
        if complete:
            with suppress(InvalidArgumentError):
                value = self._skeleton.parse(self._text)
        if self._binding.supports("stats"):
            with suppress(ElizaError):  # report the error that ended the answer
                stats = self._binding.stats(self._stream)
        return FillResult(
            text=self._text,
            value=value,
            spans=self._spans(self._filled),
            tokens=self._tokens,
            complete=complete,
            forward_passes=-1 if stats is None else stats.passes_after_prompt,
            seconds=time.perf_counter() - self._begin,
            stats=stats,
        )

    def _fill_checked(self, placed: PlacedSpan) -> tuple[str, str]:
        """Write a span; after a failure, raise a FillError with the span and the partial answer."""
        try:
            filled = self._fill(placed)
        except GenerationCancelledError:
            raise
        except ElizaError as error:
            name = "" if placed.span.key is None else f", {placed.span.key!r}"
            message = f"filling span {placed.index}{name}: {error}"
            raise FillError(message, self._result()) from error
        most = self.args.max_tokens
        is_cut = bool(self._filled) and self._filled[-1][0].truncated
        is_long = most and (len(self._tokens) > most or is_cut)
        if is_long and self.args.on_limit == "error":
            raise FillError(
                f"the answer has not ended within max_tokens={most}: raise max_tokens, or pass "
                f'on_limit="close"',
                self._result(),
            )
        if self._is_healing and self._token_bytes:
            # Healing may have replaced the prompt's last token by a longer or a shorter one.
            self._first_token_at = len(self._text.encode()) - sum(self._token_bytes)
        self._is_healing = False
        return filled

    def _fill(self, placed: PlacedSpan) -> tuple[str, str]:
        """Write a span and the fixed text around it; return its text and the text after it."""
        if placed.is_literal:
            return "", self._write_fixed(placed.before, placed.follow)
        # Choose the text after a value in a separate request only if the value's end is clear
        # without that text: for a choice in which no label is a prefix of another. The last token
        # of a free value may also contain the beginning of the text after it.
        is_apart = placed.texts is not None and placed.ends_itself
        together = bool(placed.follow) and not is_apart
        request = placed.request_with_follow() if together else placed.request()
        args, sampling = self.args, self._sampling
        if args.sampler_plan is not None:
            sampling = args.sampler_plan.sampling(placed.index, placed.span.kind, sampling)
        fixed = {"before": placed.before, "after": placed.after}
        room = max(args.max_tokens - len(self._tokens), 1) if args.max_tokens else 0
        options = {"max_tokens": room, "logprobs": args.logprobs is not None}
        result = self._call({**fixed, **request, **sampling.request(), **options})
        if result.truncated and placed.span.rule is not None:
            raise InvalidArgumentError(
                f"the text of the rule {placed.span.rule!r} has not ended within max_tokens="
                f"{args.max_tokens}, and a rule cannot be closed automatically: raise max_tokens"
            )
        follow = placed.after
        if together:
            follow = next((text for text in placed.follow if result.text.endswith(text)), "")
        text = result.text.removesuffix(follow) if together else result.text
        self._text += placed.before
        self._write_value(placed, text, result)
        if placed.follow and not together:
            follow = self._write_fixed("", placed.follow)
        else:
            self._text += follow
        return text, follow

    def _write_fixed(self, before: str, follow: tuple[str, ...]) -> str:
        """Write fixed text, then let the model choose one of the strings in `follow`."""
        request: dict[str, Any] = {"before": before}
        if follow:
            request["choices"] = list(follow)
        result = self._call(request)
        self._text += before + result.text
        return result.text

    def _call(self, request: dict[str, Any]) -> SpanResult:
        if self._is_healing and not self._text:
            request = {**request, "heal": True}
        try:
            result = self._binding.fill(self._stream, request)
        except ContextFullError as error:
            if error.partial is not None:
                partial = error.partial
                self._tokens, self._token_bytes = partial.answer_tokens, partial.answer_bytes
                # If no value was written, the library has removed the fixed text before it, too.
                if partial.text:
                    self._text += request.get("before", "") + partial.text
            raise
        self._tokens, self._token_bytes = result.answer_tokens, result.answer_bytes
        return result

    def _write_value(self, placed: PlacedSpan, text: str, result: SpanResult) -> None:
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
            before=self._text[self._end_of_last :],
            text=text,
            value=value,
            logprob=result.logprob,
            tokens=(),
            truncated=result.truncated,
        )
        self._filled.append((filled, len(self._text.encode())))
        self._text += text
        self._end_of_last = len(self._text)

    def _spans(self, filled: Sequence[tuple[FilledSpan, int]]) -> tuple[FilledSpan, ...]:
        """Return spans with their tokens."""
        starts, found = list(accumulate(self._token_bytes, initial=self._first_token_at)), []
        for span, start in filled:
            end = start + len(span.text.encode())
            inside = slice(bisect_left(starts, start), bisect_left(starts, end))
            found.append(replace(span, tokens=self._tokens[inside]))
        return tuple(found)


def _next_span(script: Script, filled: tuple[str, str]) -> PlacedSpan | None:
    try:
        return script.send(filled)
    except StopIteration:
        return None
