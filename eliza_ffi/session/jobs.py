"""The requests of a model, checked and ready to run; the model's faces run or await them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..checks import check_whole
from ..choices.label_set import ChoiceResult, LabelSet, as_label_set
from ..errors import InvalidAnswerError, InvalidArgumentError
from ..library.binding import EotScore
from ..library.protocol import StreamConfig, StreamStep, Tokens
from ..structured.fill_result import FillResult, SpanFill
from ..structured.shape import is_shape
from ..structured.shaped_result import FieldFill, ShapedResult
from .filling import FillRequest, FillRun
from .generation import GenerationRun
from .lifecycle import Lifecycle, Work
from .options import AnyPrompt, CacheOptions
from .reading import Reading
from .request import GenerationRequest, RunResult
from .requests import (
    GenerationResult,
    ShapeRequest,
    Tries,
    checked_cache,
    checked_tokens,
    choice_of,
    choice_request,
    fill_request,
    generate_request,
    generation_of,
    shape_request,
)
from .saving import restore_work, save_work
from .session import Session
from .tool_calls import TextAnswer, ToolCalls, ToolRun, tool_request

__all__ = ["STEPS", "Jobs"]

R = TypeVar("R")

STEPS = (str, SpanFill, FieldFill)
"""Types of the steps of a request before its result."""


class Jobs:
    """Makes the requests of a model.

    Each method checks its arguments and returns the request. It may take longer than an event loop
    can wait, because it tokenizes the prompt.

    Parameters
    ----------
    session
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def text(
        self, prompt: AnyPrompt, *, method: str, is_told: bool | None = None, **settings: Any
    ) -> Work[str | GenerationResult]:
        """Return the request of a text.

        Parameters
        ----------
        prompt, **settings
            As :meth:`~eliza_ffi.Model.generate`.
        method
            The name of the caller's method, for errors.
        is_told
            Whether its pieces are asked for; None = if there is a callback for them.
        """
        request = generate_request(self.session, prompt, method=method, **settings)
        read = partial(generation_of, self.session)
        return self._work(request, lambda: _texts(request, is_told, read))

    def choice(
        self, prompt: AnyPrompt, labels: Any, *, method: str, **settings: Any
    ) -> Work[str | ChoiceResult[Any]]:
        """Return the request of a choice; parameters as :meth:`~eliza_ffi.Model.choose`."""
        label_set: LabelSet[Any] = as_label_set(labels)
        request = choice_request(self.session, prompt, label_set, method=method, **settings)

        def take() -> Callable[[Any], Iterator[str | ChoiceResult[Any]]]:
            begin = time.perf_counter()
            return _texts(
                request,
                None,
                lambda end: choice_of(label_set, request, end, time.perf_counter() - begin),
            )

        return self._work(request, take)

    def fill(
        self, prompt: AnyPrompt, shape: Any, *, method: str, is_told: bool, **settings: Any
    ) -> Work[SpanFill | FieldFill | FillResult]:
        """Return the request of a structured answer.

        Parameters
        ----------
        prompt, shape, **settings
            As :meth:`~eliza_ffi.Model.fill`.
        method
            The name of the caller's method, for errors.
        is_told
            Whether single spans or fields are asked for.
        """
        if is_shape(shape):
            return self._shape(
                shape_request(self.session, prompt, shape, method=method, **settings), is_told
            )
        request = fill_request(self.session, prompt, shape, method=method, **settings)
        is_json_form = isinstance(shape, Mapping)

        def take(step: SpanFill | FillResult) -> Iterator[SpanFill | FillResult]:
            if isinstance(step, FillResult):
                yield ShapedResult.of(step) if is_json_form else step
            elif is_told:
                yield step

        return self._work(request, lambda: take)

    def _shape(
        self, request: ShapeRequest, is_told: bool
    ) -> Work[SpanFill | FieldFill | FillResult]:
        def steps(tries: Tries) -> Generator[FieldFill | ShapedResult[Any], None, None]:
            while True:
                try:
                    take = Reading(tries.request.shape, is_told).take
                    with closing(_run_steps(tries.run)) as running:
                        for step in running:
                            yield from take(step)
                    return
                except InvalidAnswerError:
                    if not tries.again():
                        raise

        n_tokens, slot_id = _size_of(request.args)
        make = partial(Tries, request, self._begin)
        return Work(make, steps, n_tokens=n_tokens, slot_id=slot_id)

    def tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any],
        **settings: Any,
    ) -> Work[ToolCalls | TextAnswer]:
        """Return the request for tool calls; parameters as :meth:`~eliza_ffi.Model.call_tools`."""
        request = tool_request(self.session, messages, tools, choice, **settings)
        n_tokens, slot_id = _size_of(request.args)
        make = partial(ToolRun, request, self._begin, _run_steps)
        return Work(make, ToolRun.steps, n_tokens=n_tokens, slot_id=slot_id)

    def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> Work[EotScore]:
        """Return the request of a score; parameters as :meth:`~eliza_ffi.Model.end_of_turn`."""
        session = self.session
        if isinstance(prompt, str | Prompt):
            prompt = session.prompt_tokens(prompt)
        prompt = checked_tokens(prompt)
        if isinstance(end, str):
            tokens = session.tokenize(end, parse_special=True)
            if len(tokens) != 1:
                raise InvalidArgumentError(
                    f"end must be the text of one token: {end!r} has {len(tokens)}"
                )
            (end,) = tokens
        check_whole("end", end, 0)
        score = partial(session.binding.eot_score, session.ctx, prompt, end)

        def steps(life: Lifecycle) -> Generator[EotScore, None, None]:
            life.check()
            yield score()

        make = partial(Lifecycle, session.binding, session.ctx, "scoring")
        return Work(make, steps, n_tokens=len(prompt))

    def save(
        self, path: str | os.PathLike[str], prompt: AnyPrompt, cache: CacheOptions | None
    ) -> Work[int]:
        """Return the request that saves a prompt; parameters as :meth:`~eliza_ffi.Model.save`."""
        request = generate_request(self.session, prompt, method="save", cache=cache)
        return save_work(self.session, path, request)

    def restore(self, path: str | os.PathLike[str], cache: CacheOptions | None) -> Work[int]:
        """Return the request that reads such a file; as :meth:`~eliza_ffi.Model.restore`."""
        options = checked_cache(cache) or CacheOptions()
        config = StreamConfig(
            slot_id=options.slot,
            prompt_cache_key=options.key,
            n_gpu_layers=self.session.gpu_layers,
            cache_type_k=options.type_k,
            cache_type_v=options.type_v,
        )
        return restore_work(self.session, path, config)

    def _work(
        self,
        request: GenerationRequest | FillRequest,
        begin: Callable[[], Callable[[Any], Iterator[R]]],
    ) -> Work[R]:
        """Return a request; each run of it begins with a new function from steps to steps."""

        def steps(run: Any) -> Generator[R, None, None]:
            take = begin()
            with closing(_run_steps(run)) as running:
                for step in running:
                    yield from take(step)

        n_tokens, slot_id = _size_of(request)
        return Work(partial(self._begin, request), steps, n_tokens=n_tokens, slot_id=slot_id)

    def _begin(self, request: GenerationRequest | FillRequest) -> FillRun | GenerationRun:
        session = self.session
        if isinstance(request, FillRequest):
            return FillRun(session.binding, session.ctx, request)
        return GenerationRun(session.binding, session.ctx, request, session.warn_once)


def _run_steps(run: FillRun | GenerationRun) -> Generator[Any, None, None]:
    """Yield the steps of a run, the last of which is its result."""
    with closing(run.steps()) as steps:
        yield from steps
    yield run.result()


def _texts(
    request: GenerationRequest, is_told: bool | None, read: Callable[[RunResult], R]
) -> Callable[[Any], Iterator[str | R]]:
    """Return a function from the steps of a run to pieces of text and a result."""
    are_told = request.on_text is not None if is_told is None else is_told

    def take(step: StreamStep | RunResult) -> Iterator[str | R]:
        if isinstance(step, RunResult):
            yield read(step)
        elif are_told and step.text:
            yield step.text

    return take


def _size_of(request: GenerationRequest | FillRequest) -> tuple[int, int]:
    """Return the number of a request's prompt tokens, and its slot."""
    generation = request.generation if isinstance(request, FillRequest) else request
    return len(generation.prompt_tokens), generation.slot_id
