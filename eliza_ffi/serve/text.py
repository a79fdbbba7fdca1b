"""Write one answer: text, a structured value, a label or tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from ..chat.tools import read_tools
from ..checks import short_repr
from ..errors import InvalidArgumentError
from ..library.protocol import StreamStats, Tokens
from ..sampling.params import Sampling
from ..session.jobs import Jobs
from ..session.lifecycle import Work
from ..session.requests import GenerationResult, TextPiece, TokenLogprob
from ..session.session import Session
from ..session.thinking import WrittenReasoning
from ..session.tool_calls import MOST_CALLS, Beginning, CallPiece, ToolCall, ToolCalls
from ..structured.shape import Gbnf, Regex, shape_of
from .endpoint import Running
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
    "usage_of",
    "write",
]


@dataclass(frozen=True)
class ExactLabels:
    """The exact answers that are possible."""

    texts: tuple[str, ...]


Limit: TypeAlias = ExactLabels | Mapping[str, Any] | Regex | Gbnf | Beginning
"""A limit on the answer: labels, a JSON schema, a regular expression, a grammar in GBNF, or fixed
first tokens."""


@dataclass(frozen=True)
class ToolUse:
    """The tools that the model may call.

    Attributes
    ----------
    messages : list of dict
        The conversation.
    variables : dict
        Other variables of the chat template.
    choice : str or dict
        ``"auto"``, ``"required"``, or a named tool in OpenAI's form.
    is_parallel : bool
        Whether a turn may have several calls.
    """

    messages: list[dict[str, Any]]
    variables: dict[str, Any]
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
    limit_field : str
        The field of the request with the limit, for error messages.
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
    tools: ToolUse | None = None
    reasoning: WrittenReasoning | None = None


class ReasoningPiece(TextPiece):
    """A piece of the model's reasoning."""


@dataclass(frozen=True)
class Written:
    """A complete answer.

    Attributes
    ----------
    finish_reason : str
        ``"stop"``, ``"length"`` or ``"tool_calls"``.
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


Step: TypeAlias = str | CallPiece | ToolCall | Written


async def write(running: Running, writing: Writing, with_steps: bool) -> AsyncGenerator[Step, None]:
    """Yield the steps of an answer; the last one is the complete answer.

    Parameters
    ----------
    with_steps
        Whether to yield pieces of text, pieces of tool calls and finished tool calls before the
        complete answer.

    Raises
    ------
    Refusal
        If an answer with a limit is not complete or not valid, or if the model rejects a field.
    """
    if writing.tools is not None:
        steps = _calls(running, writing, writing.tools, with_steps)
    elif isinstance(writing.limit, ExactLabels):
        steps = _label(running, writing, writing.limit, with_steps)
    else:
        steps = _text(running, writing, with_steps)
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
    except InvalidArgumentError as error:
        session = running.model.session
        found = await session.helpers.run(_rejected_field, session, writing, error)
        if found is None:
            raise
        raise unfit(*found) from error


def _rejected_field(
    session: Session, writing: Writing, error: InvalidArgumentError
) -> tuple[str, str] | None:
    """Return the field that caused an error of the model, and the problem; None = not known.

    The error does not say from which field of the request an argument came, so the fields are
    checked one by one.
    """
    use = writing.tools
    if use is not None:
        try:
            names = [tool.name for tool in read_tools(use.tools)]
        except InvalidArgumentError:
            return "tools", str(error)
        name = use.choice["function"]["name"] if isinstance(use.choice, dict) else None
        if name is not None and name not in names:
            expected = f"expected the name of a tool ({', '.join(names):.200})"
            return "tool_choice", f"{expected}, got {short_repr(name)}"
        if str(error).startswith("the parameters of tool "):  # the schema is not supported
            return "tools", str(error)
    for token, _ in writing.sampling.logit_bias:
        try:
            session.detokenize([token])
        except InvalidArgumentError:
            return "logit_bias", f"the token {token} is not in the model's vocabulary"
    if writing.limit is not None and (use is None or not _compiles(session, writing.limit)):
        return writing.limit_field, str(error)
    return None


def _compiles(session: Session, limit: Any) -> bool:
    """Return whether a limit beside tools can be compiled."""
    try:
        if not isinstance(limit, Gbnf):
            shape_of(limit).masks(session.guidance())
    except InvalidArgumentError:
        return False
    return True


async def _one_each(
    running: Running, writings: Sequence[Writing], with_steps: bool
) -> AsyncGenerator[tuple[int, Step], None]:
    """Write several answers at the same time; yield each step with the index of its answer."""
    queue: asyncio.Queue[tuple[int, Step | Exception | None]] = asyncio.Queue()

    async def pump(index: int, writing: Writing) -> None:
        try:
            async with aclosing(write(running, writing, with_steps)) as steps:
                async for step in steps:
                    queue.put_nowait((index, step))
            queue.put_nowait((index, None))
        except Exception as error:
            queue.put_nowait((index, error))

    pumps = [asyncio.ensure_future(pump(*each)) for each in enumerate(writings)]
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
    """Write several answers at the same time; yield the chunks of a stream.

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
    usage: dict[str, Any] = {"usage": None} if with_usage else {}
    written: dict[int, Written] = {}
    async with aclosing(_one_each(running, writings, with_steps=True)) as steps:
        async for index, step in steps:
            if isinstance(step, Written):
                written[index] = step
            for choice in choices_of(index, step):
                yield {**head, "choices": [{"index": index, **choice}], **usage}
    if with_usage:
        answers = [written[index] for index in sorted(written)]
        yield {**head, "choices": [], "usage": usage_of(answers, n)}


