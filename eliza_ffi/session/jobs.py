"""Prepare the requests of Model and AsyncModel, which then run or await them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..chat.thinking import WrittenReasoning
from ..checks import check_each, check_whole, wrong
from ..choices.label_set import ChoiceResult, LabelSet, as_label_set
from ..choices.rank_result import RankResult
from ..errors import InvalidAnswerError, InvalidArgumentError, NotSupportedError
from ..library.binding import EotScore
from ..library.protocol import StreamConfig, StreamStep, Tokens
from ..structured.fill_result import FilledSpan, FillResult
from ..structured.shape import is_shape
from ..structured.shaped_result import PartialField, StructuredResult
from .filling import FillRequest, FillRun
from .generation import GenerationRun
from .lifecycle import Current, Lifecycle, Work
from .options import AnyPrompt, CacheOptions, RankSettings
from .ranking import RankRequest, RankRun, rank_request
from .reading import Reading
from .request import MOST_LOGPROBS, AnswerStep, GenerationRequest, RunResult, TextChoices
from .requests import (
    GenerationResult,
    ReasoningPiece,
    ShapeRequest,
    TextPiece,
    TokenLogprob,
    check_keywords,
    checked_cache,
    checked_tokens,
    choice_of,
    choice_request,
    fill_request,
    generate_request,
    generation_of,
    prompt_tokens,
    searches_spellings,
    shape_request,
    token_logprobs,
)
from .session import Session
from .thinking import generation_in, thinking_work
from .tool_calls import (
    CallPiece,
    TextAnswer,
    ToolCall,
    ToolCalls,
    ToolRequest,
    ToolRun,
    tool_request,
)

__all__ = ["STEPS", "Jobs"]

R = TypeVar("R")

STEPS = (str, FilledSpan, PartialField)
"""The types of the steps that come before the result of a request."""


class Jobs:
    """Makes the requests of one model.

    Each method checks its arguments, tokenizes the prompt and returns the request. This can take a
    long time, so code on an event loop should call these methods on a thread.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def text(
        self,
        prompt: AnyPrompt,
        *,
        method: str,
        with_steps: bool | None = None,
        reasoning: WrittenReasoning | None = None,
        **settings: Any,
    ) -> Work[str | GenerationResult]:
        """Return a request that generates text; parameters as :meth:`~eliza_ffi.Model.generate`.

        Parameters
        ----------
        method
            The name of the public method, for error messages.
        with_steps
            Whether to yield the pieces of text before the result; None = only if the request has a
            callback for them.
        reasoning
            How the model writes reasoning; None = do not separate it from the text.
        """
        request = generate_request(self.session, prompt, method=method, **settings)
        is_read_slowly = False
        if reasoning is not None:
            request = replace(request, reasoning=reasoning)
            # A text of many tokens does not say where its control tokens are.
            is_read_slowly = bool(reasoning.control or request.stop)
        with_text = request.on_text is not None if with_steps is None else with_steps
        begin = partial(self._pieces, with_text)
        return self._work(request, begin, at_once=not with_text and not is_read_slowly)

    def _pieces(self, with_text: bool) -> Callable[[Any], Iterator[str | GenerationResult]]:
        """Return a function that turns the steps of a run into pieces of text and a result.

        The pieces have log-probabilities.
        """
        waiting: list[TokenLogprob] = []
        session = self.session

        def take(step: StreamStep | RunResult) -> Iterator[str | GenerationResult]:
            if isinstance(step, RunResult):
                yield generation_of(session, step)
                return
            if not with_text:
                return
            if step.logprobs is not None:
                waiting.extend(token_logprobs(session, step.logprobs))
            thought = step.reasoning if isinstance(step, AnswerStep) else ""
            for piece in (ReasoningPiece(thought), TextPiece(step.text)):
                if piece:
                    if step.logprobs is not None:
                        piece.logprobs = tuple(waiting)
                        waiting.clear()
                    yield piece

        return take

    def choice(
        self, prompt: AnyPrompt, labels: Any, *, method: str, think: int = 0, **settings: Any
    ) -> Work[str | ChoiceResult[Any]]:
        """Return a request that chooses a label; parameters as :meth:`~eliza_ffi.Model.choose`."""
        label_set: LabelSet[Any] = as_label_set(labels)
        if check_whole("think", think, 0):  # the label will not follow the prompt directly
            prompt = prompt_tokens(self.session, prompt)
        request = choice_request(self.session, prompt, label_set, method=method, **settings)
        with_text = request.on_text is not None

        def work(request: GenerationRequest) -> Work[str | ChoiceResult[Any]]:
            if searches_spellings(request):
                return self._choice_by_search(request, label_set)

            def take() -> Callable[[Any], Iterator[str | ChoiceResult[Any]]]:
                begin = time.perf_counter()
                return _texts(
                    with_text,
                    lambda end: choice_of(label_set, request, end, time.perf_counter() - begin),
                    request.lead,
                )

            return self._work(request, take, at_once=not with_text)

        return thinking_work(self.session, request, think, work, settings.get("sampling"))

    def _choice_by_search(
        self, request: GenerationRequest, labels: LabelSet[Any]
    ) -> Work[str | ChoiceResult[Any]]:
        assert isinstance(request.constraint, TextChoices)
        ranking = RankRequest(request, labels, request.constraint, k=1)
        make = partial(RankRun, self.session.binding, self.session.ctx, ranking)

        def steps(run: RankRun) -> Generator[str | ChoiceResult[Any], None, None]:
            for result in run.choice_steps():
                if request.on_text is not None:
                    yield result.text
                yield result

        return Work(make, steps, slot_id=generation_in(request).slot_id)

    def ranking(
        self, prompt: AnyPrompt, labels: Any, *, method: str, think: int = 0, **settings: Any
    ) -> Work[RankResult[Any]]:
        """Return a request that ranks labels; parameters as :meth:`~eliza_ffi.Model.rank`."""
        check_keywords(method, settings, set(RankSettings.__annotations__))
        session = self.session
        if check_whole("think", think, 0):
            prompt = prompt_tokens(session, prompt)
        request = rank_request(session, prompt, as_label_set(labels), **settings)

        def work(request: RankRequest) -> Work[RankResult[Any]]:
            make = partial(RankRun, session.binding, session.ctx, request)
            return Work(make, RankRun.steps, slot_id=generation_in(request).slot_id)

        return thinking_work(self.session, request, think, work)

    def fill(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        method: str,
        with_steps: bool,
        think: int = 0,
        **settings: Any,
    ) -> Work[FilledSpan | PartialField | FillResult]:
        """Return a request that generates a structured answer, as :meth:`~eliza_ffi.Model.fill`.

        `with_steps` says whether to yield the spans or fields before the result.
        """
        if is_shape(shape):
            shaped = shape_request(self.session, prompt, shape, method=method, **settings)
            work_of = partial(self._shape, with_steps=with_steps)
            return thinking_work(self.session, shaped, think, work_of)
        request = fill_request(self.session, prompt, shape, method=method, **settings)
        is_json_form = isinstance(shape, Mapping)

        def take(step: FilledSpan | FillResult) -> Iterator[FilledSpan | FillResult]:
            if isinstance(step, FillResult):
                yield StructuredResult.of(step) if is_json_form else step
            elif with_steps:
                yield step

        def work(request: FillRequest) -> Work[FilledSpan | PartialField | FillResult]:
            return self._work(request, lambda: take)

        return thinking_work(self.session, request, think, work)

    def _shape(
        self, request: ShapeRequest, with_steps: bool
    ) -> Work[FilledSpan | PartialField | FillResult]:
        def steps(current: Current) -> Generator[PartialField | StructuredResult[Any], None, None]:
            latest = request
            while True:
                try:
                    take = Reading(latest.shape, with_steps).take
                    with closing(_run_steps(current.run)) as running:
                        for step in running:
                            yield from take(step)
                    return
                except InvalidAnswerError:
                    if not latest.retries:
                        raise
                latest = latest.again()
                current.follow(self._begin(latest.args))

        return Work(
            lambda: Current(self._begin(request.args)),
            steps,
            slot_id=generation_in(request).slot_id,
        )

    def tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any],
        *,
        think: int = 0,
        with_steps: bool = False,
        ends_at_limit: bool = False,
        **settings: Any,
    ) -> Work[str | CallPiece | ToolCall | ToolCalls | TextAnswer]:
        """Return a request for tool calls; parameters as :meth:`~eliza_ffi.Model.call_tools`.

        `with_steps` and `ends_at_limit` are as in :class:`~eliza_ffi.session.tool_calls.ToolRun`.
        """
        request = tool_request(self.session, messages, tools, choice, **settings)

        def work(request: ToolRequest) -> Work[str | CallPiece | ToolCall | ToolCalls | TextAnswer]:
            make = partial(ToolRun, request, self._begin, _run_steps, with_steps, ends_at_limit)
            return Work(make, ToolRun.steps, slot_id=generation_in(request).slot_id)

        return thinking_work(self.session, request, think, work, settings.get("sampling"))

    def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> Work[EotScore]:
        """Return a request that scores a turn's end, as :meth:`~eliza_ffi.Model.end_of_turn`."""
        session = self.session
        if isinstance(prompt, str | Prompt):
            prompt = session.prompt_tokens(prompt)
        prompt = checked_tokens(prompt)
        if isinstance(end, str):
            tokens = session.tokenize(end, parse_special=True)
            if len(tokens) != 1:
                raise InvalidArgumentError(
                    f"end must be the text of a single token, got {end!r}, which has "
                    f"{len(tokens)} tokens"
                )
            (end,) = tokens
        check_whole("end", end, 0)
        score = partial(session.binding.eot_score, session.ctx, prompt, end)

        def steps(life: Lifecycle) -> Generator[EotScore, None, None]:
            life.check()
            yield score()

        make = partial(Lifecycle, session.binding, session.ctx, "scoring")
        return Work(make, steps)

    def prompt_logprobs(
        self, prompt: AnyPrompt, top: int, cache: CacheOptions | None
    ) -> Work[tuple[TokenLogprob, ...]]:
        """Return a request that scores a prompt, as :meth:`~eliza_ffi.Model.prompt_logprobs`."""
        session = self.session
        if not session.binding.supports("prefill_logprobs"):
            raise NotSupportedError(
                "this library cannot compute the log-probabilities of a prompt: it has no "
                "eliza_inference_llm_stream_prefill_logprobs"
            )
        check_whole("top", top, 0, MOST_LOGPROBS)
        request = generate_request(session, prompt, method="prompt_logprobs", cache=cache)
        tokens = request.prompt_tokens

        def steps(life: Lifecycle) -> Generator[tuple[TokenLogprob, ...], None, None]:
            with life.opened(request.config()) as stream:
                score = partial(session.binding.prefill_logprobs, stream, tokens, top)
                rows = life.run(score, len(tokens))
            yield token_logprobs(session, rows)

        make = partial(Lifecycle, session.binding, session.ctx, "scoring")
        return Work(make, steps, slot_id=request.slot_id)

    def hidden_states(
        self,
        prompt: AnyPrompt,
        layers: Sequence[int],
        n_rows: int,
        cache: CacheOptions | None,
        n_kept: int = 0,
    ) -> Work[NDArray[np.float32]]:
        """Return a request for hidden states, as :meth:`~eliza_ffi.Model.hidden_states`.

        The first `n_kept` tokens stay in the KV cache, even if the pass stops early.
        """
        session = self.session
        n_layers, n_embd = session.hidden_shape
        wanted = _checked_layers(layers, n_layers)
        check_whole("n_rows", n_rows, 1)
        request = generate_request(session, prompt, method="hidden_states", cache=cache)
        tokens = request.prompt_tokens
        if n_rows > len(tokens):
            raise InvalidArgumentError(
                f"n_rows: expected at most the prompt's {len(tokens)} tokens, got {n_rows}"
            )
        ascending = sorted(set(wanted))

        def steps(life: Lifecycle) -> Generator[NDArray[np.float32], None, None]:
            with life.opened(request.config()) as stream:
                read = partial(
                    session.binding.hidden_states, stream, tokens, ascending, n_rows, n_embd, n_kept
                )
                found = life.run(read, len(tokens))
            yield found[[ascending.index(layer) for layer in wanted]]

        make = partial(Lifecycle, session.binding, session.ctx, "hidden states")
        return Work(make, steps, slot_id=request.slot_id)

    def save(
        self, path: str | os.PathLike[str], prompt: AnyPrompt, cache: CacheOptions | None
    ) -> Work[int]:
        """Return a request that saves a prompt; see :meth:`~eliza_ffi.Model.save_prompt_cache`."""
        session = self.session
        request = generate_request(session, prompt, method="save_prompt_cache", cache=cache)

        def steps(life: Lifecycle) -> Generator[int, None, None]:
            with life.prefilled(request.config(), request.prompt_tokens) as stream:
                session.binding.save_slot(stream, path)
                n_saved = session.binding.stats(stream).n_past
            yield n_saved

        make = partial(Lifecycle, session.binding, session.ctx, "saving")
        return Work(make, steps, slot_id=generation_in(request).slot_id)

    def restore(self, path: str | os.PathLike[str], cache: CacheOptions | None) -> Work[int]:
        """Return a request that loads a prompt; see :meth:`~eliza_ffi.Model.load_prompt_cache`."""
        session = self.session
        options = checked_cache(cache) or CacheOptions()
        config = StreamConfig(
            slot_id=options.slot,
            prompt_cache_key=options.key,
            n_gpu_layers=session.n_gpu_layers,
            cache_type_k=options.type_k,
            cache_type_v=options.type_v,
        )

        def steps(life: Lifecycle) -> Generator[int, None, None]:
            with life.opened(config) as stream:
                session.binding.restore_slot(stream, path)
                n_restored = session.binding.stats(stream).n_past
            yield n_restored

        make = partial(Lifecycle, session.binding, session.ctx, "restoring")
        return Work(make, steps, slot_id=options.slot)

    def _work(
        self,
        request: GenerationRequest | FillRequest,
        begin: Callable[[], Callable[[Any], Iterator[R]]],
        *,
        at_once: bool = False,
    ) -> Work[R]:
        """Return a request that converts the steps of its runs.

        For each run, `begin` returns a function that converts one step to any number of steps.
        """

        def steps(run: Any) -> Generator[R, None, None]:
            take = begin()
            with closing(_run_steps(run)) as running:
                for step in running:
                    yield from take(step)

        make = partial(self._begin, request, at_once=at_once)
        return Work(make, steps, slot_id=generation_in(request).slot_id)

    def _begin(
        self, request: GenerationRequest | FillRequest, *, at_once: bool = False
    ) -> FillRun | GenerationRun:
        session = self.session
        if isinstance(request, FillRequest):
            return FillRun(session.binding, session.ctx, request)
        return GenerationRun(
            session.binding, session.ctx, request, session.warn_once, at_once=at_once
        )


