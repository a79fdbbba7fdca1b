"""Let the model reason before a constrained answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..chat.thinking import (
    ThinkingFormat,
    WrittenReasoning,
    known_thinking_format,
    thinking_format,
)
from ..checks import check_whole
from ..errors import ChatTemplateError, NotSupportedError
from ..library.protocol import StreamStep, Tokens
from ..sampling.params import Sampling
from .generation import Generation
from .requests import Request
from .results import GenerationResult, ReasoningPiece
from .run import Run
from .tool_calls import TextAnswer, ToolCalls

if TYPE_CHECKING:
    from .session import Session

R = TypeVar("R")


@dataclass(frozen=True)
class Thinking:
    """Settings of the reasoning before a constrained answer, besides its length.

    With `with_steps`, the run yields the reasoning as :class:`~.results.ReasoningPiece` objects.
    """

    n_tokens: int  # the maximum length
    with_steps: bool = False
    on_end: Callable[[Reasoning], Any] | None = None


def checked_thinking(think: int | Thinking) -> Thinking | None:
    """Return the settings of the reasoning; None if the model is not to reason."""
    how = think if isinstance(think, Thinking) else Thinking(think)
    return how if check_whole("think", how.n_tokens, 0) else None


LONGEST_MARKS = 32
"""The maximum number of tokens at the end of a prompt that are searched for reasoning marks."""


def thinking_first(
    session: Session,
    request: Request,
    think: Thinking | None,
    steps_of: Callable[[Run[R], Request], Generator[R, None, None]],
    sampling: Sampling | None = None,
) -> Run[R]:
    """Return the run of a request that may let the model reason before it answers.

    The reasoning has the most probable tokens unless `sampling` says otherwise. `steps_of` returns
    the steps of a run for a request.
    """
    slot = {"slot_id": request.slot_id}
    if think is None:
        known: Any = partial(steps_of, request=request)  # type: ignore[call-arg]
        return Run(session, known, **slot)
    reasoning = Reasoning(session, request, think.n_tokens, sampling)

    def steps(run: Run[Any]) -> Generator[Any, None, None]:
        yield from reasoning.steps(run, think.with_steps)
        if think.on_end is not None:
            think.on_end(reasoning)
        with closing(steps_of(run, replace(request, prompt_tokens=reasoning.tokens))) as steps:
            for step in steps:
                yield _with_reasoning(step, reasoning)

    return Run(session, steps, **slot)


def written_reasoning(session: Session, prompt: Tokens) -> WrittenReasoning | None:
    """Return how the model writes reasoning; None if its chat template has no reasoning.

    `prompt` is a conversation in the model's chat template.
    """
    format = known_thinking_format(_template(session))
    if format is None:
        return None
    last = session.detokenize(prompt[-LONGEST_MARKS:], unparse_special=True)
    vocabulary = session.vocabulary()
    marks = vocabulary.controls.intersection(
        session.tokenize(format.start + format.end, False, True)
    )
    control = {token: vocabulary.texts[token].decode("utf-8", "replace") for token in marks}
    return WrittenReasoning(format, format.is_open(last), control)


class Reasoning:
    """What a model writes before its answer to a request.

    `generation` has the prompt and the slot; `n_tokens` and `sampling` are as in
    :func:`thinking_first`.

    Attributes
    ----------
    text : str
        The reasoning, at the end.
    tokens : list of int
        The prompt, the reasoning, and the text that ends it. The answer follows these tokens.
    n_prompt, n_cached, n_generated : int
        The number of tokens of the prompt, how many of them were reused from the KV cache, and the
        number of tokens of the reasoning.
    n_passes : int
        The number of forward passes; -1 if the library does not count them.
    """

    def __init__(
        self,
        session: Session,
        generation: Request,
        n_tokens: int,
        sampling: Sampling | None = None,
    ) -> None:
        self._session = session
        self._format = thinking_format(_template(session))
        self._prompt = _opened(session, list(generation.prompt_tokens), self._format)
        self.text, self.tokens = "", self._prompt
        self.n_prompt, self.n_cached, self.n_generated = len(self._prompt), 0, 0
        self.n_passes = -1
        self._request = Request(
            prompt_tokens=self._prompt,
            max_tokens=n_tokens,
            sampling=sampling,
            stop=(self._format.stop,),
            slot_id=generation.slot_id,
            prompt_cache_key=generation.prompt_cache_key,
            cache_type_k=generation.cache_type_k,
            cache_type_v=generation.cache_type_v,
            n_gpu_layers=generation.n_gpu_layers,
        )

    def steps(
        self, run: Run[Any], with_steps: bool = False
    ) -> Generator[ReasoningPiece, None, None]:
        """Let the model reason, as a part of a run; yield the pieces of the text if requested."""
        session, read = self._session, self._session.tokenize
        stop = read(self._format.stop, False, True)
        # The text leaves control tokens out, so `stop` of the request does not find them.
        last = stop[0] if len(stop) == 1 and stop[0] in session.vocabulary().controls else None
        at_once = last is None and not with_steps
        writing = Generation(run, self._request, session.warn_once, at_once=at_once, last=last)
        n_written, space = 0, ""  # whitespace around the reasoning is left out
        with closing(writing.steps()) as steps:
            for step in steps:
                if with_steps and isinstance(step, StreamStep):
                    text = space + step.text if n_written else step.text.lstrip()
                    piece = ReasoningPiece(text.rstrip())
                    space = text[len(piece) :]
                    n_written += len(piece)
                    if piece:
                        yield piece
        self.text = writing.text.strip()
        end = read(self._format.end, False, True)
        self.tokens = [*self._prompt, *read(self.text, False, False), *end]
        if writing.stats:
            self.n_cached = writing.stats.prompt_tokens_reused
            self.n_passes = writing.stats.forward_passes
        self.n_generated = len(writing.tokens)


def _template(session: Session) -> str:
    try:
        return session.chat().template.source
    except (ChatTemplateError, NotSupportedError):
        return ""


def _opened(session: Session, prompt: list[int], format: ThinkingFormat) -> list[int]:
    """Return a prompt that ends where the reasoning begins."""

    def text_of_last(n: int) -> str:
        return session.detokenize(prompt[len(prompt) - n :], unparse_special=True)

    n_most = min(LONGEST_MARKS, len(prompt))
    if format.is_open(text_of_last(n_most)):
        return prompt
    # Some templates close the reasoning at once, to prevent it.
    for n in range(1, n_most + 1):
        if format.closed_at(text_of_last(n)) == 0:
            longer = n + 1 <= n_most and format.closed_at(text_of_last(n + 1)) == 0
            if not longer:
                prompt = prompt[: len(prompt) - n]
                break
    return [*prompt, *session.tokenize(format.start, False, True)]


def _with_reasoning(result: Any, found: Reasoning) -> Any:
    """Return a result with the reasoning. The counts of the whole turn then include it."""
    if isinstance(result, ToolCalls):
        calls = ToolCalls(replace(call, reasoning=found.text) for call in result)
        calls.prompt_tokens, calls.cached_tokens = found.n_prompt, found.n_cached
        calls.generated_tokens = found.n_generated + result.generated_tokens
        calls.is_truncated = result.is_truncated
        return calls
    more: dict[str, Any] = {"reasoning": found.text}
    if isinstance(result, GenerationResult):
        more["prompt_tokens"] = found.n_prompt
    if isinstance(result, TextAnswer):
        more["cached_tokens"] = found.n_cached
    has_field = is_dataclass(result) and any(each.name == "reasoning" for each in fields(result))
    return replace(result, **more) if has_field and not isinstance(result, type) else result
