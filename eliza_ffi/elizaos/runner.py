"""elizaOS's streaming runner."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from ..checks import check_kind
from ..library.binding import CffiBinding
from ..library.protocol import StreamStep
from ..model import Model
from ..session.generation import Generation
from ..session.run import Run
from ..session.scheduler import Scheduler
from ..session.threads import MAX_SLOTS, Threads, tell
from ..session.turns import Turns
from .arguments import FfiStreamingGenerateArgs, FfiStreamingResult

logger = logging.getLogger("eliza_ffi")


class FfiStreamingRunner:
    """Generates on an event loop without blocking it.

    Parameters
    ----------
    binding
        The library.
    ctx
        The context to generate with, which the binding has created.
    scheduler
        The scheduler of the session that the context belongs to; None = no session.

    Notes
    -----
    Generations with the same ``slot_id >= 0`` run one after the other; the event loop is not
    blocked while one waits. Generations with ``slot_id=-1`` take any free slot. If all slots are in
    use, a runner with a scheduler waits in the session's queue, and a runner without one waits
    inside the library. In both cases, :class:`~eliza_ffi.errors.BusyError` is raised after
    ``slot_wait_ms`` milliseconds.

    Each generation runs on its own thread. The thread does not wait for the consumer of the steps;
    steps are queued until they are read. Cancelling the task stops the native call, and waits until
    the call has returned and the stream is closed.
    """

    def __init__(self, binding: CffiBinding, ctx: Any, scheduler: Scheduler | None = None) -> None:
        self.binding = binding
        self.ctx = ctx
        self._has_warned = False
        self._scheduler = scheduler or Scheduler(
            Turns(MAX_SLOTS, math.inf), Threads(MAX_SLOTS, "eliza-ffi"), slots_wait=True
        )

    def generation(self, args: FfiStreamingGenerateArgs) -> Run[StreamStep | Generation]:
        """Return a generation that has not started; the last step is its result."""
        check_kind("args", args, FfiStreamingGenerateArgs, "an FfiStreamingGenerateArgs")
        request = args.to_request()
        steps = lambda run: Generation(run, request, self._warn_once).steps()  # noqa: E731
        return Run(self, steps, slot_id=args.slot_id)

    def _warn_once(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", reason)

    def close(self) -> None:
        """End the threads: idle ones now, the others when their generations end.

        The runner cannot be used afterwards. Closing a model closes its runner.
        """
        self._scheduler.threads.close()

    async def generate_with_usage(self, args: FfiStreamingGenerateArgs) -> FfiStreamingResult:
        """Generate to the end and return the text, the tokens and the usage.

        Raises
        ------
        TokenTrieError
            If the library rejects the payload, or no descriptor has the path `token_tree_path`.
        ElizaError
            If the library fails.
        """
        result: Any = None
        async with aclosing(self.whole_stream(args)) as steps:
            async for step in steps:
                result = step
        return cast(FfiStreamingResult, result)

    def generate_stream(self, args: FfiStreamingGenerateArgs) -> AsyncGenerator[StreamStep, None]:
        """Yield each step when it is generated.

        To stop early, call ``aclose()`` on the iterator or use `contextlib.aclosing`.

        Raises
        ------
        TokenTrieError, ElizaError
            As :meth:`generate_with_usage`.
        """
        return self._drive(self.generation(args), args, with_result=False)

    def whole_stream(
        self, args: FfiStreamingGenerateArgs
    ) -> AsyncGenerator[StreamStep | FfiStreamingResult, None]:
        """Yield each step when it is generated, then the result.

        Raises
        ------
        TokenTrieError, ElizaError
            As :meth:`generate_with_usage`.
        """
        return self._drive(self.generation(args), args, with_result=True)

    async def _drive(
        self, run: Run[Any], args: FfiStreamingGenerateArgs, *, with_result: bool
    ) -> AsyncGenerator[Any, None]:
        async with aclosing(self._scheduler.steps_async(run, None)) as steps:
            async for step in steps:
                if isinstance(step, Generation):
                    if with_result:
                        yield FfiStreamingResult.of(step)
                    return
                if isinstance(step, StreamStep) and step.text:
                    await tell(args.on_text_chunk, step.text)
                yield step


def runner_of(model: Model) -> FfiStreamingRunner:
    """Return a streaming runner that uses an open model. Closing the model closes the runner.

    >>> args = generate_args(model, "Once", max_tokens=3)
    >>> asyncio.run(runner_of(model).generate_with_usage(args)).text != ""
    True
    """
    check_kind("model", model, Model, "a Model")
    return FfiStreamingRunner(model.binding, model.session.ctx, model.session.scheduler)