async def all_written(running: Running, writings: Sequence[Writing]) -> list[Written]:
    """Return several complete answers, which are written at the same time."""
    found: dict[int, Written] = {}
    async with aclosing(_one_each(running, writings, with_steps=False)) as steps:
        async for index, step in steps:
            assert isinstance(step, Written)
            found[index] = step
    return [found[index] for index in range(len(writings))]


async def _steps(
    running: Running, prepare: Callable[..., Work[Any]], *arguments: Any, **settings: Any
) -> AsyncGenerator[Any, None]:
    """Prepare a request on a thread, and yield its steps."""
    session = running.model.session
    work = await session.helpers.run(partial(prepare, *arguments, **settings))
    async with aclosing(session.steps_async(work, running.deadline.left)) as steps:
        async for step in steps:
            yield step


async def _text(running: Running, writing: Writing, with_steps: bool) -> AsyncGenerator[Step, None]:
    limit, reasoning, session = writing.limit, writing.reasoning, running.model.session
    sampling: Sampling | None = writing.sampling
    if writing.sampling == Sampling(seed=writing.sampling.seed):
        sampling = None  # greedy, which is faster without samplers
    if (
        isinstance(limit, Mapping)
        and not (with_steps or writing.stop or sampling)
        and writing.logprobs is None
    ):  # `fill` needs fewer passes if the schema fixes parts of the text
        filled = await running.model.fill(
            writing.prompt, limit, max_tokens=writing.max_tokens, wait=running.deadline.left
        )
        yield Written(filled.text, "stop", *_counts(filled.stats, len(filled.tokens)))
        return
    steps = _steps(
        running,
        Jobs(session).text,
        writing.prompt,
        method="generate",
        with_steps=with_steps,
        spelled=() if reasoning is None else reasoning.control,
        max_tokens=writing.max_tokens,
        sampling=sampling,
        stop=writing.stop or None,
        logprobs=writing.logprobs,
        shape=limit,
    )
    if reasoning is not None:
        has_logprobs = writing.logprobs is not None
        steps = _reasoned(session, reasoning, steps, with_steps, has_logprobs)
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, GenerationResult):
                if limit is not None and not isinstance(limit, Beginning):
                    await session.helpers.run(_check_whole, limit, step)
                step = _written(step)
            yield step


