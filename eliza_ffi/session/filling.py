"""Fill a skeleton, an answer in which fixed text alternates with spans that the model writes.

A run opens a stream, prefills the prompt, calls the library once per span, and closes the stream.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..errors import (
    ContextFullError,
    ElizaError,
    FillError,
    GenerationCancelledError,
    InvalidArgumentError,
)
from ..library.protocol import SpanResult, StreamStats
from ..structured.fill_result import AnswerWriter, FilledSpan, FillResult
from ..structured.placed_span import Filled, PlacedSpan, Script
from .requests import Request
from .run import Run


class Filling:
    """The filling of a skeleton for a request; `run` is the run that it is a part of."""

    def __init__(self, run: Run[Any], args: Request) -> None:
        self._run, self._binding = run, run.binding
        self._skeleton: Any = args.constraint
        self._sampling = args.span_sampling
        self.args = args
        self._answer = AnswerWriter()
        self._is_healing = args.heal_prompt  # True until the first span has been written
        self._complete = False
        self._stats: StreamStats | None = None
        self._seconds = 0.0

    def steps(self) -> Generator[FilledSpan | FillResult[Any], None, None]:
        """Fill the skeleton: yield each span, then the result.

        If the library fails on a span, or `max_tokens` is reached, the FillError has the partial
        answer.
        """
        begin = time.perf_counter()
        args = self.args
        config = replace(args, max_tokens=0, temperature=0.0)
        sampling = None if args.sampling is None else args.sampling.to_json()
        with self._run.opened(config, args.prompt_tokens, sampling) as stream:
            script = self._skeleton.script()
            placed: PlacedSpan | None = next(script)
            while placed is not None:
                self._run.check()
                filled = self._fill_checked(stream, placed, begin)
                following = _next_span(script, filled)
                if following is None:
                    self._read_counts(stream, begin)
                    self._check_length(stream, begin)
                    self._complete = True
                if not placed.is_literal:
                    yield self._answer.last_span()
                placed = following
        yield self.result()

    def result(self) -> FillResult[Any]:
        """Return the answer so far; it is complete after the last step."""
        answer, stats = self._answer, self._stats
        value = None
        if self._complete:
            with suppress(InvalidArgumentError):
                value = self._skeleton.parse(answer.text)
        return FillResult(
            text=answer.text,
            value=value,
            spans=answer.spans(),
            tokens=answer.tokens,
            complete=self._complete,
            forward_passes=-1 if stats is None else stats.passes_after_prompt,
            seconds=self._seconds,
            stats=stats,
        )

    def _read_counts(self, stream: Any, begin: float) -> None:
        self._seconds = time.perf_counter() - begin
        if self._binding.supports("stats"):
            self._stats = self._binding.stats(stream)

    def _fill_checked(self, stream: Any, placed: PlacedSpan, begin: float) -> Filled:
        """Write a span; after a failure, raise a FillError with the span and the partial answer."""
        try:
            filled = self._fill(stream, placed)
            self._check_length(stream, begin)
        except (FillError, GenerationCancelledError):
            raise
        except ElizaError as error:
            with suppress(ElizaError):  # report the first error
                self._read_counts(stream, begin)
            name = "" if placed.span.key is None else f", {placed.span.key!r}"
            raise FillError(f"filling span {placed.index}{name}: {error}", self.result()) from error
        if self._is_healing:
            self._answer.align()
            self._is_healing = False
        return filled

    def _check_length(self, stream: Any, begin: float) -> None:
        """Raise FillError if the answer does not end within `max_tokens`."""
        most, n_tokens = self.args.max_tokens, len(self._answer.tokens)
        if self.args.on_limit == "close" or not most:
            return
        if n_tokens > most or self._answer.is_truncated:
            with suppress(ElizaError):
                self._read_counts(stream, begin)
            raise FillError(
                f"the answer has not ended within max_tokens={most}: raise max_tokens, or pass "
                f'on_limit="close"',
                self.result(),
            )

    def _room(self) -> int:
        """Return how many more tokens a free value may have; 0 = no limit."""
        most = self.args.max_tokens
        return max(most - len(self._answer.tokens), 1) if most else 0

    def _fill(self, stream: Any, placed: PlacedSpan) -> Filled:
        """Write a span and the fixed text around it."""
        if placed.is_literal:
            return Filled("", self._write_fixed(stream, placed.before, placed.follow))
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
        options = {"max_tokens": self._room(), "logprobs": args.logprobs is not None}
        result = self._call(stream, {**fixed, **request, **sampling.request(), **options})
        if result.truncated and placed.span.rule is not None:
            raise InvalidArgumentError(
                f"the text of the rule {placed.span.rule!r} has not ended within max_tokens="
                f"{args.max_tokens}, and a rule cannot be closed automatically: raise max_tokens"
            )
        follow = placed.after
        if together:
            follow = next((text for text in placed.follow if result.text.endswith(text)), "")
        text = result.text.removesuffix(follow) if together else result.text
        self._answer.write(placed.before)
        self._answer.write_value(placed, text, result)
        if placed.follow and not together:
            follow = self._write_fixed(stream, "", placed.follow)
        else:
            self._answer.write(follow)
        return Filled(text, follow)

    def _write_fixed(self, stream: Any, before: str, follow: tuple[str, ...]) -> str:
        """Write fixed text, then let the model choose one of the strings in `follow`."""
        request: dict[str, Any] = {"before": before}
        if follow:
            request["choices"] = list(follow)
        result = self._call(stream, request)
        self._answer.write(before + result.text)
        return result.text

    def _call(self, stream: Any, request: dict[str, Any]) -> SpanResult:
        if self._is_healing and not self._answer.text:
            request = {**request, "heal": True}
        try:
            result = self._binding.fill(stream, request)
        except ContextFullError as error:
            if error.partial is not None:
                partial = error.partial
                self._answer.take_tokens(partial.answer_tokens, partial.answer_bytes)
                # If no value was written, the library has removed the fixed text before it, too.
                if partial.text:
                    self._answer.write(request.get("before", "") + partial.text)
            raise
        self._answer.take_tokens(result.answer_tokens, result.answer_bytes)
        return result


def _next_span(script: Script, filled: Filled) -> PlacedSpan | None:
    try:
        return script.send(filled)
    except StopIteration:
        return None
