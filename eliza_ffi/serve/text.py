"""Write one answer: text, a structured value, a label or tool calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..chat.thinking import WrittenReasoning
from ..checks import naming, short_repr
from ..errors import (
    ContextFullError,
    FillError,
    InvalidAnswerError,
    InvalidArgumentError,
    NoChatTemplateError,
    TokenTrieError,
)
from ..library.protocol import StreamStats, Tokens
from ..sampling.params import Sampling
from ..session.jobs import Jobs
from ..session.lifecycle import Work
from ..session.requests import GenerationResult, ReasoningPiece, TextPiece, TokenLogprob
from ..session.session import Session
from ..session.tool_calls import MOST_CALLS, CallPiece, ToolCall, ToolCalls
from ..structured.fill_result import FillResult
from ..structured.shape import Gbnf, Regex, shape_of
from .endpoint import Running, context_full
from .refusals import Refusal, unfit

__all__ = [
    "ExactLabels",
    "Limit",
    "ReasoningPiece",
    "Step",
    "ToolUse",
    "Writing",
    "Written",
    "all_written",
    "chunks",
    "started",
    "usage_of",
]


@dataclass(frozen=True)
class ExactLabels:
    """The exact answers that are possible."""

    texts: tuple[str, ...]


Limit: TypeAlias = ExactLabels | Mapping[str, Any] | Regex | Gbnf
"""A limit on the answer: labels, a JSON schema, a regular expression, or a grammar in GBNF."""


@dataclass(frozen=True)
class ToolUse:
    """The tools that the model may call.

    Attributes
    ----------
    messages : list of dict
        The conversation.
    chat_template_kwargs : dict
        Other variables of the chat template.
    choice : str or dict
        ``"auto"``, ``"required"``, or a named tool in OpenAI's form.
    is_parallel : bool
        Whether a turn may have several calls.
    """

    messages: list[dict[str, Any]]
    chat_template_kwargs: dict[str, Any]
    tools: list[dict[str, Any]]
    choice: str | dict[str, Any]
    is_parallel: bool


@dataclass(frozen=True)
class Writing:
    """A request for one answer.

    Attributes
    ----------
    prompt : sequence of int
        The tokens of the prompt; empty if there are tools, because their prompt is made later.
    max_tokens : int
        0 = no limit except the context.
    logprobs : int or None
        The number of alternatives to each token; None = report no log-probabilities.
    limit_field, length_field : str
        The fields of the request with the limit on the answer, and with `max_tokens`, for errors.
    reasoning : WrittenReasoning or None
        How the model writes reasoning; None = do not separate it from the answer.
    """

    prompt: str | Tokens
    max_tokens: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    limit: Limit | None = None
    limit_field: str = ""
    length_field: str = "max_tokens"
    tools: ToolUse | None = None
    reasoning: WrittenReasoning | None = None


@dataclass(frozen=True)
class Written:
    """A complete answer.

    Attributes
    ----------
    finish_reason : str
        ``"stop"``, ``"length"`` or ``"tool_calls"``.
    is_context_full : bool
        Whether the answer ended because its tokens fill the context.
    is_calls : bool
        Whether the model has decided to call tools. There is no call if none fits into the limit.
    logprobs, unsent : tuple of TokenLogprob, or None
        The log-probabilities of all tokens, and of those that belong to no earlier piece of text.
    probabilities : mapping or None
        The probability of each label, or of each tool; the key None stands for an answer in words.
    reasoning : str or None
        The reasoning before the text; None if it is not separated.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    calls: tuple[ToolCall, ...] = ()
    is_calls: bool = False
    logprobs: tuple[TokenLogprob, ...] | None = None
    unsent: tuple[TokenLogprob, ...] | None = None
    probabilities: Mapping[Any, float] | None = None
    reasoning: str | None = None
    reasoning_tokens: int = 0
    is_context_full: bool = False

    @property
    def reasons(self) -> dict[str, str]:
        """The fields of an answer that say why it ended."""
        reasons = {"finish_reason": self.finish_reason}
        return {**reasons, "stop_reason": "context_full"} if self.is_context_full else reasons


