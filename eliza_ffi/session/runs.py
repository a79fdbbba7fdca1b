"""The requests of Model and AsyncModel, which then run or await them.

Each function checks its arguments, tokenizes the prompt and returns a run. This can take a long
time, so code on an event loop should call these functions on a thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..chat.thinking import WrittenReasoning
from ..checks import check_each, check_file, check_one_of, check_path, check_whole, wrong
from ..choices.label_set import ChoiceResult, LabelSet, as_label_set
from ..choices.rank_result import RankResult
from ..errors import (
    ContextFullError,
    InvalidAnswerError,
    InvalidArgumentError,
    TokenTrieError,
)
from ..library.abi import PREFIX
from ..library.binding import EotScore
from ..library.protocol import (
    STOP_AT_LEAF,
    Hidden,
    PreparedChoices,
    StreamConfig,
    StreamStep,
    Tokens,
)
from ..structured.fill_result import FilledSpan, FillResult, PartialField
from ..structured.shape import Shape, is_shape
from .filling import Filling
from .generation import Generation
from .options import AnyPrompt, CacheOptions, RankSettings
from .ranking import LabelSearch, rank_request
from .reading import read_answer
from .requests import (
    MAX_LOGPROBS,
    Request,
    check_keywords,
    checked_cache,
    checked_tokens,
    choice_request,
    fill_request,
    generate_request,
    prompt_tokens,
    sampled_again,
    searches_spellings,
    shape_request,
)
from .results import (
    GenerationResult,
    ReasoningPiece,
    TextPiece,
    TokenLogprob,
    choice_of,
    chosen_label,
    generation_of,
    token_logprobs,
)
from .run import Run
from .session import Session
from .thinking import Thinking, checked_thinking, thinking_first
from .tool_calls import (
    CallPiece,
    TextAnswer,
    ToolCall,
    ToolCalls,
    tool_request,
)


def text_run(
    session: Session,
    prompt: AnyPrompt,
    /,
    *,
    method: str,
    with_steps: bool | None = None,
    reasoning: WrittenReasoning | Thinking | None = None,
    **settings: Any,
) -> Run[str | GenerationResult]:
    """Return the run that generates text; parameters as :meth:`~eliza_ffi.Model.generate`.

    Parameters
    ----------
    method
        The name of the public method, for error messages.
    with_steps
        Whether to yield the pieces of text before the result; None = only if the request has a
        callback for them.
    reasoning
        How the model writes reasoning, or the settings of reasoning before the text; None = do not
        separate reasoning from the text.
    """
    session.check_generates()
    request = generate_request(session, prompt, method=method, **settings)
    if request.masks is not None:
        _need(session, "set_forced_tokens")
    is_read_slowly = False
    if isinstance(reasoning, WrittenReasoning):
        request = replace(request, reasoning=reasoning)
        # A text of many tokens does not say where its control tokens are.
        is_read_slowly = bool(reasoning.control or request.stop)
    with_text = request.on_text is not None if with_steps is None else with_steps
    at_once = not with_text and not is_read_slowly

    def steps(run: Run[Any], request: Request) -> Generator[str | GenerationResult, None, None]:
        generation = Generation(run, request, session.warn_once, at_once=at_once)
        waiting: list[TokenLogprob] = []
        with closing(generation.steps()) as steps:
            for step in steps:
                if isinstance(step, Generation):
                    yield generation_of(session, step)
                elif with_text:
                    if step.logprobs is not None:
                        waiting.extend(token_logprobs(session, step.logprobs))
                    yield from _pieces(step, waiting)

    think = checked_thinking(reasoning) if isinstance(reasoning, Thinking) else None
    return thinking_first(session, request, think, steps, settings.get("sampling"))


def _need(session: Session, name: str) -> None:
    """Raise NotSupportedError, before the request waits, if the library lacks a function."""
    session.binding.library.need(f"{PREFIX}llm_stream_{name}")


def _pieces(step: StreamStep, waiting: list[TokenLogprob]) -> Iterator[TextPiece]:
    """Yield the text of a step; its first piece takes the log-probabilities that are waiting."""
    for piece in (ReasoningPiece(step.reasoning), TextPiece(step.text)):
        if piece:
            if step.logprobs is not None:
                piece.logprobs = tuple(waiting)
                waiting.clear()
            yield piece


def choice_run(
    session: Session,
    prompt: AnyPrompt,
    labels: Any,
    /,
    *,
    method: str,
    think: int | Thinking = 0,
    **settings: Any,
) -> Run[str | ChoiceResult[Any]]:
    """Return the run that chooses a label; parameters as :meth:`~eliza_ffi.Model.choose`."""
    session.check_generates()
    label_set: LabelSet[Any] = as_label_set(labels)
    thinking = checked_thinking(think)
    if thinking is not None:  # reasoning may begin at the end of the prompt's tokens
        prompt = prompt_tokens(session, prompt)
    request = choice_request(session, prompt, label_set, method=method, **settings)
    with_text = request.on_text is not None

    def steps(run: Run[Any], request: Request) -> Generator[str | ChoiceResult[Any], None, None]:
        chosen = None
        if isinstance(request.constraint, PreparedChoices):
            if not request.max_tokens:
                chosen = _chosen(run, request, request.constraint, label_set)
        elif searches_spellings(request):
            chosen = LabelSearch(run, request, label_set, k=1).choice()
        if chosen is not None:
            if with_text:
                yield chosen.text
            yield chosen
            return
        begin = time.perf_counter()
        n_left = len(request.lead)  # the text begins with it, but the label does not
        generation = Generation(run, request, session.warn_once, at_once=not with_text)
        with closing(generation.steps()) as steps:
            for step in steps:
                if isinstance(step, Generation):
                    yield choice_of(label_set, request, step, time.perf_counter() - begin)
                elif with_text:
                    text = step.text[n_left:]
                    n_left -= len(step.text) - len(text)
                    if text:
                        yield text

    return thinking_first(session, request, thinking, steps, settings.get("sampling"))


def _chosen(
    run: Run[Any], request: Request, choices: PreparedChoices, labels: LabelSet[Any]
) -> ChoiceResult[Any]:
    """Choose one of prepared labels in one call of the library."""
    begin = time.perf_counter()
    prompt, mode = request.prompt_tokens, request.choice_mode & ~STOP_AT_LEAF
    sampling = None if request.sampling is None else request.sampling.to_json()
    with run.opened(request, None, sampling) as stream:
        choose = partial(
            run.binding.choose, stream, prompt, choices, mode, scores=request.score_choices
        )
        try:
            found = run.call(choose, len(prompt) + choices.longest)
        except (ContextFullError, TokenTrieError) as error:
            run.name_label(error, (0, choices), (len(prompt), choices))
            raise
    seconds = time.perf_counter() - begin
    known = found.logprob, found.logprobs, found.tokens, found.stats
    return chosen_label(labels, request, found.index, *known, seconds)


def rank_run(
    session: Session,
    prompt: AnyPrompt,
    labels: Any,
    /,
    *,
    method: str,
    think: int | Thinking = 0,
    **settings: Any,
) -> Run[RankResult[Any]]:
    """Return the run that ranks labels; parameters as :meth:`~eliza_ffi.Model.rank`."""
    session.check_generates()
    _need(session, "rank")
    check_keywords(method, settings, set(RankSettings.__annotations__))
    thinking = checked_thinking(think)
    if thinking is not None:  # as in choice_run()
        prompt = prompt_tokens(session, prompt)
    request, search = rank_request(session, prompt, as_label_set(labels), **settings)

    def steps(run: Run[Any], request: Request) -> Generator[RankResult[Any], None, None]:
        yield search(run, request).result()

    return thinking_first(session, request, thinking, steps)


def fill_run(
    session: Session,
    prompt: AnyPrompt,
    schema: Any,
    /,
    *,
    method: str,
    with_steps: bool,
    think: int | Thinking = 0,
    **settings: Any,
) -> Run[FilledSpan | PartialField | FillResult[Any]]:
    """Return the run that generates a structured answer, as :meth:`~eliza_ffi.Model.fill`.

    `with_steps` says whether to yield the spans or fields before the result.
    """
    session.check_generates()
    thinking = checked_thinking(think)
    if thinking is not None:  # as in choice_run()
        prompt = prompt_tokens(session, prompt)
    if is_shape(schema):
        request, shape, retries = shape_request(session, prompt, schema, method=method, **settings)
        steps_of: Any = partial(_shape_steps, session, with_steps, shape, retries)
        return thinking_first(session, request, thinking, steps_of)
    _need(session, "fill")
    request = fill_request(session, prompt, schema, method=method, **settings)

    def steps(
        run: Run[Any], request: Request
    ) -> Generator[FilledSpan | FillResult[Any], None, None]:
        with closing(Filling(run, request).steps()) as steps:
            for step in steps:
                if with_steps or isinstance(step, FillResult):
                    yield step

    return thinking_first(session, request, thinking, steps)


def _shape_steps(
    session: Session,
    with_steps: bool,
    shape: Shape[Any],
    retries: int,
    run: Run[Any],
    request: Request,
) -> Generator[PartialField | FillResult[Any], None, None]:
    while True:
        try:
            writing = Generation(run, request, session.warn_once, at_once=not with_steps)
            yield from read_answer(writing, shape.value, shape.json_of if with_steps else None)
            return
        except InvalidAnswerError:
            if not retries:
                raise
        request, retries = sampled_again(request, retries), retries - 1


def tools_run(
    session: Session,
    messages: Messages,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any],
    /,
    *,
    think: int | Thinking = 0,
    **settings: Any,
) -> Run[str | CallPiece | ToolCall | ToolCalls | TextAnswer]:
    """Return the run that calls tools; parameters as :func:`.tool_calls.tool_request`."""
    session.check_generates()
    thinking = checked_thinking(think)
    settings["close_reasoning"] = thinking is None
    request, turn = tool_request(session, messages, tools, tool_choice, **settings)
    return thinking_first(session, request, thinking, turn.steps, settings.get("sampling"))


def end_of_turn_run(
    session: Session, prompt: str | Prompt | Tokens, end: str | int
) -> Run[EotScore]:
    """Return the run that scores a turn's end, as :meth:`~eliza_ffi.Model.end_of_turn`."""
    session.check_generates()
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
    end = check_whole("end", end, 0)
    score = partial(session.binding.eot_score, session.ctx, prompt, end)

    def steps(run: Run[Any]) -> Generator[EotScore, None, None]:
        run.check()
        yield score()

    return Run(session, steps)