async def _reasoned(
    session: Session,
    reasoning: WrittenReasoning,
    steps: AsyncGenerator[str | GenerationResult, None],
    with_steps: bool,
    has_logprobs: bool,
) -> AsyncGenerator[Step, None]:
    """Separate the reasoning from the answer."""
    reader = reasoning.reader()
    waiting: list[TokenLogprob] = []

    def pieces(text: str, is_last: bool = False) -> Iterator[TextPiece]:
        thought, answer = reader.push(text, is_last)
        for piece in (ReasoningPiece(thought), TextPiece(answer)):
            if piece:
                piece.logprobs = tuple(waiting) if has_logprobs else None
                waiting.clear()
                yield piece

    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, str):
                waiting += (step.logprobs if isinstance(step, TextPiece) else None) or ()
                for piece in pieces(step):
                    yield piece
                continue
            for piece in pieces("" if with_steps else step.text, is_last=True):
                if with_steps:
                    yield piece
            thoughts = await session.helpers.run(session.tokenize, reader.reasoning)
            yield replace(
                _written(step),
                text=reader.answer,
                reasoning=reader.reasoning or None,
                reasoning_tokens=len(thoughts),
            )


def _check_whole(limit: Any, result: GenerationResult) -> None:
    """Raise unless an answer with a limit is complete and valid."""
    if result.finish_reason != "end":
        reason = {"stop": "a stop string", "length": "max_tokens"}
        raise Refusal(
            422,
            f"the answer was ended by {reason.get(result.finish_reason, 'the full context')} after "
            f"{len(result.tokens)} tokens, before it was complete",
            "incomplete_answer",
            "stop" if result.finish_reason == "stop" else "max_tokens",
        )
    if isinstance(limit, Mapping):
        try:
            shape_of(limit).value(result.text)
        except ValueError as error:
            message = f"the answer is not valid: {error}: {short_repr(result.text)}"
            raise Refusal(422, message, "invalid_answer") from None


async def _label(
    running: Running, writing: Writing, labels: ExactLabels, with_steps: bool
) -> AsyncGenerator[Step, None]:
    sampling = writing.sampling
    is_sampled = sampling.temperature > 0
    plain = Sampling(top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    if not is_sampled and replace(sampling, seed=None) != plain:
        message = (
            "penalties and logit_bias are not supported with an exact choice, unless the "
            "temperature is above 0"
        )
        raise Refusal(400, message, "invalid_value", "temperature")
    choice = await running.model.choose(
        writing.prompt,
        labels.texts,
        mode="sample" if is_sampled else "best",
        probabilities=True,
        sampling=sampling if is_sampled else None,
        wait=running.deadline.left,
    )
    if 0 < writing.max_tokens < len(choice.tokens):
        message = f"the choice has {len(choice.tokens)} tokens, more than max_tokens"
        raise Refusal(422, message, "incomplete_answer", "max_tokens")
    if with_steps:
        yield choice.text
    counts = _counts(choice.stats, len(choice.tokens))
    probabilities = dict(choice.probabilities or {})
    yield Written(choice.text, "stop", *counts, probabilities=probabilities)


async def _calls(
    running: Running, writing: Writing, use: ToolUse, with_steps: bool
) -> AsyncGenerator[Step, None]:
    session = running.model.session
    found = _steps(
        running,
        Jobs(session).tools,
        use.messages,
        use.tools,
        use.choice,
        with_steps=with_steps,
        ends_at_limit=True,
        words=writing.limit,
        max_calls=MOST_CALLS if use.is_parallel else 1,
        variables=use.variables,
        max_tokens=writing.max_tokens,
        sampling=writing.sampling,
        stop=writing.stop or None,
        method="tools",
    )
    async with aclosing(found) as steps:
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
                    await session.helpers.run(_check_whole, writing.limit, step)
                yield replace(
                    _written(step),
                    cached_tokens=step.cached_tokens,
                    probabilities=step.probabilities,
                )


def _written(result: GenerationResult) -> Written:
    return Written(
        result.text,
        "stop" if result.finish_reason in ("end", "stop") else "length",
        result.prompt_tokens,
        result.stats.prompt_tokens_reused if result.stats else 0,
        len(result.tokens),
        logprobs=result.logprobs,
    )


def _counts(stats: StreamStats | None, n_generated: int) -> tuple[int, int, int]:
    """Return the numbers of prompt tokens, of reused prompt tokens, and of generated tokens."""
    if stats is None:
        return 0, 0, n_generated
    return stats.prompt_tokens, stats.prompt_tokens_reused, n_generated