Step: TypeAlias = str | CallPiece | ToolCall | Written


async def started(
    running: Running, writing: Writing, with_steps: bool
) -> AsyncGenerator[Step, None]:
    """Check and prepare a request, and return the steps of its answer.

    The last step is the complete answer. The model begins with the first step.

    Parameters
    ----------
    with_steps
        Whether to yield pieces of text, pieces of tool calls and finished tool calls before the
        complete answer.

    Raises
    ------
    Refusal
        If the model rejects a field. The steps raise it if an answer with a limit is not complete
        or not valid.
    """
    session = running.model.session
    try:
        work = await session.helpers.run(_work, session, writing, with_steps)
    except InvalidArgumentError as error:
        raise _rejected(running, writing, error) from error
    n_tokens = 0 if isinstance(writing.prompt, str) else len(writing.prompt)
    if n_tokens > (running.n_ctx() or n_tokens):
        raise context_full(running, f"the prompt has {n_tokens} tokens, which do not fit")
    steps = session.steps_async(work, running.deadline.left)
    if writing.tools is not None:
        return _counted(running, writing, _calls(running, writing, steps))
    if isinstance(writing.limit, ExactLabels):
        return _counted(running, writing, _label(writing, steps, with_steps))
    return _counted(running, writing, _text(running, writing, steps, with_steps))


async def _counted(
    running: Running, writing: Writing, steps: AsyncGenerator[Step, None]
) -> AsyncGenerator[Step, None]:
    """Yield steps, count their tokens for the metrics, and convert errors."""
    n_logged = 0
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, TextPiece):
                    n_logged += len(step.logprobs or ())
                if isinstance(step, Written):
                    running.metrics.count_tokens(
                        step.prompt_tokens, step.cached_tokens, step.generated_tokens
                    )
                    if step.logprobs is not None:
                        step = replace(step, unsent=step.logprobs[n_logged:])
                yield step
    except InvalidAnswerError:
        raise
    except FillError as error:
        is_full = isinstance(error.__cause__, ContextFullError)
        reason = "context_full" if is_full else "length"
        raise _incomplete(running, writing, reason, len(error.partial.tokens)) from error
    except TokenTrieError as error:
        if isinstance(writing.limit, ExactLabels):
            raise unfit(writing.limit_field, str(error)) from error
        raise
    except InvalidArgumentError as error:
        raise _rejected(running, writing, error) from error


def _work(session: Session, writing: Writing, with_steps: bool) -> Work[Any]:
    """Return the request for an answer."""
    _check_bias(session, writing.sampling)
    jobs, limit, use = Jobs(session), writing.limit, writing.tools
    common: dict[str, Any] = {"max_tokens": writing.max_tokens, "stop": writing.stop or None}
    if use is not None:
        return jobs.tools(
            use.messages,
            use.tools,
            use.choice,
            with_steps=with_steps,
            ends_at_limit=True,
            words=limit,
            max_calls=MOST_CALLS if use.is_parallel else 1,
            chat_template_kwargs=use.chat_template_kwargs,
            sampling=writing.sampling,
            method="tools",
            **common,
        )
    if isinstance(limit, ExactLabels):
        is_sampled = _samples_labels(writing.sampling)
        with naming("shape"):
            return jobs.choice(
                writing.prompt,
                limit.texts,
                method="choose",
                mode="sample" if is_sampled else "best",
                probabilities=True,
                sampling=writing.sampling if is_sampled else None,
            )
    sampling: Sampling | None = writing.sampling
    if writing.sampling == Sampling(seed=writing.sampling.seed):
        sampling = None  # greedy, which is faster without samplers
    if (
        isinstance(limit, Mapping)
        and not (with_steps or writing.stop or sampling)
        and writing.logprobs is None
    ):  # `fill` needs fewer passes if the schema fixes parts of the text
        return jobs.fill(
            writing.prompt, limit, method="fill", with_steps=False, max_tokens=writing.max_tokens
        )
    return jobs.text(
        writing.prompt,
        method="generate",
        with_steps=with_steps,
        reasoning=writing.reasoning,
        sampling=sampling,
        logprobs=writing.logprobs,
        shape=limit,
        **common,
    )


