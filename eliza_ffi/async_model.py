"""The asynchronous model: slow calls run on threads and are awaited."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import aclosing
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .chat.template import ChatTemplate, Messages
from .checks import check_kind, suggest_keywords
from .errors import GenerationCancelledError
from .hub import hub_path
from .library.binding import CffiBinding
from .model import Model
from .session.batches import run_many_async
from .session.run import Run
from .session.session import Session
from .session.task import Task
from .session.text_stream import AsyncTextStream, TextStream

__all__ = ["AsyncModel"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")


class _Requests(Model):
    """The methods of an open model, which only prepare their requests.

    In place of its result, a method returns a function that runs the request and is awaited. A
    method that returns an iterator returns an asynchronous generator.
    """

    def __init__(self, model: Model) -> None:
        self.session = model.session

    def _execute(self, task: Task[Any]) -> Any:
        return task.run_async

    def _after(self, task: Task[V], then: Callable[[V], Any]) -> Any:
        async def run() -> Any:
            rest = await self.session.helpers.run(then, await task.run_async())
            return await rest()

        return run

    def _steps(self, run: Run[Any], timeout: float | None) -> Any:
        return self.session.scheduler.steps_async(run, timeout)

    _stream = _steps

    def _run_many(
        self,
        items: Iterable[V],
        task: Callable[[V], Task[Any]],
        read: Callable[[list[Any]], list[Any]] = list,
        **options: Any,
    ) -> Any:
        async def one(item: V) -> Any:
            return await (await self.session.helpers.run(task, item)).run_async()

        async def run() -> list[Any]:
            return read(await run_many_async(items, one, **options))

        return run


def _on_thread(
    method: Callable[Concatenate[Model, P], R],
) -> Callable[Concatenate[AsyncModel, P], Coroutine[None, None, R]]:
    """Return a method of AsyncModel that runs a method of Model, which needs no slot."""

    async def run(self: AsyncModel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._prepared(partial(method, self._model, *args, **kwargs))

    return _like(method, run)


def _in_parts(
    method: Callable[Concatenate[Model, P], R], in_parts: Callable[..., R]
) -> Callable[Concatenate[AsyncModel, P], Coroutine[None, None, R]]:
    """Return a method of AsyncModel that can be cancelled between two parts of its work."""

    async def run(self: AsyncModel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        is_cancelled = threading.Event()

        def check() -> None:
            if is_cancelled.is_set():
                raise GenerationCancelledError("the request was cancelled")

        _ = self.session.ctx  # raises if the model is closed
        work = partial(in_parts, self._model, *args, check=check, **kwargs)
        return await self.session.workers.run(work, cancel=is_cancelled.set)

    return _like(method, run)


def _awaited(
    method: Callable[Concatenate[Model, P], R],
) -> Callable[Concatenate[AsyncModel, P], Coroutine[None, None, R]]:
    """Return a method of AsyncModel that prepares a request as Model does, and awaits it."""

    async def run(self: AsyncModel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        rest: Any = await self._prepared(partial(method, _Requests(self._model), *args, **kwargs))
        result: R = await rest()
        return result

    return _like(method, run)


def _iterated(
    method: Callable[Concatenate[Model, P], Iterator[R]],
) -> Callable[Concatenate[AsyncModel, P], AsyncGenerator[R, None]]:
    """Return a method of AsyncModel that prepares a request as Model does, and yields its steps."""

    def run(self: AsyncModel, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[R, None]:
        return self._steps(partial(method, _Requests(self._model), *args, **kwargs))

    return _like(method, run, "AsyncGenerator[Any, None]")


def _streamed(
    method: Callable[Concatenate[Model, P], TextStream],
) -> Callable[Concatenate[AsyncModel, P], AsyncTextStream]:
    """Return a method of AsyncModel that prepares a request as Model does, and streams its text."""

    def run(self: AsyncModel, /, *args: P.args, **kwargs: P.kwargs) -> AsyncTextStream:
        return AsyncTextStream(
            self._steps(partial(method, _Requests(self._model), *args, **kwargs))
        )

    return _like(method, run, "AsyncTextStream")


def _with_parameters_of(
    kind: Callable[P, Model],
) -> Callable[[Callable[..., None]], Callable[Concatenate[AsyncModel, P], None]]:
    """Give a constructor the signature of a class's constructor."""

    def decorate(init: Callable[..., None]) -> Callable[Concatenate[AsyncModel, P], None]:
        init.__signature__ = inspect.signature(kind.__init__)  # type: ignore
        return init

    return decorate


def _like(method: Callable[..., Any], run: F, returns: str | None = None) -> F:
    """Give a function the name, docstring and signature of a method; it may have its own result."""
    wraps(method)(run)
    run.__module__, run.__qualname__ = __name__, f"AsyncModel.{method.__name__}"
    if returns is not None:
        signature = inspect.signature(method).replace(return_annotation=returns)
        run.__signature__ = signature  # type: ignore[attr-defined]
    return run


