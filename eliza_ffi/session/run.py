"""One request, from its first stream to its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ..checks import short_repr
from ..errors import ElizaError, GenerationCancelledError
from ..library.binding import CffiBinding, Decision
from ..library.protocol import Decided, PreparedChoices, StreamConfig, StreamStats, Tokens

Step = TypeVar("Step")
Result = TypeVar("Result")

LONG_CALL = 128
"""The least number of tokens for which a call of the main thread is made interruptible. Starting
the thread takes about 0.1 ms."""

JOIN_SECONDS = 0.1
"""On Windows, Ctrl-C does not end a wait for a thread, so the wait must be short."""


def n_ctx_of(binding: CffiBinding, ctx: Any) -> int | None:
    """Return the length of a context in tokens; None if the library does not report it."""
    if not binding.supports("describe"):
        return None
    n = binding.describe(ctx).get("passes", {}).get("n_ctx", 0)
    return int(n) or None


class Opened(Protocol):
    """An open model: a session, or a binding with a context."""

    @property
    def binding(self) -> CffiBinding: ...

    @property
    def ctx(self) -> Any:
        """The context; raises an error if the model is closed."""


class Run(Generic[Step]):
    """A request that needs a slot. Any thread can cancel it at any time, even before it begins.

    Parameters
    ----------
    model
        The model to run in.
    steps
        Opens streams with :meth:`opened`, one after the other, and yields the steps of the request.
        The last step is its result. It must leave out steps that the caller does not need, because
        a request that has yielded a step cannot run again.
    slot_id
        The slot that the request names; -1 = any slot.
    at_most
        As :meth:`~eliza_ffi.session.turns.Turns.one`.
    """

    def __init__(
        self,
        model: Opened,
        steps: Callable[[Run[Step]], Generator[Step, None, None]],
        *,
        slot_id: int = -1,
        at_most: int | None = None,
    ) -> None:
        self.model = model
        self.binding = model.binding
        self.slot_id = slot_id
        self.at_most = at_most
        self._steps = steps
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None  # stops the running native calls
        self._is_cancelled = False
        self.unfinished: StreamStats | None = None
        """The counters of a stream that ended early: by an error, a cancel or its caller."""

    def steps(self) -> Generator[Step, None, None]:
        """Run the request from its beginning, and return its steps."""
        return self._steps(self)

    @contextmanager
    def opened(
        self, config: StreamConfig, prompt: Tokens | None = None, sampling: str | None = None
    ) -> Iterator[Any]:
        """Open a stream that :meth:`cancel` stops, and close it at the end of the ``with`` block.

        `prompt` has the tokens to prefill, if any. `sampling` is the JSON of a ``Sampling``, if it
        has settings that `config` cannot express.
        """
        self.check()
        binding = self.binding
        stream = binding.open(self.model.ctx, config)
        try:
            self._begin(partial(binding.cancel, stream))
            if sampling is not None:
                binding.set_sampling(stream, sampling)
            if prompt is not None:
                self.call(partial(binding.prefill, stream, prompt), len(prompt))
            yield stream
        except BaseException:
            if binding.supports("stats"):
                with suppress(ElizaError):
                    self.unfinished = binding.stats(stream)
            raise
        finally:
            self.end()
            binding.close(stream)

    def decide(self, decision: Decision) -> Decided:
        """Make a decision that :meth:`cancel` stops."""
        context = self.model.ctx
        self._begin(partial(self.binding.cancel_decision, context, decision))
        try:
            return self.call(partial(self.binding.decide, context, decision), decision.n_tokens)
        finally:
            self.end()

    def _begin(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop = stop
        self.check()

    def name_label(self, error: ElizaError, *labels: tuple[int, Any]) -> None:
        """Raise an error that names the longest label, if labels do not fit into the context.

        `labels` are pairs of the number of tokens before the labels, and the tokenized labels.
        """
        n_ctx = n_ctx_of(self.binding, self.model.ctx) or 0
        for n_before, each in labels:
            if not isinstance(each, PreparedChoices) or not each.texts:
                continue
            if n_before < n_ctx < n_before + each.longest:
                size = f"{each.longest:,} tokens"
                if n_before:
                    size += f" after a prompt of {n_before:,}"
                raise type(error)(
                    f"the label {self._longest(each)} has {size}, which do not fit the context "
                    f"of {n_ctx:,} tokens"
                ) from error

    def _longest(self, labels: PreparedChoices) -> str:
        tokenize = partial(self.binding.tokenize, self.model.ctx)
        return short_repr(max(labels.texts, key=lambda text: len(tokenize(text))))

    def call(self, call: Callable[[], Result], n_tokens: int) -> Result:
        """Run a native call that decodes about `n_tokens` tokens, and return its result.

        Python handles Ctrl-C in the main thread, and only between two lines of Python. So a long
        call of the main thread runs in another thread, and an interrupt cancels it.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if n_tokens < LONG_CALL or not is_main:
            return call()
        future: Future[Result] = Future()

        def complete(future: Future[Result]) -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            finally:
                del future  # its error refers to this frame, and the frame to it

        thread = threading.Thread(
            target=complete, args=(future,), name="eliza-ffi-call", daemon=True
        )
        thread.start()
        try:
            while thread.is_alive():
                thread.join(JOIN_SECONDS)
        except BaseException:
            self.cancel()
            thread.join()
            raise
        try:
            return future.result()
        finally:
            del future  # as above

    def cancel(self) -> None:
        """Cancel the request; a running native call returns soon."""
        # The lock keeps the stream open between the check and the call.
        with self._lock:
            self._is_cancelled = True
            if self._stop is not None:
                self._stop()

    def check(self) -> None:
        """Raise GenerationCancelledError if the request was cancelled."""
        if self._is_cancelled:
            raise GenerationCancelledError("the request was cancelled")

    def end(self) -> None:
        """Make `cancel` ineffective: the remaining calls are short and must not be interrupted."""
        with self._lock:
            self._stop = None