def _check_bias(session: Session, sampling: Sampling) -> None:
    """Raise a `Refusal` if `logit_bias` has a token that is not in the vocabulary."""
    if sampling.logit_bias:
        n_vocab = session.describe().get("model", {}).get("n_vocab", math.inf)
        for token, _ in sampling.logit_bias:
            if token >= n_vocab:
                raise unfit("logit_bias", f"the token {token} is not in the model's vocabulary")


def _samples_labels(sampling: Sampling) -> bool:
    """Return whether a label is sampled; raise a `Refusal` for settings that need sampling."""
    plain = Sampling(top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    if sampling.temperature > 0 or replace(sampling, seed=None) == plain:
        return sampling.temperature > 0
    message = (
        "penalties and logit_bias are not supported with an exact choice, unless the "
        "temperature is above 0"
    )
    raise Refusal(400, message, "invalid_value", "temperature")


def _rejected(running: Running, writing: Writing, error: InvalidArgumentError) -> Exception:
    """Return the error that names the field of the request, if it is known."""
    if isinstance(error, NoChatTemplateError):
        return error
    fields = {
        "messages": running.input_name,
        "prompt": running.input_name,
        "shape": writing.limit_field,
        "tools": "tools",
    }
    field = fields.get(error.argument or "")
    if isinstance(writing.limit, Gbnf):  # the library reads it when the answer begins
        field = field or writing.limit_field
    return unfit(field, str(error)) if field else error


async def _one_each(
    answers: Sequence[AsyncGenerator[Step, None]],
) -> AsyncGenerator[tuple[int, Step], None]:
    """Write several answers at the same time; yield each step with the index of its answer."""
    queue: asyncio.Queue[tuple[int, Step | Exception | None]] = asyncio.Queue()

    async def pump(index: int, answer: AsyncGenerator[Step, None]) -> None:
        try:
            async with aclosing(answer) as steps:
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
        for each in pumps:
            each.cancel()
        await asyncio.wait(pumps)


def usage_of(answers: Sequence[Written], n: int) -> dict[str, Any]:
    """Return the usage of a request in OpenAI's form; each prompt has `n` answers."""
    n_given = sum(each.prompt_tokens for each in answers[::n])
    n_made = sum(each.generated_tokens for each in answers)
    n_cached = sum(each.cached_tokens for each in answers[::n])
    n_reasoning = sum(each.reasoning_tokens for each in answers)
    return {
        "prompt_tokens": n_given,
        "completion_tokens": n_made,
        "total_tokens": n_given + n_made,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": n_reasoning},
    }


async def chunks(
    running: Running,
    writings: Sequence[Writing],
    head: dict[str, Any],
    choices_of: Callable[[int, Step], Iterable[dict[str, Any]]],
    n: int,
    with_usage: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Prepare several answers, and return the chunks of a stream of all of them.

    Parameters
    ----------
    head
        The fields that all chunks have.
    choices_of
        Returns the choices for one step, each for a chunk of its own.
    n
        The number of answers to each prompt.
    with_usage
        Whether the stream ends with the usage.
    """
    answers = [await started(running, writing, with_steps=True) for writing in writings]
    usage: dict[str, Any] = {"usage": None} if with_usage else {}

    async def written() -> AsyncGenerator[dict[str, Any], None]:
        whole: dict[int, Written] = {}
        async with aclosing(_one_each(answers)) as steps:
            async for index, step in steps:
                if isinstance(step, Written):
                    whole[index] = step
                for choice in choices_of(index, step):
                    yield {**head, "choices": [{"index": index, **choice}], **usage}
        if with_usage:
            listed = [whole[index] for index in sorted(whole)]
            yield {**head, "choices": [], "usage": usage_of(listed, n)}

    return written()


async def all_written(running: Running, writings: Sequence[Writing]) -> list[Written]:
    """Return several complete answers, which are written at the same time."""
    answers = [await started(running, writing, with_steps=False) for writing in writings]
    found: dict[int, Written] = {}
    async with aclosing(_one_each(answers)) as steps:
        async for index, step in steps:
            assert isinstance(step, Written)
            found[index] = step
    return [found[index] for index in range(len(writings))]


async def _text(
    running: Running,
    writing: Writing,
    steps: AsyncGenerator[Any, None],
    with_steps: bool,
) -> AsyncGenerator[Step, None]:
    limit, session = writing.limit, running.model.session
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, FillResult):
                step = Written(step.text, "stop", *_counts(step.stats, len(step.tokens)))
            elif isinstance(step, GenerationResult):
                if limit is not None:
                    await session.helpers.run(_check_whole, running, writing, step)
                thought = step.reasoning
                thoughts = await session.helpers.run(session.tokenize, thought) if thought else ()
                step = _written(step, len(thoughts))
            yield step


def _check_whole(running: Running, writing: Writing, result: GenerationResult) -> None:
    """Raise unless an answer with a limit is complete and valid."""
    if result.finish_reason != "end":
        raise _incomplete(running, writing, result.finish_reason, len(result.tokens))
    if isinstance(writing.limit, Mapping):
        try:
            shape_of(writing.limit).value(result.text)
        except ValueError as error:
            message = f"the answer is not valid: {error}: {short_repr(result.text)}"
            raise Refusal(422, message, "invalid_answer") from None


def _incomplete(running: Running, writing: Writing, reason: str, n_tokens: int) -> Refusal:
    """Return the error for an answer with a limit that ended early, for a finish reason."""
    what, field = "the full context", running.input_name
    if reason == "stop":
        what, field = "a stop string", "stop"
    elif reason == "length":
        what, field = writing.length_field, writing.length_field
    return Refusal(
        422,
        f"the answer was ended by {what} after {n_tokens} tokens, before it was complete",
        "incomplete_answer",
        field,
    )


async def _label(
    writing: Writing, steps: AsyncGenerator[Any, None], with_steps: bool
) -> AsyncGenerator[Step, None]:
    async with aclosing(steps):
        async for choice in steps:
            field = writing.length_field
            if 0 < writing.max_tokens < len(choice.tokens):
                message = f"the choice has {len(choice.tokens)} tokens, more than {field}"
                raise Refusal(422, message, "incomplete_answer", field)
            if with_steps:
                yield choice.text
            counts = _counts(choice.stats, len(choice.tokens))
            probabilities = dict(choice.probabilities or {})
            yield Written(choice.text, "stop", *counts, probabilities=probabilities)


async def _calls(
    running: Running, writing: Writing, steps: AsyncGenerator[Any, None]
) -> AsyncGenerator[Step, None]:
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, str | CallPiece | ToolCall):
                yield step
            elif isinstance(step, ToolCalls):
                yield Written(
                    "",
                    "length" if step.is_truncated else "tool_calls",
                    step.prompt_tokens,
                    step.cached_tokens,
                    step.generated_tokens,
                    calls=tuple(step),
                    is_calls=True,
                    probabilities=step[0].probabilities if step else None,
                )
            else:
                if writing.limit is not None:
                    helpers = running.model.session.helpers
                    await helpers.run(_check_whole, running, writing, step)
                yield replace(
                    _written(step),
                    cached_tokens=step.cached_tokens,
                    probabilities=step.probabilities,
                )


def _written(result: GenerationResult, reasoning_tokens: int = 0) -> Written:
    return Written(
        result.text,
        "stop" if result.finish_reason in ("end", "stop") else "length",
        result.prompt_tokens,
        result.stats.prompt_tokens_reused if result.stats else 0,
        len(result.tokens),
        logprobs=result.logprobs,
        reasoning=result.reasoning or None,
        reasoning_tokens=reasoning_tokens,
        is_context_full=result.finish_reason == "context_full",
    )


def _counts(stats: StreamStats | None, n_generated: int) -> tuple[int, int, int]:
    """Return the numbers of prompt tokens, of reused prompt tokens, and of generated tokens."""
    if stats is None:
        return 0, 0, n_generated
    return stats.prompt_tokens, stats.prompt_tokens_reused, n_generated
