"""Write one answer: text, a structured value, a label or tool calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from ..chat.thinking import WrittenReasoning
from ..checks import naming, short_repr
from ..choices.label_set import ChoiceResult
from ..errors import (
    ContextFullError,
    FillError,
    InvalidAnswerError,
    InvalidArgumentError,
    NoChatTemplateError,
    TokenTrieError,
)
from ..library.protocol import Tokens
from ..sampling.params import MAX_SEED, Sampling
from ..session.results import GenerationResult, TextPiece, TokenLogprob
from ..session.run import Run
from ..session.runs import choice_run, text_run, tools_run
from ..session.session import Session
from ..session.thinking import Reasoning, Thinking, written_reasoning
from ..session.tool_calls import (
    MAX_CALLS,
    CallPiece,
    TextAnswer,
    ToolCall,
    ToolCalls,
    conversation_tokens,
)
from ..structured.shape import Gbnf, shape_of
from .admission import PartPlace
from .deadline import all_of, cancelled
from .endpoint import RequestContext, TokenTimes
from .http_error import HTTPError, invalid
from .settings import ServeSettings
from .text_fields import Limit


@dataclass(frozen=True)
class Talk:
    """A conversation, and the tools that the model may call in it.

    `ending` has more arguments of :func:`~eliza_ffi.session.tool_calls.conversation_tokens`, if the
    prompt does not end with a new turn of the assistant.
    """

    messages: list[dict[str, Any]]  # as chat templates expect them
    chat_template_kwargs: dict[str, Any]
    ending: Mapping[str, bool]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]  # "auto", "required", or a named tool in OpenAI's form
    is_parallel: bool  # a turn may have several calls
    without_reasoning: bool = False  # even if the answer is free text
    think: int = 0  # the maximum length of the reasoning before an answer with a limit, or tools


@dataclass(frozen=True)
class AnswerRequest:
    """A request for `n` answers to each of several prompts, or to a conversation."""

    prompts: Sequence[str | Tokens] = ()
    talk: Talk | None = None
    n: int = 1
    max_tokens: int = 0  # 0 = no limit except the context
    sampling: Sampling | None = None  # None = greedy, which is faster without samplers
    stop: tuple[str, ...] = ()
    logprobs: int | None = None  # alternatives to each token; None = no log-probabilities
    limit: Limit | None = None
    limit_field: str = ""  # the field of the HTTP request with the limit, for errors
    length_field: str = "max_tokens"  # the field with `max_tokens`

    def samplings(self) -> list[Sampling | None]:
        """Return the settings of the answers to a prompt; each samples with its own seed."""
        sampling = self.sampling
        if self.n == 1 or sampling is None or sampling.seed is None:
            return [sampling] * self.n
        seeds = [(sampling.seed + i) % (MAX_SEED + 1) for i in range(self.n)]
        return [replace(sampling, seed=seed) for seed in seeds]


@dataclass(frozen=True)
class Answer:
    """A complete answer.

    `probabilities` has the probability of each label, or of each tool; the key None stands for an
    answer in words.
    """

    text: str
    finish_reason: str  # "stop", "length" or "tool_calls"
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    calls: tuple[ToolCall, ...] = ()
    is_calls: bool = False  # the model decided to call tools; perhaps no call fits into the limit
    logprobs: tuple[TokenLogprob, ...] | None = None
    unsent: tuple[TokenLogprob, ...] | None = None  # `logprobs` that no piece of text had
    probabilities: Mapping[Any, float] | None = None
    reasoning: str | None = None  # None = it is not separated from the text
    reasoning_tokens: int = 0
    is_context_full: bool = False  # the answer ended because its tokens fill the context

    @property
    def reasons(self) -> dict[str, str]:
        """The fields of an answer that say why it ended."""
        reasons = {"finish_reason": self.finish_reason}
        return {**reasons, "stop_reason": "context_full"} if self.is_context_full else reasons

    @property
    def named_probabilities(self) -> dict[str, dict[str, float]]:
        """The extension field with the probabilities of labels or tools, if there are any."""
        if self.probabilities is None:
            return {}
        return {"probabilities": {name or "": p for name, p in self.probabilities.items()}}


Step: TypeAlias = str | CallPiece | ToolCall | Answer
"""A piece of an answer, a finished tool call, or the complete answer."""


def sampling_defaults(settings: ServeSettings, is_free: bool) -> dict[str, Any]:
    """Return the sampling of requests that set none; `is_free` = no constraint and no tools."""
    return {"temperature": 1.0, **settings.sampling} if is_free else {"temperature": 0.0}


def default_tokens(settings: ServeSettings, limit: Limit | None) -> int:
    """Return the maximum length of answers to requests that set none; 0 = no limit."""
    return 0 if isinstance(limit, tuple) else settings.max_tokens


# ---- One answer ---------------------------------------------------------------------------------


async def started(
    context: RequestContext, request: AnswerRequest, with_steps: bool
) -> list[AsyncGenerator[Step, None]]:
    """Check and prepare a request, and return the steps of each answer.

    The last step is the complete answer; without `with_steps`, it is the only one. The model begins
    with the first step. An HTTPError names the field that the model rejects. The steps raise it if
    an answer with a limit is not complete or not valid.
    """
    runs = await context.model.session.helpers.run(_runs, context, request, with_steps)
    return [_steps(context, request, *run, with_steps) for run in runs]


async def _steps(
    context: RequestContext,
    request: AnswerRequest,
    run: Run[Any],
    thoughts: list[Reasoning],
    with_steps: bool,
) -> AsyncGenerator[Step, None]:
    """Yield the steps of an answer, and count its tokens and their times for the metrics.

    When the run yields its result, the last item of `thoughts` is the reasoning before the answer
    if the request asked for it.
    """
    n_logged, times = 0, TokenTimes(context)
    result: Any = None
    answer: Answer | None = None
    results = context.model.session.scheduler.steps_async(run, context.deadline.left)
    try:
        with _naming_fields(context, request):
            async with aclosing(results):
                async for result in results:
                    if isinstance(result, str | CallPiece | ToolCall):
                        if isinstance(result, TextPiece):
                            n_logged += len(result.logprobs or ())
                        times.note_piece()
                        yield result
                        continue
                    answer = await _answer(context, result, thoughts[-1] if thoughts else None)
                    times.note_end(answer.generated_tokens)
                    context.count_tokens(
                        answer.prompt_tokens, answer.cached_tokens, answer.generated_tokens
                    )
                    await _check_answer(context, request, result, answer)
                    context.record.finish_reasons[answer.finish_reason] += 1
                    if with_steps and isinstance(result, ChoiceResult):
                        yield answer.text
                    if answer.logprobs is not None:
                        answer = replace(answer, unsent=answer.logprobs[n_logged:])
                    yield answer
    finally:
        # Without an answer, the client has left, or the deadline has passed.
        stats = getattr(result, "stats", None) or run.unfinished
        if answer is None and stats is not None:
            n_prompt, n_reused = stats.prompt_tokens, stats.prompt_tokens_reused
            context.count_tokens(n_prompt, n_reused, stats.generated_tokens)


@contextmanager
def _naming_fields(context: RequestContext, request: AnswerRequest) -> Iterator[None]:
    """Convert errors of the model to errors that name the field of the request, if it is known."""
    try:
        yield
    except NoChatTemplateError:
        raise
    except FillError as error:
        partial, stats = error.partial, error.partial.stats
        n_prompt, n_reused = (stats.prompt_tokens, stats.prompt_tokens_reused) if stats else (0, 0)
        answer = Answer(partial.text, "length", n_prompt, n_reused, len(partial.tokens))
        if isinstance(error, InvalidAnswerError):
            raise _failed(request, answer, str(error), "invalid_answer") from error
        is_full = isinstance(error.__cause__, ContextFullError)
        reason = "context_full" if is_full else "length"
        raise _incomplete(context, request, reason, answer) from error
    except TokenTrieError as error:
        if isinstance(request.limit, tuple):
            raise invalid(request.limit_field, str(error)) from error
        raise
    except InvalidArgumentError as error:
        fields = {
            "messages": context.input_name,
            "prompt": context.input_name,
            "schema": request.limit_field,
            "tools": "tools",
        }
        # The library reads a grammar in GBNF when the answer begins.
        other = request.limit_field if isinstance(request.limit, Gbnf) else ""
        name = fields.get(error.argument or "", other)
        if not name:
            raise
        raise invalid(name, str(error)) from error


def _runs(
    context: RequestContext, request: AnswerRequest, with_steps: bool
) -> list[tuple[Run[Any], list[Reasoning]]]:
    """Return the run of each answer, and a list that gets the reasoning before the answer."""
    session, talk, reasoning = context.model.session, request.talk, None
    _check_bias(session, request.sampling)
    with _naming_fields(context, request):
        prompts = request.prompts
        if talk is not None and talk.tools:
            prompts = [()]  # their prompt is made with the tools
        elif talk is not None:
            is_limited = request.limit is not None
            tokens = conversation_tokens(
                session,
                talk.messages,
                talk.chat_template_kwargs,
                close_reasoning=talk.without_reasoning or (is_limited and not talk.think),
                **talk.ending,
            )
            prompts = [tokens]
            if not is_limited:
                reasoning = written_reasoning(session, tokens)
        for prompt in prompts:
            n_tokens = 0 if isinstance(prompt, str) else len(prompt)
            if n_tokens > (context.n_ctx() or n_tokens):
                raise context.context_full(f"the prompt has {n_tokens} tokens, which do not fit")
        return [
            (_run(session, request, prompt, sampling, reasoning, with_steps, thoughts), thoughts)
            for prompt in prompts
            for sampling in request.samplings()
            for thoughts in [list[Reasoning]()]
        ]


def _run(
    session: Session,
    request: AnswerRequest,
    prompt: str | Tokens,
    sampling: Sampling | None,
    reasoning: WrittenReasoning | None,
    with_steps: bool,
    thoughts: list[Reasoning],
) -> Run[Any]:
    limit, talk = request.limit, request.talk
    common: dict[str, Any] = {"max_tokens": request.max_tokens, "stop": request.stop or None}
    think: Thinking | None = None
    if talk is not None and talk.think:
        think = Thinking(talk.think, with_steps, thoughts.append)
    if talk is not None and talk.tools:
        return tools_run(
            session,
            talk.messages,
            talk.tools,
            talk.tool_choice,
            with_steps=with_steps,
            ends_at_limit=True,
            words=limit,
            max_calls=MAX_CALLS if talk.is_parallel else 1,
            chat_template_kwargs=talk.chat_template_kwargs,
            think=think or 0,
            sampling=sampling,
            method="tools",
            **common,
        )
    if isinstance(limit, tuple):
        is_sampled = _samples_labels(sampling)
        with naming("schema"):
            return choice_run(
                session,
                prompt,
                limit,
                method="choose",
                mode="sample" if is_sampled else "best",
                probabilities=True,
                think=think or 0,
                sampling=sampling if is_sampled else None,
            )
    return text_run(
        session,
        prompt,
        method="generate",
        with_steps=with_steps,
        reasoning=think or reasoning,
        sampling=sampling,
        logprobs=request.logprobs,
        schema=limit,
        **common,
    )


def _check_bias(session: Session, sampling: Sampling | None) -> None:
    """Raise an HTTPError if `logit_bias` has a token that is not in the vocabulary."""
    if sampling is not None and sampling.logit_bias:
        n_vocab = session.describe().get("model", {}).get("n_vocab", math.inf)
        for token, _ in sampling.logit_bias:
            if token >= n_vocab:
                raise invalid("logit_bias", f"the token {token} is not in the model's vocabulary")


def _samples_labels(sampling: Sampling | None) -> bool:
    """Return whether a label is sampled; raise an HTTPError for settings that need sampling."""
    if sampling is None or sampling.temperature > 0:
        return sampling is not None
    plain = Sampling(top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    if replace(sampling, seed=None) == plain:
        return False
    message = (
        "penalties and logit_bias are not supported with an exact choice, unless the "
        "temperature is above 0"
    )
    raise HTTPError(400, message, "invalid_value", "temperature")


async def _answer(context: RequestContext, result: Any, thought: Reasoning | None) -> Answer:
    """Return the answer for a result of the model, after the reasoning `thought` if any."""
    n_thoughts = 0 if thought is None else thought.n_generated
    reasoning = None if thought is None else thought.text or None
    if isinstance(result, ToolCalls):
        return Answer(
            "",
            "length" if result.is_truncated else "tool_calls",
            result.prompt_tokens,
            result.cached_tokens,
            result.generated_tokens,
            calls=tuple(result),
            is_calls=True,
            probabilities=result[0].probabilities if result else None,
            reasoning=reasoning,
            reasoning_tokens=n_thoughts,
        )
    stats = result.stats
    n_prompt, n_reused = (stats.prompt_tokens, stats.prompt_tokens_reused) if stats else (0, 0)
    if not isinstance(result, ChoiceResult):
        n_prompt = result.prompt_tokens
    if isinstance(result, TextAnswer):  # beside tools
        n_reused = result.cached_tokens
    if thought is not None:
        n_prompt, n_reused = thought.n_prompt, thought.n_cached
    n_tokens = n_thoughts + len(result.tokens)
    if isinstance(result, ChoiceResult):
        answer = Answer(result.text, "stop", n_prompt, n_reused, n_tokens)
        answer = replace(answer, probabilities=dict(result.probabilities or {}))
    else:
        answer = Answer(
            result.text,
            "stop" if result.finish_reason in ("end", "stop") else "length",
            n_prompt,
            n_reused,
            n_tokens,
            logprobs=result.logprobs,
            probabilities=result.probabilities if isinstance(result, TextAnswer) else None,
            is_context_full=result.finish_reason == "context_full",
        )
        if thought is None and result.reasoning:
            reasoning, session = result.reasoning, context.model.session
            n_thoughts = len(await session.helpers.run(session.tokenize, reasoning))
    return replace(answer, reasoning=reasoning, reasoning_tokens=n_thoughts)


async def _check_answer(
    context: RequestContext, request: AnswerRequest, result: Any, answer: Answer
) -> None:
    """Raise an HTTPError if an answer breaks its limit."""
    if isinstance(result, ChoiceResult):
        n_tokens, name = len(result.tokens), request.length_field
        if 0 < request.max_tokens < n_tokens:
            message = f"the choice has {n_tokens} tokens, more than {name}"
            raise _failed(request, answer, message, "incomplete_answer", name)
    elif request.limit is not None and isinstance(result, GenerationResult):
        if result.finish_reason != "end":
            raise _incomplete(context, request, result.finish_reason, answer)
        if isinstance(request.limit, Mapping):
            check = partial(_check_value, request, answer)
            await context.model.session.helpers.run(check)


def _check_value(request: AnswerRequest, answer: Answer) -> None:
    """Raise an HTTPError if a complete answer is not valid for its schema."""
    try:
        shape_of(request.limit).value(answer.text)
    except ValueError as error:
        message = f"the answer is not valid: {error}: {short_repr(answer.text)}"
        raise _failed(request, answer, message, "invalid_answer") from None


def _incomplete(
    context: RequestContext, request: AnswerRequest, reason: str, answer: Answer
) -> HTTPError:
    """Return the error for an answer with a limit that ended early, for a finish reason."""
    what, name = "the full context", context.input_name
    if reason == "stop":
        what, name = "a stop string", "stop"
    elif reason == "length":
        what = name = request.length_field
    n_tokens = answer.generated_tokens - answer.reasoning_tokens
    message = f"the answer was ended by {what} after {n_tokens} tokens, before it was complete"
    return _failed(request, answer, message, "incomplete_answer", name)


def _failed(
    request: AnswerRequest, answer: Answer, message: str, code: str, name: str | None = None
) -> HTTPError:
    """Return the error for an answer that breaks its limit, with its text and its usage."""
    if request.sampling is None or not request.sampling.temperature:
        message += "; at temperature 0, the same request usually gives the same answer"
    elif request.sampling.seed is not None:
        message += "; with the same seed, the same request usually gives the same answer"
    details = {"partial_text": answer.text, "usage": usage_of([answer], 1)}
    return HTTPError(422, message, code, name, details=details)


# ---- Several answers ----------------------------------------------------------------------------


async def _one_each(
    answers: Sequence[AsyncGenerator[Step, None]], part: PartPlace
) -> AsyncGenerator[tuple[int, Step], None]:
    """Write several answers at the same time; yield each step with the index of its answer."""
    queue: asyncio.Queue[tuple[int, Step | Exception | None]] = asyncio.Queue()

    async def pump(index: int, answer: AsyncGenerator[Step, None]) -> None:
        try:
            async with part(), aclosing(answer) as steps:
                async for step in steps:
                    queue.put_nowait((index, step))
            queue.put_nowait((index, None))
        except Exception as error:
            queue.put_nowait((index, error))

    pumps = [asyncio.ensure_future(pump(*each)) for each in enumerate(answers)]
    try:
        n_left = len(pumps)
        while n_left:
            index, step = await queue.get()
            if isinstance(step, Exception):
                raise step
            if step is None:
                n_left -= 1
            else:
                yield index, step
    finally:
        await cancelled(*pumps)


async def all_answers(context: RequestContext, request: AnswerRequest) -> list[Answer]:
    """Return all complete answers, which are written at the same time."""

    async def whole(steps: AsyncGenerator[Step, None]) -> Any:
        async with part(), aclosing(steps):
            async for step in steps:
                last = step
        return last

    answers = await started(context, request, with_steps=False)
    async with context.place.in_parts(len(answers)) as part:
        return await all_of(map(whole, answers))


async def chunks(
    context: RequestContext,
    request: AnswerRequest,
    head: dict[str, Any],
    choices_of: Callable[[int, Step], Iterable[dict[str, Any]]],
    with_usage: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Prepare several answers, and return the chunks of a stream of them.

    All chunks have the fields of `head`. `choices_of` returns the choices for one step, each for a
    chunk of its own.
    """
    answers = await started(context, request, with_steps=True)
    usage: dict[str, Any] = {"usage": None} if with_usage else {}

    async def written() -> AsyncGenerator[dict[str, Any], None]:
        whole: dict[int, Answer] = {}
        async with (
            context.place.in_parts(len(answers)) as part,
            aclosing(_one_each(answers, part)) as steps,
        ):
            async for index, step in steps:
                if isinstance(step, Answer):
                    whole[index] = step
                for choice in choices_of(index, step):
                    yield {**head, "choices": [{"index": index, **choice}], **usage}
        if with_usage:
            listed = [whole[index] for index in sorted(whole)]
            yield {**head, "choices": [], "usage": usage_of(listed, request.n)}

    return written()


def usage_of(answers: Sequence[Answer], n: int) -> dict[str, Any]:
    """Return the usage of a request in OpenAI's form; each prompt has `n` answers."""
    n_prompt = n_cached = n_generated = n_reasoning = 0
    for i, each in enumerate(answers):
        if i % n == 0:
            n_prompt += each.prompt_tokens
            n_cached += each.cached_tokens
        n_generated += each.generated_tokens
        n_reasoning += each.reasoning_tokens
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": n_reasoning},
    }