@suggest_keywords
class AsyncModel:
    """Load a language model for an event loop.

    The methods have the names and arguments of :class:`~eliza_ffi.model.Model`, and are awaited.
    Requests are prepared and run on threads, so that they do not block the event loop.

    Cancelling a task cancels only its own request. The cancelled call returns when its thread has
    stopped and its slot is free again. Four methods do not stop at once: :meth:`embed` and
    :meth:`rerank` finish the strings that they are reading, at most 32, :meth:`end_of_turn`
    finishes computing the score, and :meth:`load_prompt_cache` finishes reading the file. To leave
    an iterator early, call ``aclose()`` or use `contextlib.aclosing`.

    Callbacks run on the event loop. If a callback returns an awaitable, it is awaited. The
    constructor's `progress` is an exception: it is a plain function, and is called on the thread
    that loads the model or runs a request.

    >>> async def main() -> None:
    ...     async with await AsyncModel.open() as model:
    ...         print((await model.choose("A pet is a ", ["cat", "horse"])).value)
    ...         tokens = await model.chat_tokens([{"role": "user", "content": "hello"}])
    ...         assert (await model.chat_template()) and model.binding is model.session.binding
    ...         assert tokens and model.path.endswith(".gguf")
    >>> asyncio.run(main())
    cat

    Parameters
    ----------
    path, library, n_ctx, n_slots, n_threads, n_gpu_layers, seed, lora, encoder, progress, options
        As :class:`~eliza_ffi.model.Model`. The constructor blocks while the model loads; use
        :meth:`open` in an event loop.
    """

    @_with_parameters_of(Model)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._model = Model(*args, **kwargs)

    @classmethod
    async def open(cls, path: str | os.PathLike[str] | None = None, **more: Any) -> AsyncModel:
        """Load a model on a thread. The parameters are the same as for the class.

        >>> model = await AsyncModel.open("model.gguf")  # doctest: +SKIP
        """
        return await asyncio.to_thread(cls, path, **more)

    @classmethod
    async def from_pretrained(
        cls, repo_id: str, filename: str | None = None, **more: Any
    ) -> AsyncModel:
        """Do the same as :meth:`Model.from_pretrained`, on a thread.

        >>> model = await AsyncModel.from_pretrained("org/model-GGUF")  # doctest: +SKIP
        """
        return await cls.open(hub_path(repo_id, filename), **more)

    @classmethod
    def of(cls, model: Model) -> AsyncModel:
        """Return an AsyncModel that shares an open Model; closing one closes both.

        >>> AsyncModel.of(model).path == model.path
        True
        """
        check_kind("model", model, Model, "an open Model")
        face = cls.__new__(cls)
        face._model = model
        return face

    def close(self) -> None:
        """Free the model and cancel running generations. Closing twice is harmless.

        This call blocks until the model is freed. ``async with`` closes the model on a thread.

        >>> AsyncModel().close()
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

    # ---- Calls that need no slot ----------------------------------------------------------------

    describe = _on_thread(Model.describe)
    tokenize = _on_thread(Model.tokenize)
    prompt_tokens = _on_thread(Model.prompt_tokens)
    detokenize = _on_thread(Model.detokenize)
    vocabulary = _on_thread(Model.vocabulary)

    async def chat_template(self) -> ChatTemplate:
        """Return the model's chat template; raise `ChatTemplateError` if the model has none."""
        return await self._prepared(lambda: self._model.chat_template)

    async def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Run :meth:`Model.chat_tokens <eliza_ffi.model.Model.chat_tokens>` on a thread."""
        return await self._prepared(partial(self._model.chat_tokens, messages, **more))

    prepare_labels = _on_thread(Model.prepare_labels)

    embed = _in_parts(Model.embed, Model._embed)
    rerank = _in_parts(Model.rerank, Model._rerank)

    # ---- Requests -------------------------------------------------------------------------------

    end_of_turn = _awaited(Model.end_of_turn)
    hidden_states = _awaited(Model.hidden_states)
    prompt_logprobs = _awaited(Model.prompt_logprobs)
    generate = _awaited(Model.generate)
    stream = _streamed(Model.stream)
    generate_many = _awaited(Model.generate_many)
    choose = _awaited(Model.choose)
    choose_many = _awaited(Model.choose_many)
    rank = _awaited(Model.rank)
    rank_many = _awaited(Model.rank_many)
    decide = _awaited(Model.decide)
    decide_many = _awaited(Model.decide_many)
    count = _awaited(Model.count)
    decision_prompts = _awaited(Model.decision_prompts)
    fill = _awaited(Model.fill)
    fill_stream = _iterated(Model.fill_stream)
    fill_many = _awaited(Model.fill_many)
    call_tool = _awaited(Model.call_tool)
    call_tools = _awaited(Model.call_tools)
    save_prompt_cache = _awaited(Model.save_prompt_cache)
    load_prompt_cache = _awaited(Model.load_prompt_cache)

    async def _prepared(self, prepare: Callable[[], R]) -> R:
        """Run a call that needs no slot on a thread, and return its result."""
        _ = self.session.ctx  # raises if the model is closed or belongs to the parent process
        return await self.session.helpers.run(prepare)

    async def _steps(self, prepare: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        """Prepare a request on a thread, and yield its steps."""
        async with aclosing(await self._prepared(prepare)) as steps:
            async for step in steps:
                yield step
