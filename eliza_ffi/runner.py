"""The streaming runners: asynchronous, and a synchronous twin for scripts."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager, nullcontext
from typing import Any, TypeVar

from .arguments import FfiStreamingGenerateArgs, FfiStreamingResult, Usage
from .errors import InvalidArgumentError
from .generation import Generation
from .protocol import LlmStreamingBinding, StreamStep

__all__ = [
    "FfiStreamingGenerateArgs",
    "FfiStreamingResult",
    "FfiStreamingRunner",
    "SyncStreamingRunner",
    "Usage",
]

logger = logging.getLogger("eliza_ffi")

T = TypeVar("T")


class _Runner:
    def __init__(self, binding: LlmStreamingBinding, ctx: Any) -> None:
        self.binding = binding
        self.ctx = ctx
        self._has_warned = False

    def _generation(self, args: FfiStreamingGenerateArgs) -> Generation:
        return Generation(self.binding, self.ctx, args, self._warn_once)

    def _warn_once(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", reason)


class FfiStreamingRunner(_Runner):
    """Generates on an event loop without blocking it.

    Parameters
    ----------
    binding
        The library.
    ctx
        The context to generate with, as the binding made it.

    Notes
    -----
    Generations with the same ``slot_id >= 0`` wait for each other; those with -1 do not, and the
    library refuses one more than the context has slots. The wait is per event loop: a slot that
    another loop or thread is using is refused by the library too.

    Native work runs on the loop's default executor. Cancelling the task stops the native call and
    waits until it has returned; only then the stream is closed.
    """

    def __init__(self, binding: LlmStreamingBinding, ctx: Any) -> None:
        super().__init__(binding, ctx)
        self._slots: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[int, asyncio.Lock]
        ] = weakref.WeakKeyDictionary()

    async def generate_with_usage(self, args: FfiStreamingGenerateArgs) -> FfiStreamingResult:
        """Generate to the end and return the text, the tokens and what they took.

        Raises
        ------
        TokenTrieError
            If the library refuses the payload, or `token_tree_path` is not in it.
        ElizaError
            If the library fails.
        """
        generation = self._generation(args)
        steps = self._drive(generation, args)
        try:
            async for _ in steps:
                pass
        finally:
            await steps.aclose()
        return generation.result()

    def generate_stream(self, args: FfiStreamingGenerateArgs) -> AsyncGenerator[StreamStep, None]:
        """Yield each step as it comes. Leave early through ``aclose()`` or `contextlib.aclosing`.

        Raises
        ------
        TokenTrieError, ElizaError
            As :meth:`generate_with_usage`.
        """
        return self._drive(self._generation(args), args)

    async def _drive(
        self, generation: Generation, args: FfiStreamingGenerateArgs
    ) -> AsyncGenerator[StreamStep, None]:
        async with self._slot(args.slot_id):
            steps = generation.steps()
            try:
                while (step := await _off_loop(lambda: next(steps, None), generation)) is not None:
                    if step.text and args.on_text_chunk is not None:
                        waiting = args.on_text_chunk(step.text)
                        if inspect.isawaitable(waiting):
                            await waiting
                    yield step
            finally:
                await _off_loop(steps.close, generation)

    def _slot(self, slot_id: int) -> AbstractAsyncContextManager[Any]:
        if slot_id < 0:
            return nullcontext()
        locks = self._slots.setdefault(asyncio.get_running_loop(), {})
        return locks.setdefault(slot_id, asyncio.Lock())


class SyncStreamingRunner(_Runner):
    """The same, blocking the calling thread. Parameters as :class:`FfiStreamingRunner`."""

    def __init__(self, binding: LlmStreamingBinding, ctx: Any) -> None:
        super().__init__(binding, ctx)
        self._slots: dict[int, threading.Lock] = {}
        self._owners: dict[int, int] = {}

    def generate_with_usage(self, args: FfiStreamingGenerateArgs) -> FfiStreamingResult:
        """Generate to the end; raises as the asynchronous twin does."""
        generation = self._generation(args)
        for _ in self._drive(generation, args):
            pass
        return generation.result()

    def generate_stream(self, args: FfiStreamingGenerateArgs) -> Generator[StreamStep, None, None]:
        """Yield each step as it comes. To leave early, close the iterator or let go of it."""
        return self._drive(self._generation(args), args)

    def _drive(
        self, generation: Generation, args: FfiStreamingGenerateArgs
    ) -> Generator[StreamStep, None, None]:
        with self._slot(args.slot_id), closing(generation.steps()) as steps:
            for step in steps:
                if step.text and args.on_text_chunk is not None:
                    args.on_text_chunk(step.text)
                yield step

    @contextmanager
    def _slot(self, slot_id: int) -> Iterator[None]:
        if slot_id < 0:
            yield
            return
        me = threading.get_ident()
        if self._owners.get(slot_id) == me:
            raise InvalidArgumentError(
                f"slot {slot_id} is busy with an unfinished generate_stream of this thread: "
                f"close that first, or it would be waited for without end"
            )
        with self._slots.setdefault(slot_id, threading.Lock()):
            self._owners[slot_id] = me
            try:
                yield
            finally:
                del self._owners[slot_id]


async def _off_loop(work: Callable[[], T], generation: Generation) -> T:
    """Run native work on a thread. Cancelled, stop the work and wait until it has returned."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            generation.cancel()
    if cancelled is not None:
        future.exception()  # its failure is the cancel's doing: looked at, not reported
        raise cancelled
    return future.result()