def _run_steps(run: FillRun | GenerationRun) -> Generator[Any, None, None]:
    """Yield the steps of a run, then its result."""
    with closing(run.steps()) as steps:
        yield from steps
    yield run.result()


def _texts(
    with_text: bool, read: Callable[[RunResult], R], lead: str = ""
) -> Callable[[Any], Iterator[str | R]]:
    """Return a function that turns the steps of a run into pieces of text and a result.

    The pieces leave out `lead`, with which the text of the run begins.
    """
    n_left = len(lead)

    def take(step: StreamStep | RunResult) -> Iterator[str | R]:
        nonlocal n_left
        if isinstance(step, RunResult):
            yield read(step)
        elif with_text:
            text = step.text[n_left:]
            n_left -= len(step.text) - len(text)
            if text:
                yield text

    return take


def _checked_layers(layers: Sequence[int], n_layers: int) -> list[int]:
    """Check layers, and convert negative numbers, which count from the end."""
    found = []
    for i, layer in enumerate(check_each("layers", layers, int, "a whole number")):
        if not (1 <= layer <= n_layers or -n_layers <= layer <= -1):
            expected = f"a layer from 1 to {n_layers}, or from -{n_layers} to -1"
            raise wrong(f"layers[{i}]", expected, layer)
        found.append(layer if layer > 0 else n_layers + 1 + layer)
    if not found:
        raise InvalidArgumentError("layers: expected at least one layer, got none")
    return found
