"""The asynchronous model: slow calls run on threads and are awaited."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import check_callback, check_kind
from .choices.label_set import ChoiceResult, LabelSet
from .choices.prepared_labels import PreparedLabels
from .choices.rank_result import RankResult
from .decisions.answers import Decision
from .decisions.asking import WritePrompt, score_work
from .decisions.calibration import Calibration
from .decisions.deciding import DecisionRun, Settings, settings_for
from .decisions.prompts import LabelStyle, check_one_input
from .decisions.questions import Question
from .decisions.reasoning import inputs_at_once, reasoning_work, with_reasoning
from .decisions.scoring import Rule
from .decisions.wire import as_questions
from .errors import GenerationCancelled
from .hub import hub_path
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .model import Model
from .sampling.params import Sampling
from .session.batches import labels_for, length_of, one_or_several, run_many_async
from .session.filling import Fillable
from .session.jobs import STEPS, Jobs
from .session.lifecycle import Work
from .session.options import AnyPrompt, CacheOptions, ChoiceMode, Speculation, Tokenization
from .session.requests import MOST_TOKENS, GenerationResult, check_prompts
from .session.scoring import ScoreResult
from .session.session import Session
from .session.text_stream import AsyncTextStream
from .session.threads import tell
from .session.tool_calls import MOST_CALLS, TextAnswer, ToolCall, ToolCalls, one_call
from .structured.fill_result import FillResult, SpanFill
from .structured.shape import Lark, Regex
from .structured.shaped_result import FieldFill, ShapedResult
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session.options import (
        ChoiceSettings,
        FillSettings,
        RankSettings,
        Strings,
        TextSettings,
    )
    from .session.tool_calls import ToolSettings

__all__ = ["AsyncModel"]

T = TypeVar("T")
V = TypeVar("V")


class AsyncModel:
    """Load a language model for an event loop.

    The methods have the names and arguments of :class:`~eliza_ffi.model.Model`, and are awaited.
    Requests are prepared and run on threads, so that they do not block the event loop.

    Cancelling a task cancels only its own request. The cancelled call returns when its thread has
    stopped and its slot is free again. Three methods do not stop at once: :meth:`embed` finishes
    the current string, :meth:`end_of_turn` finishes computing the score, and :meth:`restore`
    finishes reading the file. To leave an iterator early, call ``aclose()`` or use
    `contextlib.aclosing`.

    Callbacks run on the event loop. If a callback returns an awaitable, it is awaited. The
    constructor's `progress` is an exception: it is a plain function, and is called on the thread
    that loads the model or runs a request.

    Parameters
    ----------
    path, library, n_ctx, n_slots, n_threads, gpu_layers, seed, lora, progress, options
        As :class:`~eliza_ffi.model.Model`. The constructor blocks while the model loads; use
        :meth:`open` in an event loop.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        library: str | os.PathLike[str] | Library | None = None,
        n_ctx: int = 0,
        n_slots: int | None = None,
        n_threads: int = 0,
        gpu_layers: int = -1,
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
            gpu_layers=gpu_layers,
            seed=seed,
            lora=lora,
            progress=progress,
            options=options,
        )

    @property
    def _jobs(self) -> Jobs:
        return self._model._jobs

    @classmethod
    async def open(cls, path: str | os.PathLike[str] | None = None, **more: Any) -> AsyncModel:
        """Load a model on a thread; the parameters are those of the class."""
        return await asyncio.to_thread(cls, path, **more)

    @classmethod
    async def from_pretrained(
        cls, repo_id: str, filename: str | None = None, **more: Any
    ) -> AsyncModel:
        """Do the same as :meth:`Model.from_pretrained`, on a thread."""
        return await cls.open(hub_path(repo_id, filename), **more)

    @classmethod
    def of(cls, model: Model) -> AsyncModel:
        """Return an AsyncModel that shares an open Model; closing one closes both."""
        check_kind("model", model, Model, "an open Model")
        face = cls.__new__(cls)
        face._model = model
        return face

    def close(self) -> None:
        """Free the model and cancel running generations. Closing twice is harmless.

        This call blocks until the model is freed. ``async with`` closes the model on a thread.
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
        """The open model: its library, its context and its scheduler."""
        return self._model.session

    @property
    def path(self) -> str:
        """The path of the model file or bundle."""
        return self._model.path

    @property
    def binding(self) -> CffiBinding:
        """The functions of the native library."""
        return self._model.binding

    # ---- Facts and tokens -----------------------------------------------------------------------

    async def describe(self) -> dict[str, Any]:
        """Run :meth:`Model.describe <eliza_ffi.model.Model.describe>` on a thread."""
        return await self._prepared(self._model.describe)

    async def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Run :meth:`Model.tokenize <eliza_ffi.model.Model.tokenize>` on a thread."""
        return await self._prepared(self._model.tokenize, text, add_special, parse_special)

    async def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """Run :meth:`Model.prompt_tokens <eliza_ffi.model.Model.prompt_tokens>` on a thread."""
        return await self._prepared(self._model.prompt_tokens, prompt)

    async def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Run :meth:`Model.detokenize <eliza_ffi.model.Model.detokenize>` on a thread."""
        return await self._prepared(self._model.detokenize, tokens, unparse_special)

    async def token_texts(self) -> TokenTexts:
        """Run :meth:`Model.token_texts <eliza_ffi.model.Model.token_texts>` on a thread."""
        return await self._prepared(self._model.token_texts)

    async def chat_template(self) -> ChatTemplate:
        """Return the model's chat template; raise `ChatTemplateError` if the model has none."""
        return await self._prepared(lambda: self._model.chat_template)

    async def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Run :meth:`Model.chat_tokens <eliza_ffi.model.Model.chat_tokens>` on a thread."""
        return await self._prepared(lambda: self._model.chat_tokens(messages, **more))

    async def embed(self, text: str | Iterable[str], pooling: str = "mean") -> NDArray[np.float32]:
        """Run :meth:`Model.embed <eliza_ffi.model.Model.embed>` on a thread."""
        is_cancelled = threading.Event()

        def check() -> None:
            if is_cancelled.is_set():
                raise GenerationCancelled("the embedding was cancelled")

        _ = self.session.ctx  # raises if the model is closed
        return await self.session.workers.run(
            self._model._embed, text, pooling, check, cancel=is_cancelled.set
        )

    async def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """Run :meth:`Model.end_of_turn <eliza_ffi.model.Model.end_of_turn>` on a thread."""
        return cast(EotScore, await self._result(self._jobs.end_of_turn, prompt, end, wait=True))

    # ---- Text -----------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: AnyPrompt,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        shape: Any = None,
        sampling: Sampling | None = None,
        speculation: Speculation | None = None,
        cache: CacheOptions | None = None,
        on_text: Callable[[str], Any] | None = None,
        wait: bool | float = True,
    ) -> GenerationResult:
        """Run :meth:`Model.generate <eliza_ffi.model.Model.generate>` on a thread."""
        found = await self._result(
            self._jobs.text,
            prompt,
            method="generate",
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=stop,
            logprobs=logprobs,
            shape=shape,
            sampling=sampling,
            speculation=speculation,
            cache=cache,
            on_text=on_text,
            wait=wait,
            on_step=on_text,
        )
        return cast(GenerationResult, found)

    def stream(
        self,
        prompt: AnyPrompt,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        shape: Any = None,
        sampling: Sampling | None = None,
        speculation: Speculation | None = None,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> AsyncTextStream:
        """Run :meth:`Model.stream <eliza_ffi.model.Model.stream>` on a thread."""
        prepare = partial(
            self._jobs.text,
            prompt,
            method="stream",
            with_steps=True,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=stop,
            logprobs=logprobs,
            shape=shape,
            sampling=sampling,
            speculation=speculation,
            cache=cache,
        )
        return AsyncTextStream(self._steps(prepare, wait))

    async def generate_many(
        self,
        prompts: Iterable[AnyPrompt],
        max_tokens: int = 256,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[TextSettings],
    ) -> list[GenerationResult]:
        """Run :meth:`Model.generate_many <eliza_ffi.model.Model.generate_many>` on a thread."""

        async def one(prompt: AnyPrompt) -> GenerationResult:
            found = await self._result(
                self._jobs.text,
                prompt,
                method="generate_many",
                wait=True,
                on_step=settings.get("on_text"),
                max_tokens=max_tokens,
                **settings,
            )
            return cast(GenerationResult, found)

        check_prompts(prompts, "generate")
        return await self._many(prompts, one, progress, max_concurrency, return_exceptions)

    # ---- Labels ---------------------------------------------------------------------------------

    @overload
    async def choose(
        self,
        prompt: AnyPrompt,
        labels: Mapping[str, V] | LabelSet[V] | type[V],
        *,
        mode: ChoiceMode | None = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[V]: ...

    @overload
    async def choose(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        *,
        mode: ChoiceMode | None = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[str]: ...

    @overload
    async def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        mode: ChoiceMode | None = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[Any]: ...

    async def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        mode: ChoiceMode | None = None,
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "own",
        heal_prompt: bool = False,
        max_tokens: int = 0,
        sampling: Sampling | None = None,
        seed: int | None = None,
        think: int = 0,
        cache: CacheOptions | None = None,
        on_text: Callable[[str], Any] | None = None,
        wait: bool | float = True,
    ) -> ChoiceResult[Any]:
        """Run :meth:`Model.choose <eliza_ffi.model.Model.choose>` on a thread."""
        found = await self._result(
            self._jobs.choice,
            prompt,
            labels,
            method="choose",
            mode=mode,
            temperature=temperature,
            probabilities=probabilities,
            tokenization=tokenization,
            heal_prompt=heal_prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=seed,
            think=think,
            cache=cache,
            on_text=on_text,
            wait=wait,
            on_step=on_text,
        )
        return cast(ChoiceResult[Any], found)

    @overload
    async def prepare_labels(
        self, labels: Mapping[str, V] | LabelSet[V] | type[V]
    ) -> PreparedLabels[V]: ...

    @overload
    async def prepare_labels(self, labels: Strings) -> PreparedLabels[str]: ...

    @overload
    async def prepare_labels(self, labels: Any) -> PreparedLabels[Any]: ...

    async def prepare_labels(self, labels: Any) -> PreparedLabels[Any]:
        """Run :meth:`Model.prepare_labels <eliza_ffi.model.Model.prepare_labels>` on a thread."""
        return await self._prepared(self._model.prepare_labels, labels)

    async def choose_many(
        self,
        prompts: Iterable[AnyPrompt],
        labels: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[ChoiceSettings],
    ) -> list[ChoiceResult[Any]]:
        """Run :meth:`Model.choose_many <eliza_ffi.model.Model.choose_many>` on a thread."""

        async def one(item: tuple[AnyPrompt, Any]) -> ChoiceResult[Any]:
            found = await self._result(
                self._jobs.choice,
                *item,
                method="choose_many",
                wait=True,
                on_step=settings.get("on_text"),
                **settings,
            )
            return cast(ChoiceResult[Any], found)

        check_prompts(prompts, "choose")
        pairs = labels_for(prompts, await self._prepared(one_or_several, labels))
        return await self._many(
            pairs, one, progress, max_concurrency, return_exceptions, total=length_of(prompts)
        )

    @overload
    async def rank(
        self,
        prompt: AnyPrompt,
        labels: Mapping[str, V] | LabelSet[V] | type[V],
        k: int = ...,
        *,
        separator: str | None = ...,
        level: None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        wait: bool | float = ...,
    ) -> RankResult[V]: ...

    @overload
    async def rank(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        k: int = ...,
        *,
        separator: str | None = ...,
        level: int | None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        wait: bool | float = ...,
    ) -> RankResult[str]: ...

    @overload
    async def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = ...,
        *,
        separator: str | None = ...,
        level: int | None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        wait: bool | float = ...,
    ) -> RankResult[Any]: ...

    async def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = 5,
        *,
        separator: str | None = None,
        level: int | None = None,
        max_passes: int | None = None,
        tokenization: Tokenization = "own",
        think: int = 0,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> RankResult[Any]:
        """Run :meth:`Model.rank <eliza_ffi.model.Model.rank>` on a thread."""
        found = await self._result(
            self._jobs.ranking,
            prompt,
            labels,
            method="rank",
            k=k,
            separator=separator,
            level=level,
            max_passes=max_passes,
            tokenization=tokenization,
            think=think,
            cache=cache,
            wait=wait,
        )
        return cast(RankResult[Any], found)

    async def rank_many(
        self,
        prompts: Iterable[AnyPrompt],
        labels: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[RankSettings],
    ) -> list[RankResult[Any]]:
        """Run :meth:`Model.rank_many <eliza_ffi.model.Model.rank_many>` on a thread."""

        async def one(item: tuple[AnyPrompt, Any]) -> RankResult[Any]:
            found = await self._result(
                self._jobs.ranking, *item, method="rank_many", wait=True, **settings
            )
            return cast(RankResult[Any], found)

        check_prompts(prompts, "rank")
        pairs = labels_for(prompts, await self._prepared(one_or_several, labels))
        return await self._many(
            pairs, one, progress, max_concurrency, return_exceptions, total=length_of(prompts)
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
        think: int = 0,
        wait: bool | float = True,
        cache: CacheOptions | None = None,
    ) -> Decision:
        """Run :meth:`Model.decide <eliza_ffi.model.Model.decide>` on a thread."""
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
            think=think,
            stream={} if cache is None else {"cache": cache},
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
        think: int = 0,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        cache: CacheOptions | None = None,
    ) -> list[Decision]:
        """Run :meth:`Model.decide_many <eliza_ffi.model.Model.decide_many>` on a thread."""
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
            think=think,
            stream={} if cache is None else {"cache": cache},
        )
        return await run_many_async(
            inputs,
            lambda given: self._decide(given, asked, settings, True, max_concurrency),
            at_once=await self._prepared(inputs_at_once, self.session, think, max_concurrency),
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
        """Run :meth:`Model.decision_prompts <eliza_ffi.Model.decision_prompts>` on a thread."""
        return await self._prepared(
            partial(self._model.decision_prompts, labels=labels, orders=orders, prompt=prompt),
            input,
            questions,
        )

    # ---- Structured answers ---------------------------------------------------------------------

    @overload
    async def fill(
        self,
        prompt: AnyPrompt,
        shape: type[T],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    async def fill(
        self,
        prompt: AnyPrompt,
        shape: Regex | Lark,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[str]: ...

    @overload
    async def fill(
        self,
        prompt: AnyPrompt,
        shape: Mapping[str, Any],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[Any]: ...

    @overload
    async def fill(
        self,
        prompt: AnyPrompt,
        shape: Fillable,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> FillResult: ...

    async def fill(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        on_span: Callable[[Any], Any] | None = None,
        wait: bool | float = True,
        **settings: Unpack[FillSettings],
    ) -> Any:
        """Run :meth:`Model.fill <eliza_ffi.model.Model.fill>` on a thread."""
        check_callback("on_span", on_span)
        return await self._result(
            self._jobs.fill,
            prompt,
            shape,
            method="fill",
            with_steps=on_span is not None,
            wait=wait,
            on_step=on_span,
            **settings,
        )

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: type[T],
        *,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> AsyncGenerator[FieldFill | ShapedResult[T], None]: ...

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> AsyncGenerator[SpanFill | FieldFill | FillResult, None]: ...

    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        wait: bool | float = True,
        **settings: Unpack[FillSettings],
    ) -> AsyncGenerator[Any, None]:
        """Run :meth:`Model.fill_stream <eliza_ffi.model.Model.fill_stream>` on a thread."""
        prepare = partial(
            self._jobs.fill, prompt, shape, method="fill_stream", with_steps=True, **settings
        )
        return self._steps(prepare, wait)

    async def fill_many(
        self,
        prompts: Iterable[AnyPrompt],
        shape: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[FillSettings],
    ) -> list[FillResult]:
        """Run :meth:`Model.fill_many <eliza_ffi.model.Model.fill_many>` on a thread."""

        async def one(prompt: AnyPrompt) -> FillResult:
            found = await self._result(
                self._jobs.fill,
                prompt,
                shape,
                method="fill_many",
                with_steps=False,
                wait=True,
                **settings,
            )
            return cast(FillResult, found)

        check_prompts(prompts, "fill")
        return await self._many(prompts, one, progress, max_concurrency, return_exceptions)

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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer:
        """Run :meth:`Model.call_tool <eliza_ffi.model.Model.call_tool>` on a thread."""
        found = await self._result(
            self._jobs.tools,
            messages,
            tools,
            choice,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tool",
            wait=wait,
            **settings,
        )
        return one_call(found)

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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """Run :meth:`Model.call_tools <eliza_ffi.model.Model.call_tools>` on a thread."""
        found = await self._result(
            self._jobs.tools,
            messages,
            tools,
            choice,
            max_calls=max_calls,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tools",
            wait=wait,
            **settings,
        )
        return cast(ToolCalls | TextAnswer, found)

    # ---- Prompts on disk ------------------------------------------------------------------------

    async def save(
        self,
        path: str | os.PathLike[str],
        prompt: AnyPrompt,
        *,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> int:
        """Run :meth:`Model.save <eliza_ffi.model.Model.save>` on a thread."""
        return cast(int, await self._result(self._jobs.save, path, prompt, cache, wait=wait))

    async def restore(
        self,
        path: str | os.PathLike[str],
        *,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> int:
        """Run :meth:`Model.restore <eliza_ffi.model.Model.restore>` on a thread."""
        return cast(int, await self._result(self._jobs.restore, path, cache, wait=wait))

    # ---- Requests -------------------------------------------------------------------------------

    async def _prepared(self, prepare: Callable[..., T], *arguments: Any) -> T:
        """Run a call that needs no slot on a thread, and return its result."""
        _ = self.session.ctx  # raises if the model is closed or belongs to the parent process
        return await self.session.helpers.run(prepare, *arguments)

    async def _result(
        self,
        prepare: Callable[..., Work[Any]],
        *arguments: Any,
        wait: bool | float,
        on_step: Callable[[Any], Any] | None = None,
        **settings: Any,
    ) -> Any:
        """Prepare and run a request, call `on_step` with its steps, and return its result."""
        work = await self._prepared(partial(prepare, *arguments, **settings))
        return await self._run(work, wait, on_step)

    async def _run(
        self, work: Work[Any], wait: bool | float, on_step: Callable[[Any], Any] | None = None
    ) -> Any:
        async with aclosing(self.session.steps_async(work, wait)) as steps:
            async for step in steps:
                if not isinstance(step, STEPS):
                    return step
                await tell(on_step, step)
        raise AssertionError("the last step is the result")

    async def _steps(
        self, prepare: Callable[[], Work[Any]], wait: bool | float
    ) -> AsyncGenerator[Any, None]:
        """Prepare a request and yield its steps."""
        work = await self._prepared(prepare)
        async with aclosing(self.session.steps_async(work, wait)) as steps:
            async for step in steps:
                yield step

    async def _many(
        self,
        items: Iterable[V],
        one: Callable[[V], Coroutine[Any, Any, T]],
        progress: Callable[[int, int | None], Any] | None,
        max_concurrency: int | None,
        return_exceptions: bool,
        total: int | None = None,
    ) -> list[T]:
        return await run_many_async(
            items,
            one,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(items) if total is None else total,
            progress=progress,
            return_exceptions=return_exceptions,
        )

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
        if settings.think:
            reason = partial(reasoning_work, self.session, given, questions, settings)
            text = (await self._result(reason, wait=wait)).text
            alone = replace(settings, think=0)
            reasoned = with_reasoning(given, text)
            found = await self._decide(reasoned, questions, alone, wait, at_once)
            return replace(found, reasoning=text)

        def prepare() -> tuple[DecisionRun, Work[ScoreResult]]:
            decision = DecisionRun(self.session, given, questions, settings)
            return decision, score_work(self.session, decision.args, at_once)

        decision, work = await self._prepared(prepare)
        return await self._prepared(decision.decision, await self._run(work, wait))
