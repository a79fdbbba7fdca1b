"""The life of a stream, written once: open, prefill, whatever is done with it, close."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from ..errors import GenerationCancelled
from ..library.protocol import LlmStreamingBinding, StreamConfig, Tokens

__all__ = ["Lifecycle", "Work", "open_stream"]

Run = TypeVar("Run", bound="Cancellable")
Step = TypeVar("Step")


@contextmanager
def open_stream(binding: LlmStreamingBinding, ctx: Any, config: StreamConfig) -> Iterator[Any]:
    """Open a stream for a while."""
    stream = binding.open(ctx, config)
    try:
        yield stream
    finally:
        binding.close(stream)


class Cancellable(Protocol):
    """What another thread may end."""

    def cancel(self) -> None:
        """End it."""


class Work(Generic[Step]):
    """A request that takes a slot. It can be run again, and another thread can cancel it.

    Parameters
    ----------
    make
        Makes a run of the request. It is called at once, which checks the request.
    steps
        From a run to its steps, the last of which is the request's result. Steps that nobody asked
        for are left out: a request that has given out a step is not run again.
    n_tokens
        Tokens of the context that the request needs, at least.
    slot_id
        The slot it names; -1 = any.
    at_most
        As :meth:`~eliza_ffi.session.turns.Turns.one`.
    """

    def __init__(
        self,
        make: Callable[[], Run],
        steps: Callable[[Run], Generator[Step, None, None]],
        *,
        n_tokens: float,
        slot_id: int = -1,
        at_most: int | None = None,
    ) -> None:
        self.n_tokens = n_tokens
        self.slot_id = slot_id
        self.at_most = at_most
        self._make: Callable[[], Cancellable] = make
        self._steps: Callable[[Any], Generator[Step, None, None]] = steps
        self._lock = threading.Lock()
        self._last: Cancellable = make()
        self._next: Cancellable | None = self._last
        self._is_cancelled = False

    def steps(self) -> Generator[Step, None, None]:
        """Run it, from the beginning each time."""
        with self._lock:
            run: Cancellable = self._make() if self._next is None else self._next
            self._next, self._last = None, run
            if self._is_cancelled:
                run.cancel()
        return self._steps(run)

    def cancel(self) -> None:
        """End the last run and all that follow."""
        with self._lock:
            self._is_cancelled = True
            self._last.cancel()


class Lifecycle:
    """One stream that can be cancelled from any thread, from before it is open until it closes.

    Parameters
    ----------
    binding, ctx
        The library and the context to open it on.
    what
        What is cancelled, as errors call it.
    """

    def __init__(self, binding: LlmStreamingBinding, ctx: Any, what: str) -> None:
        self._binding = binding
        self._ctx = ctx
        self._what = what
        self._lock = threading.Lock()
        self._stream: Any = None
        self._is_cancelled = False

    @contextmanager
    def opened(self, config: StreamConfig) -> Iterator[Any]:
        """Open a stream for a while."""
        self.check()
        with open_stream(self._binding, self._ctx, config) as stream:
            with self._lock:
                self._stream = stream
            try:
                self.check()
                yield stream
            finally:
                self.end()

    @contextmanager
    def prefilled(
        self, config: StreamConfig, tokens: Tokens, sampling: str | None = None
    ) -> Iterator[Any]:
        """Open a stream for a while, with a prompt in it.

        Parameters
        ----------
        config, tokens
        sampling
            The JSON of a ``Sampling``, if the configuration does not say all.
        """
        with self.opened(config) as stream:
            if sampling is not None:
                self._binding.set_sampling(stream, sampling)
            self._binding.prefill(stream, tokens)
            yield stream

    def cancel(self) -> None:
        """End it: the native call that is running returns soon."""
        # Under the lock, so that the stream cannot be closed between the check and the call.
        with self._lock:
            self._is_cancelled = True
            if self._stream is not None:
                self._binding.cancel(self._stream)

    def check(self) -> None:
        """Raise GenerationCancelled if it was cancelled."""
        if self._is_cancelled:
            raise GenerationCancelled(f"the {self._what} was cancelled")

    def end(self) -> None:
        """Leave `cancel` nothing to stop: what follows is short, and must not be cut off."""
        with self._lock:
            self._stream = None
