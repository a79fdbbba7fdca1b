"""The same face for an event loop: whatever takes time is awaited."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from .batches import choices_for, length_of, run_many_async
from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import check_callback, check_kind, check_one_of
from .choices.choice_set import Choice, ChoiceSet, as_choice_set
from .choices.chooser import Chooser
from .decisions.answers import Decision
from .decisions.asking import WritePrompt
from .decisions.calibration import Calibration
from .decisions.deciding import DecisionRun, Settings, settings_for, takes_long
from .decisions.prompts import LabelStyle, check_one_input
from .decisions.questions import Question
from .decisions.scoring import Rule
from .decisions.wire import as_questions
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .masks.token_texts import TokenTexts
from .model import E, Model, T, V
from .requests import (
    ChoiceMode,
    Generation,
    ShapeRequest,
    Tokenization,
    check_prompts,
    choice_of,
    choice_request,
    fill_request,
    generate_request,
    generation_of,
    prompt_of,
    shape_request,
)
from .runner.arguments import FfiStreamingGenerateArgs
from .runner.filling import Fillable, FillArgs
from .runner.scoring import ScoreRun
from .runner.streaming import FfiStreamingRunner
from .sampling.params import SamplingParams
from .session import Session
from .shapes.reading import FieldFill, Reading, ShapedResult, Step
from .shapes.shape import Lark, Regex, is_shape
from .skeleton.actions import Action
from .skeleton.fill_result import FillResult, SpanFill
from .skeleton.planning import ActionSkeleton

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .requests import ChoiceSettings, FillSettings, StreamSettings, Strings, TextSettings

__all__ = ["AsyncModel"]


class AsyncModel:
    """A language model, loaded and ready, for an event loop.

    Its methods are those of :class:`~eliza_ffi.model.Model` and take the same arguments. Those that
    run the model are awaited, and cancelling the task ends the forward pass of its request alone:
    the call returns when its slot is free again. Iterators are left early through ``aclose()`` or
    `contextlib.aclosing`.

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
        """Free the model; running generations are cancelled. Closing twice is harmless."""
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

    @property
    def runner(self) -> FfiStreamingRunner:
        """elizaOS's asynchronous runner over this model."""
        return self._model.runner

    # ---- What the model is ----------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """As :meth:`Model.describe <eliza_ffi.model.Model.describe>`."""
        return self._model.describe()

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """As :meth:`Model.tokenize <eliza_ffi.model.Model.tokenize>`."""
        return self._model.tokenize(text, add_special, parse_special)

    def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """As :meth:`Model.prompt_tokens <eliza_ffi.model.Model.prompt_tokens>`."""
        return self._model.prompt_tokens(prompt)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """As :meth:`Model.detokenize <eliza_ffi.model.Model.detokenize>`."""
        return self._model.detokenize(tokens, unparse_special)

    async def token_texts(self) -> TokenTexts:
        """As :meth:`Model.token_texts <eliza_ffi.model.Model.token_texts>`."""
        return await asyncio.to_thread(self._model.token_texts)

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; raises `ChatTemplateError` where there is none."""
        return self._model.chat_template

    def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """As :meth:`Model.chat_tokens <eliza_ffi.model.Model.chat_tokens>`."""
        return self._model.chat_tokens(messages, **more)

    async def embed(self, text: str | Iterable[str], pooling: str = "mean") -> NDArray[np.float32]:
        """As :meth:`Model.embed <eliza_ffi.model.Model.embed>`."""
        return await asyncio.to_thread(self._model.embed, text, pooling)

    async def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """As :meth:`Model.end_of_turn <eliza_ffi.model.Model.end_of_turn>`."""
        return await asyncio.to_thread(self._model.end_of_turn, prompt, end)

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
        sampling: SamplingParams | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        on_text_chunk: Callable[[str], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> Generation:
        """As :meth:`Model.generate <eliza_ffi.model.Model.generate>`.

        What `on_text_chunk` returns is awaited if that can be.
        """
        args = generate_request(
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
        return await self._generate(args, wait)

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
        sampling: SamplingParams | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> AsyncGenerator[str, None]:
        """As :meth:`Model.stream <eliza_ffi.model.Model.stream>`."""
        args = generate_request(
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
        async with (
            self.session.turns.one_async(wait),
            aclosing(self.runner.generate_stream(args)) as steps,
        ):
            async for step in steps:
                if step.text:
                    yield step.text

    async def generate_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        max_tokens: int = 256,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Any,
    ) -> list[Generation]:
        """As :meth:`Model.generate_many <eliza_ffi.model.Model.generate_many>`."""

        async def one(prompt: str | Prompt | Tokens | Messages) -> Generation:
            args = generate_request(
                self.session,
                **prompt_of(prompt),
                max_tokens=max_tokens,
                method="generate_many",
                **settings,
            )
            return await self._generate(args, True)

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
    ) -> Choice[E]: ...

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
    ) -> Choice[bool]: ...

    @overload
    async def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: Mapping[str, V] | ChoiceSet[V],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> Choice[V]: ...

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
    ) -> Choice[str]: ...

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
    ) -> Choice[E]: ...

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
    ) -> Choice[str]: ...

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
    ) -> Choice[Any]: ...

    async def choose(
        self,
        prompt: str | Prompt | Tokens | None = None,
        choices: Any = None,
        *,
        messages: Messages | None = None,
        mode: str = "argmax",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: str = "own",
        wait: bool | float = True,
        **more: Any,
    ) -> Choice[Any]:
        """As :meth:`Model.choose <eliza_ffi.model.Model.choose>`."""
        choice_set = as_choice_set(choices)
        await self._prepare(choice_set, tokenization)
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
        return await self._choose(choice_set, args, wait)

    @overload
    async def chooser(self, choices: type[E]) -> Chooser[E]: ...

    @overload
    async def chooser(self, choices: type[bool]) -> Chooser[bool]: ...

    @overload
    async def chooser(self, choices: Mapping[str, V] | ChoiceSet[V]) -> Chooser[V]: ...

    @overload
    async def chooser(self, choices: Strings) -> Chooser[str]: ...

    @overload
    async def chooser(self, choices: Any) -> Chooser[Any]: ...

    async def chooser(self, choices: Any) -> Chooser[Any]:
        """As :meth:`Model.chooser <eliza_ffi.model.Model.chooser>`."""
        return await asyncio.to_thread(self._model.chooser, choices)

    async def choose_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        choices: Any,
        *,
        mode: ChoiceMode = "argmax",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "own",
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[ChoiceSettings],
    ) -> list[Choice[Any]]:
        """As :meth:`Model.choose_many <eliza_ffi.model.Model.choose_many>`."""

        async def one(item: tuple[str | Prompt | Tokens | Messages, ChoiceSet[Any]]) -> Choice[Any]:
            prompt, choice_set = item
            await self._prepare(choice_set, tokenization)
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
            return await self._choose(choice_set, args, True)

        check_prompts(prompts, "choose")
        return await run_many_async(
            choices_for(prompts, choices),
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
        asked = as_questions(questions)
        settings = await self._settings(
            asked,
            calibration,
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
        asked = as_questions(questions)
        settings = await self._settings(
            asked,
            calibration,
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
            at_once=self.session.decisions_at_once(max_concurrency),
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
        return await asyncio.to_thread(
            self._model.decision_prompts,
            input,
            questions,
            labels=labels,
            orders=orders,
            prompt=prompt,
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
        if is_shape(skeleton):
            return await self._fill_shape(prompt, skeleton, more_of_both, wait, on_span)
        args = fill_request(self.session, prompt, skeleton, **more_of_both)
        result = await self._fill(args, wait, on_span)
        return ShapedResult.of(result) if isinstance(skeleton, Mapping) else result

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
        if is_shape(skeleton):
            asked = await self._ask_shape(prompt, skeleton, more_of_both)
            async with aclosing(self._fields(asked, wait)) as fields:
                async for field in fields:
                    yield field
            return
        args = fill_request(self.session, prompt, skeleton, **more_of_both)
        async with (
            self.session.turns.one_async(wait),
            aclosing(self.runner.fill_stream(args)) as steps,
        ):
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
            if is_shape(skeleton):
                return await self._fill_shape(asked.pop("prompt"), skeleton, asked, True, None)
            args = fill_request(self.session, skeleton=skeleton, **asked)
            return await self._fill(args, True, None)

        check_prompts(prompts, "fill")
        return await run_many_async(
            prompts,
            one,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(prompts),
            progress=progress,
            return_exceptions=return_exceptions,
        )

    async def plan(
        self,
        prompt: str | Prompt | Tokens | None = None,
        actions: Iterable[Action | Mapping[str, Any]] = (),
        *,
        messages: Messages | None = None,
        on_span: Callable[[SpanFill], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[FillSettings],
    ) -> FillResult:
        """As :meth:`Model.plan <eliza_ffi.model.Model.plan>`."""
        skeleton = ActionSkeleton(actions)
        return await self.fill(
            prompt, skeleton, messages=messages, on_span=on_span, wait=wait, **more
        )

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
        return await asyncio.to_thread(
            self._model.save, path, prompt, messages=messages, wait=wait, **more
        )

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
        return await asyncio.to_thread(
            self._model.restore,
            path,
            slot_id=slot_id,
            prompt_cache_key=prompt_cache_key,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
            wait=wait,
        )

    # ---- Jobs -----------------------------------------------------------------------------------

    async def _generate(self, args: FfiStreamingGenerateArgs, wait: bool | float) -> Generation:
        result = await self.session.in_turn_async(
            wait, len(args.prompt_tokens), lambda: self.runner.generate_with_usage(args)
        )
        if result.logprobs is None:
            return generation_of(self.session, result)
        return await asyncio.to_thread(generation_of, self.session, result)  # many texts to look up

    async def _prepare(self, choices: ChoiceSet[Any], tokenization: str) -> None:
        """Have choices that are new cut into tokens beside the event loop."""
        _ = self.session.ctx  # is it open?
        check_one_of("tokenization", tokenization, ("own", "any"))
        can = self.session.binding.supports("prepare_choices")
        if can and tokenization == "own" and not self.session.choices.has(choices):
            await asyncio.to_thread(self.session.choices.tokens_of, choices)

    async def _choose(
        self, choices: ChoiceSet[Any], args: FfiStreamingGenerateArgs, wait: bool | float
    ) -> Choice[Any]:
        async def choose() -> Choice[Any]:
            begin = time.perf_counter()
            result = await self.runner.generate_with_usage(args)
            return choice_of(choices, args, result, time.perf_counter() - begin)

        return await self.session.in_turn_async(wait, len(args.prompt_tokens), choose)

    async def _settings(
        self,
        questions: Sequence[Question],
        calibration: Calibration | str | os.PathLike[str] | None,
        **more: Any,
    ) -> Settings:
        check = partial(settings_for, self.session, questions, calibration=calibration, **more)
        # A calibration is read from its file, and looks at the model's.
        return check() if calibration is None else await asyncio.to_thread(check)

    async def _decide(
        self,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        wait: bool | float,
        at_once: int | None = None,
    ) -> Decision:
        prepare = partial(DecisionRun, self.session, given, questions, settings)
        is_long = settings.how.prompt is not None or takes_long(given, questions)
        decision = await asyncio.to_thread(prepare) if is_long else prepare()
        args, session = decision.args, self.session
        result = await session.in_turn_async(
            wait,
            args.n_tokens,
            lambda: self.runner.score(ScoreRun(session.binding, session.ctx, args)),
            at_most=session.decisions_at_once(at_once),
        )
        if not settings.needs_joint:
            return decision.decision(result)
        return await asyncio.to_thread(decision.decision, result)  # many labels to spell

    async def _fill(
        self, args: FillArgs, wait: bool | float, on_span: Callable[[SpanFill], Any] | None
    ) -> FillResult:
        async with (
            self.session.turns.one_async(wait),
            aclosing(self.runner.fill_stream(args)) as steps,
        ):
            async for step in steps:
                if isinstance(step, FillResult):
                    return step
                if on_span is not None:
                    on_span(step)
        raise AssertionError("the last step is the result")

    async def _ask_shape(
        self, prompt: str | Prompt | Tokens | None, shape: Any, more: Mapping[str, Any]
    ) -> ShapeRequest:
        """Have a shape that is new compiled beside the event loop."""
        return await asyncio.to_thread(shape_request, self.session, prompt, shape, **more)

    async def _fill_shape(
        self,
        prompt: str | Prompt | Tokens | None,
        shape: Any,
        more: Mapping[str, Any],
        wait: bool | float,
        on_field: Callable[[FieldFill], Any] | None,
    ) -> ShapedResult[Any]:
        request = await self._ask_shape(prompt, shape, more)
        async with aclosing(self._fields(request, wait)) as fields:
            async for field in fields:
                if isinstance(field, ShapedResult):
                    return field
                if on_field is not None:
                    on_field(field)
        raise AssertionError("the last step is the result")

    async def _fields(
        self, request: ShapeRequest, wait: bool | float
    ) -> AsyncGenerator[FieldFill | ShapedResult[Any], None]:
        args, reading = request.args, Reading(request.shape)
        steps: AsyncGenerator[Step, None] = (
            self.runner.fill_stream(args)
            if isinstance(args, FillArgs)
            else self.runner.whole_stream(args)
        )
        async with self.session.turns.one_async(wait), aclosing(steps):
            async for step in steps:
                for read in reading.take(step):
                    yield read
