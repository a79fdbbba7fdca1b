"""Let the model reason before a constrained answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..chat.thinking import (
    ThinkingFormat,
    WrittenReasoning,
    known_thinking_format,
    thinking_format,
)
from ..checks import check_whole
from ..errors import ChatTemplateError, NotSupportedError
from ..library.protocol import Tokens
from ..sampling.params import Sampling
from .generation import Generation
from .ranking import RankRequest
from .requests import FillRequest, GenerationRequest, ShapeRequest
from .run import Run
from .tool_calls import ToolCalls, ToolRequest

if TYPE_CHECKING:
    from .session import Session

R = TypeVar("R")

Request = GenerationRequest | FillRequest | RankRequest | ShapeRequest | ToolRequest

LONGEST_MARKS = 32
"""The maximum number of tokens at the end of a prompt that are searched for reasoning marks."""


def generation_in(request: Request) -> GenerationRequest:
    """Return the part of a request that has its prompt."""
    return request if isinstance(request, GenerationRequest) else request.generation


def _with_prompt(request: Any, tokens: Tokens) -> Any:
    if isinstance(request, GenerationRequest):
        return replace(request, prompt_tokens=tokens)
    return replace(request, generation=_with_prompt(request.generation, tokens))


def thinking_first(
    session: Session,
    request: Request,
    n_tokens: int,
    steps_of: Callable[[Run[R], Any], Generator[R, None, None]],
    sampling: Sampling | None = None,
) -> Run[R]:
    """Return the run of a request that may let the model reason before it answers.

    The reasoning has at most `n_tokens` tokens (0 = no reasoning), which are the most probable ones
    unless `sampling` says otherwise. `steps_of` returns the steps of a run for a request of the
    same type as `request`.
    """
    generation = generation_in(request)
    slot = {"slot_id": generation.slot_id}
    if check_whole("think", n_tokens, 0) == 0:
        return Run(session, lambda run: steps_of(run, request), **slot)
    reasoning = Reasoning(session, generation, n_tokens, sampling)

    def steps(run: Run[R]) -> Generator[R, None, None]:
        found = reasoning.result(run)
        with closing(steps_of(run, _with_prompt(request, found.tokens))) as steps:
            for step in steps:
                yield _with_reasoning(step, found.text)

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


@dataclass(frozen=True)
class FinishedReasoning:
    """The reasoning that a model has written."""

    text: str
    # The prompt, the reasoning, and the text that ends it. The answer follows these tokens.
    tokens: list[int]


class Reasoning:
    """What a model writes before its answer to a request.

    `generation` has the prompt and the slot; `n_tokens` and `sampling` are as in
    :func:`thinking_first`.
    """

    def __init__(
        self,
        session: Session,
        generation: GenerationRequest,
        n_tokens: int,
        sampling: Sampling | None = None,
    ) -> None:
        self._session = session
        self._format = thinking_format(_template(session))
        self._prompt = _opened(session, list(generation.prompt_tokens), self._format)
        self._request = GenerationRequest(
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

    def result(self, run: Run[Any]) -> FinishedReasoning:
        """Let the model reason, as a part of a run."""
        read = self._session.tokenize
        stop = read(self._format.stop, False, True)
        writing = Generation(run, self._request, self._session.warn_once, at_once=True)
        with closing(writing.steps()) as steps:
            for step in steps:
                if len(stop) == 1 and stop[0] in step.tokens:
                    break
        text = writing.result().text.strip()
        end = read(self._format.end, False, True)
        return FinishedReasoning(text, [*self._prompt, *read(text, False, False), *end])


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


def _with_reasoning(result: Any, text: str) -> Any:
    if isinstance(result, ToolCalls):
        return ToolCalls(replace(call, reasoning=text) for call in result)
    has_field = is_dataclass(result) and any(each.name == "reasoning" for each in fields(result))
    return replace(result, reasoning=text) if has_field and not isinstance(result, type) else result
