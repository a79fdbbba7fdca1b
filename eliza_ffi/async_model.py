"""The same face for an event loop: everything that takes time runs on threads and is awaited."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import NDArray

from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import check_callback, check_kind
from .choices.label_set import ChoiceResult, LabelSet, as_label_set
from .choices.prepared_labels import PreparedLabels
from .decisions.answers import Decision
from .decisions.asking import WritePrompt, score_work
from .decisions.calibration import Calibration
from .decisions.deciding import DecisionRun, Settings, settings_for
from .decisions.prompts import LabelStyle, check_one_input
from .decisions.questions import Question
from .decisions.scoring import Rule
from .decisions.wire import as_questions
from .errors import GenerationCancelled
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import StreamConfig, Tokens
from .model import TOLD, E, Model, T, V
from .sampling.params import Sampling
from .session.batches import choices_for, length_of, one_or_several, run_many_async
from .session.filling import Fillable
from .session.lifecycle import Work
from .session.requests import (
    MOST_TOKENS,
    ChoiceMode,
    GenerationResult,
    Tokenization,
    check_prompts,
    choice_request,
    fill_request,
    generate_request,
    prompt_of,
    shape_request,
)
from .session.saving import restore_work, save_work
from .session.scoring import ScoreResult
from .session.session import Session
from .session.threads import tell
from .session.tool_calls import MOST_CALLS, TextAnswer, ToolCall, ToolCalls, one_call, tool_request
from .structured.fill_result import FillResult, SpanFill
from .structured.shape import Lark, Regex, is_shape
from .structured.shaped_result import FieldFill, ShapedResult
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session.requests import (
        ChoiceSettings,
        FillSettings,
        StreamSettings,
        Strings,
        TextSettings,
    )
    from .session.tool_calls import ToolSettings

__all__ = ["AsyncModel"]


class AsyncModel:
    """A language model, loaded and ready, for an event loop.

    Its methods are those of :class:`~eliza_ffi.model.Model`, take the same arguments and are
    awaited. Requests are prepared and run on threads, so that the event loop is not held up.

    Cancelling a task ends the forward pass of its request alone. The call returns when its thread
    has ended and its slot is free again: :meth:`embed`, :meth:`end_of_turn` and :meth:`restore` end
    with the text, turn or file they are at. Leave iterators early through ``aclose()`` or
    `contextlib.aclosing`.

    Callbacks are called on the event loop, and awaited if they return something that can be
    awaited. The exception is `progress` of the class, a plain function that the loading thread or a
    request's thread calls.

    Parameters
    ----------
    path, library, n_ctx, n_slots, n_threads, n_gpu_layers, seed, lora, progress, options
        As :class:`~eliza_ffi.model.Model`. Loading takes its time here: :meth:`open` does not hold
        the event loop up.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        library: str | os.PathLike[str] | Library | None = None,
        n_ctx: int = 0,
        n_slots: int | None = None,
        n_threads: int = 0,
        n_gpu_layers: int = -1,
        seed: int | None = None,
        lora: Iterable[tuple[str | os.PathLike[str], float]] = (),
        progress: Callable[[str, float], None] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._model = Model(
            path,
            library=library,
            n_ctx=n_ctx,
            n_slots=n_slots,
            n_threads=n_threads,
            n_gpu_layers=n_gpu_layers,
            seed=seed,
            lora=lora,
            progress=progress,
            options=options,
        )

    @classmethod
    async def open(cls, path: str | os.PathLike[str] | None = None, **more: Any) -> AsyncModel:
        """Load a model on a thread; parameters as the class."""
        return await asyncio.to_thread(cls, path, **more)

    @classmethod
    def of(cls, model: Model) -> AsyncModel:
        """Return this face of a model that is open; both are closed together."""
        check_kind("model", model, Model, "an open Model")
        face = cls.__new__(cls)
        face._model = model
        return face

    def close(self) -> None:
        """Free the model; running generations are cancelled. Closing twice is harmless.

        This blocks until the model is freed. ``async with`` does it on a thread.
        """
        self._model.close()

    async def __aenter__(self) -> AsyncModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"AsyncModel({self.session})"

    @property
    def session(self) -> Session:
        """The model's context."""
        return self._model.session

    @property
    def path(self) -> str:
        """The model's file, or its bundle."""
        return self._model.path

    @property
    def binding(self) -> CffiBinding:
        """The library's functions."""
        return self._model.binding

    # ---- What the model is ----------------------------------------------------------------------

    async def describe(self) -> dict[str, Any]:
        """As :meth:`Model.describe <eliza_ffi.model.Model.describe>`."""
        return await self._prepared(self._model.describe)

    async def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """As :meth:`Model.tokenize <eliza_ffi.model.Model.tokenize>`."""
        return await self._prepared(self._model.tokenize, text, add_special, parse_special)

    async def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """As :meth:`Model.prompt_tokens <eliza_ffi.model.Model.prompt_tokens>`."""
        return await self._prepared(self._model.prompt_tokens, prompt)

    async def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """As :meth:`Model.detokenize <eliza_ffi.model.Model.detokenize>`."""
        return await self._prepared(self._model.detokenize, tokens, unparse_special)

    async def token_texts(self) -> TokenTexts:
        """As :meth:`Model.token_texts <eliza_ffi.model.Model.token_texts>`."""
        return await self._prepared(self._model.token_texts)

    async def chat_template(self) -> ChatTemplate:
        """Return the model's chat template; raises `ChatTemplateError` where there is none."""
        return await self._prepared(lambda: self._model.chat_template)

    async def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """As :meth:`Model.chat_tokens <eliza_ffi.model.Model.chat_tokens>`."""
        return await self._prepared(lambda: self._model.chat_tokens(messages, **more))

    async def embed(self, text: str | Iterable[str], pooling: str = "mean") -> NDArray[np.float32]:
        """As :meth:`Model.embed <eliza_ffi.model.Model.embed>`."""
        is_cancelled = threading.Event()

        def check() -> None:
            if is_cancelled.is_set():
                raise GenerationCancelled("the embedding was cancelled")

        _ = self.session.ctx  # is it open?
        return await self.session.workers.run(
            self._model._embed, text, pooling, check, cancel=is_cancelled.set
        )

    async def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """As :meth:`Model.end_of_turn <eliza_ffi.model.Model.end_of_turn>`."""
        work = await self._prepared(self._model._end_of_turn_work, prompt, end)
        return cast(EotScore, await self._run(work, True))

    # ---- Texts ----------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: str | Prompt | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        sampling: Sampling | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        on_text_chunk: Callable[[str], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> GenerationResult:
        """As :meth:`Model.generate <eliza_ffi.model.Model.generate>`."""
        request = partial(
            generate_request,
            self.session,
            prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            sampling=sampling,
            grammar=grammar,
            draft_max=draft_max,
            drafter=drafter,
            on_text_chunk=on_text_chunk,
            method="generate",
            **more,
        )
        work = await self._prepared(lambda: self._model._text_work(request()))
        return cast(GenerationResult, await self._run(work, wait, on_text_chunk))

    async def stream(
        self,
        prompt: str | Prompt | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        sampling: Sampling | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> AsyncGenerator[str, None]:
        """As :meth:`Model.stream <eliza_ffi.model.Model.stream>`."""
        request = partial(
            generate_request,
            self.session,
            prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            sampling=sampling,
            grammar=grammar,
            draft_max=draft_max,
            drafter=drafter,
            method="stream",
            **more,
        )
        work = await self._prepared(lambda: self._model._text_work(request(), True))
        async with aclosing(self.session.steps_async(work, wait)) as steps:
            async for step in steps:
                if isinstance(step, str):
                    yield step

    async def generate_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        max_tokens: int = 256,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Any,
    ) -> list[GenerationResult]:
        """As :meth:`Model.generate_many <eliza_ffi.model.Model.generate_many>`."""

        async def one(prompt: str | Prompt | Tokens | Messages) -> GenerationResult:
            def prepare() -> Work[str | GenerationResult]:
                args = generate_request(
                    self.session,
                    **prompt_of(prompt),
                    max_tokens=max_tokens,
                    method="generate_many",
                    **settings,
                )
                return self._model._text_work(args)

            work = await self._prepared(prepare)
            return cast(
                GenerationResult, await self._run(work, True, settings.get("on_text_chunk"))
            )

        check_prompts(prompts, "generate")
        return await run_many_async(
            prompts,
            one,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(prompts),
            progress=progress,
            return_exceptions=return_exceptions,
        )

    # ---- Choices --------------------------------------------------------------------------------

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: type[E],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[E]: ...

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: type[bool],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[bool]: ...

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: Mapping[str, V] | LabelSet[V],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[V]: ...

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: Strings,
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[str]: ...

    @overload
    async def choose(
        self,
        prompt: None = ...,
        *,
        choices: type[E],
        messages: Messages,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[E]: ...

    @overload
    async def choose(
        self,
        prompt: None = ...,
        *,
        choices: Strings,
        messages: Messages,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[str]: ...

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        choices: Any = ...,
        *,
        messages: Messages | None = ...,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[Any]: ...

    async def choose(
        self,
        prompt: str | Prompt | Tokens | None = None,
        choices: Any = None,
        *,
        messages: Messages | None = None,
        mode: str = "greedy",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: str = "own",
        wait: bool | float = True,
        **more: Any,
    ) -> ChoiceResult[Any]:
        """As :meth:`Model.choose <eliza_ffi.model.Model.choose>`."""

        def prepare() -> Work[str | ChoiceResult[Any]]:
            choice_set = as_label_set(choices)
            args = choice_request(
                self.session,
                prompt,
                choice_set,
                messages=messages,
                mode=mode,
                temperature=temperature,
                tokenization=tokenization,
                probabilities=probabilities,
                method="choose",
                **more,
            )
            return self._model._choice_work(choice_set, args)

        work = await self._prepared(prepare)
        return cast(ChoiceResult[Any], await self._run(work, wait, more.get("on_text_chunk")))

    @overload
    async def prepare_labels(self, choices: type[E]) -> PreparedLabels[E]: ...

    @overload
    async def prepare_labels(self, choices: type[bool]) -> PreparedLabels[bool]: ...

    @overload
    async def prepare_labels(self, choices: Mapping[str, V] | LabelSet[V]) -> PreparedLabels[V]: ...

    @overload
    async def prepare_labels(self, choices: Strings) -> PreparedLabels[str]: ...

    @overload
    async def prepare_labels(self, choices: Any) -> PreparedLabels[Any]: ...

    async def prepare_labels(self, choices: Any) -> PreparedLabels[Any]:
        """As :meth:`Model.prepare_labels <eliza_ffi.model.Model.prepare_labels>`."""
        return await self._prepared(self._model.prepare_labels, choices)

    async def choose_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        choices: Any,
        *,
        mode: ChoiceMode = "greedy",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "own",
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[ChoiceSettings],
    ) -> list[ChoiceResult[Any]]:
        """As :meth:`Model.choose_many <eliza_ffi.model.Model.choose_many>`."""

        async def one(item: tuple[str | Prompt | Tokens | Messages, Any]) -> ChoiceResult[Any]:
            def prepare() -> Work[str | ChoiceResult[Any]]:
                prompt, choice_set = item[0], as_label_set(item[1])
                args = choice_request(
                    self.session,
                    **prompt_of(prompt),
                    choices=choice_set,
                    mode=mode,
                    temperature=temperature,
                    tokenization=tokenization,
                    probabilities=probabilities,
                    method="choose_many",
                    **more,
                )
                return self._model._choice_work(choice_set, args)

            work = await self._prepared(prepare)
            return cast(ChoiceResult[Any], await self._run(work, True, more.get("on_text_chunk")))

        check_prompts(prompts, "choose")
        return await run_many_async(
            choices_for(prompts, await self._prepared(one_or_several, choices)),
            one,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(prompts),
            progress=progress,
            return_exceptions=return_exceptions,
        )

    # ---- Decisions ------------------------------------------------------------------------------

    async def decide(
        self,
        input: Any,
        questions: Any,
        *,
        labels: LabelStyle | None = None,
        orders: int | None = None,
        prompt: WritePrompt | None = None,
        scoring: Rule | None = None,
        calibration: Calibration | str | os.PathLike[str] | None = None,
        option_mass: bool = False,
        abstain_below: float = 0.0,
        wait: bool | float = True,
        **more: Unpack[StreamSettings],
    ) -> Decision:
        """As :meth:`Model.decide <eliza_ffi.model.Model.decide>`."""
        check_one_input(input)
        asked, settings = await self._asked(
            questions,
            calibration=calibration,
            labels=labels,
            orders=orders,
            prompt=prompt,
            scoring=scoring,
            option_mass=option_mass,
            abstain_below=abstain_below,
            stream=more,
        )
        return await self._decide(input, asked, settings, wait)

    async def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Any,
        *,
        labels: LabelStyle | None = None,
        orders: int | None = None,
        prompt: WritePrompt | None = None,
        scoring: Rule | None = None,
        calibration: Calibration | str | os.PathLike[str] | None = None,
        option_mass: bool = False,
        abstain_below: float = 0.0,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[StreamSettings],
    ) -> list[Decision]:
        """As :meth:`Model.decide_many <eliza_ffi.model.Model.decide_many>`."""
        check_prompts(inputs, "decide", "inputs")
        asked, settings = await self._asked(
            questions,
            calibration=calibration,
            labels=labels,
            orders=orders,
            prompt=prompt,
            scoring=scoring,
            option_mass=option_mass,
            abstain_below=abstain_below,
            stream=more,
        )
        return await run_many_async(
            inputs,
            lambda given: self._decide(given, asked, settings, True, max_concurrency),
            at_once=await self._prepared(self.session.decisions_at_once, max_concurrency),
            total=length_of(inputs),
            progress=progress,
            return_exceptions=return_exceptions,
        )

    async def decision_prompts(
        self,
        input: Any,
        questions: Any,
        *,
        labels: LabelStyle = "text",
        orders: int = 1,
        prompt: WritePrompt | None = None,
    ) -> list[str]:
        """As :meth:`Model.decision_prompts <eliza_ffi.model.Model.decision_prompts>`."""
        return await self._prepared(
            partial(self._model.decision_prompts, labels=labels, orders=orders, prompt=prompt),
            input,
            questions,
        )

    # ---- Structured answers ---------------------------------------------------------------------

    @overload
    async def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Fillable | None = ...,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> FillResult: ...

    @overload
    async def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        *,
        skeleton: type[T],
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    async def fill(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: type[T],
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    async def fill(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: Regex | Lark,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[str]: ...

    @overload
    async def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Mapping[str, Any] = ...,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[Any]: ...

    async def fill(
        self,
        prompt: str | Prompt | Tokens | None = None,
        skeleton: Any = None,
        *,
        messages: Messages | None = None,
        on_span: Callable[[Any], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[FillSettings],
    ) -> Any:
        """As :meth:`Model.fill <eliza_ffi.model.Model.fill>`."""
        check_callback("on_span", on_span)
        more_of_both: dict[str, Any] = {"messages": messages, "method": "fill", **more}
        work = await self._fill_work(prompt, skeleton, more_of_both, on_span is not None)
        result: FillResult = await self._run(work, wait, on_span)
        if isinstance(skeleton, Mapping) and not isinstance(result, ShapedResult):
            return ShapedResult.of(result)
        return result

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Fillable | None = ...,
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> AsyncGenerator[SpanFill | FillResult, None]: ...

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: type[T],
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> AsyncGenerator[FieldFill | ShapedResult[T], None]: ...

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Mapping[str, Any] | Regex | Lark = ...,
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> AsyncGenerator[SpanFill | FieldFill | FillResult, None]: ...

    async def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = None,
        skeleton: Any = None,
        *,
        messages: Messages | None = None,
        wait: bool | float = True,
        **more: Unpack[FillSettings],
    ) -> AsyncGenerator[Any, None]:
        """As :meth:`Model.fill_stream <eliza_ffi.model.Model.fill_stream>`."""
        more_of_both: dict[str, Any] = {"messages": messages, "method": "fill_stream", **more}
        work = await self._fill_work(prompt, skeleton, more_of_both, True)
        async with aclosing(self.session.steps_async(work, wait)) as steps:
            async for step in steps:
                yield step

    async def fill_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        skeleton: Fillable | Mapping[str, Any] | Regex | Lark | type[Any],
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[FillSettings],
    ) -> list[FillResult]:
        """As :meth:`Model.fill_many <eliza_ffi.model.Model.fill_many>`."""

        async def one(prompt: str | Prompt | Tokens | Messages) -> FillResult:
            asked: dict[str, Any] = {**prompt_of(prompt), "method": "fill_many", **more}
            work = await self._fill_work(asked.pop("prompt"), skeleton, asked, False)
            return cast(FillResult, await self._run(work, True))

        check_prompts(prompts, "fill")
        return await run_many_async(
            prompts,
            one,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(prompts),
            progress=progress,
            return_exceptions=return_exceptions,
        )

    # ---- Tool calls -----------------------------------------------------------------------------

    @overload
    async def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: Literal["required"],
        *,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCall: ...

    @overload
    async def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = ...,
        *,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer: ...

    async def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = "auto",
        *,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        wait: bool | float = True,
        **more: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer:
        """As :meth:`Model.call_tool <eliza_ffi.model.Model.call_tool>`."""
        request = partial(
            tool_request,
            self.session,
            messages,
            tools,
            choice,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tool",
            **more,
        )
        work = await self._prepared(lambda: self._model._tool_work(request()))
        return one_call(await self._run(work, wait))

    @overload
    async def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: Literal["required"],
        *,
        max_calls: int = ...,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls: ...

    @overload
    async def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = ...,
        *,
        max_calls: int = ...,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer: ...

    async def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = "auto",
        *,
        max_calls: int = MOST_CALLS,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        wait: bool | float = True,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """As :meth:`Model.call_tools <eliza_ffi.model.Model.call_tools>`."""
        request = partial(
            tool_request,
            self.session,
            messages,
            tools,
            choice,
            max_calls=max_calls,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tools",
            **more,
        )
        work = await self._prepared(lambda: self._model._tool_work(request()))
        return cast(ToolCalls | TextAnswer, await self._run(work, wait))

    # ---- Prompts on disk ------------------------------------------------------------------------

    async def save(
        self,
        path: str | os.PathLike[str],
        prompt: str | Prompt | Tokens | None = None,
        *,
        messages: Messages | None = None,
        wait: bool | float = True,
        **more: Unpack[StreamSettings],
    ) -> int:
        """As :meth:`Model.save <eliza_ffi.model.Model.save>`."""

        def prepare() -> Work[int]:
            args = generate_request(self.session, prompt, messages=messages, method="save", **more)
            return save_work(self.session, path, args)

        return cast(int, await self._run(await self._prepared(prepare), wait))

    async def restore(
        self,
        path: str | os.PathLike[str],
        *,
        slot_id: int = -1,
        prompt_cache_key: str | None = None,
        cache_type_k: str | None = None,
        cache_type_v: str | None = None,
        wait: bool | float = True,
    ) -> int:
        """As :meth:`Model.restore <eliza_ffi.model.Model.restore>`."""
        config = StreamConfig(
            slot_id=slot_id,
            prompt_cache_key=prompt_cache_key,
            n_gpu_layers=self.session.n_gpu_layers,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
        )
        return cast(int, await self._run(restore_work(self.session, path, config), wait))

    # ---- Requests -------------------------------------------------------------------------------

    async def _prepared(self, prepare: Callable[..., T], *arguments: Any) -> T:
        """Return what a call returns that takes no slot, and runs on a thread."""
        _ = self.session.ctx  # is it open, and ours?
        return await self.session.helpers.run(prepare, *arguments)

    async def _run(
        self, work: Work[Any], wait: bool | float, callback: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return the result of a request, and tell of the steps before it."""
        async with aclosing(self.session.steps_async(work, wait)) as steps:
            async for step in steps:
                if not isinstance(step, TOLD):
                    return step
                await tell(callback, step)
        raise AssertionError("the last step is the result")

    async def _fill_work(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: Any,
        more: Mapping[str, Any],
        is_told: bool,
    ) -> Work[Any]:
        def prepare() -> Work[Any]:
            if is_shape(skeleton):
                request = shape_request(self.session, prompt, skeleton, **more)
                return self._model._shape_work(request, is_told)
            args = fill_request(self.session, prompt, skeleton, **more)
            return self._model._fill_work(args, is_told)

        return await self._prepared(prepare)

    async def _asked(self, questions: Any, **more: Any) -> tuple[Sequence[Question], Settings]:
        def prepare() -> tuple[Sequence[Question], Settings]:
            asked = as_questions(questions)
            return asked, settings_for(self.session, asked, **more)

        return await self._prepared(prepare)

    async def _decide(
        self,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        wait: bool | float,
        at_once: int | None = None,
    ) -> Decision:
        def prepare() -> tuple[DecisionRun, Work[ScoreResult]]:
            decision = DecisionRun(self.session, given, questions, settings)
            return decision, score_work(self.session, decision.args, at_once)

        decision, work = await self._prepared(prepare)
        return await self._prepared(decision.decision, await self._run(work, wait))