def prompt_logprobs_run(
    session: Session, prompt: AnyPrompt, top: int, cache: CacheOptions | None
) -> Run[tuple[TokenLogprob, ...]]:
    """Return the run that scores a prompt, as :meth:`~eliza_ffi.Model.prompt_logprobs`."""
    session.check_generates()
    _need(session, "prefill_logprobs")
    top = check_whole("top", top, 0, MAX_LOGPROBS)
    request = generate_request(session, prompt, method="prompt_logprobs", cache=cache)
    tokens = request.prompt_tokens

    def steps(run: Run[Any]) -> Generator[tuple[TokenLogprob, ...], None, None]:
        with run.opened(request) as stream:
            score = partial(session.binding.prefill_logprobs, stream, tokens, top)
            rows = run.call(score, len(tokens))
        yield token_logprobs(session, rows)

    return Run(session, steps, slot_id=request.slot_id)


def hidden_states_run(
    session: Session,
    prompt: AnyPrompt,
    layers: Sequence[int],
    n_rows: int,
    cache: CacheOptions | None,
    n_kept: int = 0,
    *,
    pooling: str | None = None,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> Run[NDArray[np.float32]]:
    """Return the run that reads hidden states, as :meth:`~eliza_ffi.Model.hidden_states`.

    The first `n_kept` tokens stay in the KV cache, even if the pass stops early.
    """
    session.check_generates()
    if pooling is None and ranges is not None:
        raise InvalidArgumentError('ranges require pooling="mean"')
    if pooling is not None:
        check_one_of("pooling", pooling, ("mean",))
        if n_rows != 1:
            raise InvalidArgumentError("n_rows has no effect with pooling: leave it out")
    n_layers, n_embd = session.hidden_shape
    wanted = _checked_layers(layers, n_layers)
    n_rows = check_whole("n_rows", n_rows, 1)
    request = generate_request(session, prompt, method="hidden_states", cache=cache)
    tokens = request.prompt_tokens
    if n_rows > len(tokens):
        raise InvalidArgumentError(
            f"n_rows: expected at most the prompt's {len(tokens)} tokens, got {n_rows}"
        )
    ascending = sorted(set(wanted))
    if pooling is None:
        ranges = [(at, at + 1) for at in range(len(tokens) - n_rows, len(tokens))]
    elif ranges is None:
        ranges = [(0, len(tokens))]

    def steps(run: Run[Any]) -> Generator[NDArray[np.float32], None, None]:
        hidden = Hidden(tuple(ascending), tuple(ranges), n_embd, n_kept)
        decision = session.binding.decision(request, tokens, hidden=hidden)
        found = run.decide(decision).hidden
        assert found is not None
        yield found[[ascending.index(layer) for layer in wanted]]

    return Run(session, steps, slot_id=request.slot_id)


def save_run(
    session: Session, path: str | os.PathLike[str], prompt: AnyPrompt, cache: CacheOptions | None
) -> Run[int]:
    """Return the run that saves a prompt; see :meth:`~eliza_ffi.Model.save_prompt_cache`."""
    session.check_generates()
    request = generate_request(session, prompt, method="save_prompt_cache", cache=cache)

    def steps(run: Run[Any]) -> Generator[int, None, None]:
        with run.opened(request, request.prompt_tokens) as stream:
            session.binding.save_slot(stream, path)
            n_saved = session.binding.stats(stream).n_past
        yield n_saved

    return Run(session, steps, slot_id=request.slot_id)


def load_run(
    session: Session, path: str | os.PathLike[str], cache: CacheOptions | None
) -> Run[int]:
    """Return the run that loads a prompt; see :meth:`~eliza_ffi.Model.load_prompt_cache`."""
    session.check_generates()
    check_file(check_path("path", path), "a file of save_prompt_cache()")
    options = CacheOptions() if cache is None else checked_cache(cache)
    config = StreamConfig(
        slot_id=options.slot,
        prompt_cache_key=options.key,
        n_gpu_layers=session.n_gpu_layers,
        cache_type_k=options.type_k,
        cache_type_v=options.type_v,
    )

    def steps(run: Run[Any]) -> Generator[int, None, None]:
        with run.opened(config) as stream:
            session.binding.restore_slot(stream, path)
            n_restored = session.binding.stats(stream).n_past
        yield n_restored

    return Run(session, steps, slot_id=options.slot)


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
