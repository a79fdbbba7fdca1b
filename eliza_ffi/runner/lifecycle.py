"""The life of a stream, written once: open, prefill, whatever is done with it, close."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from ..errors import GenerationCancelled
from ..library.protocol import LlmStreamingBinding, StreamConfig, Tokens

__all__ = ["Attempts", "Lifecycle", "open_stream"]

Run = TypeVar("Run", bound="Cancellable")


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


class Attempts(Generic[Run]):
    """Runs of the same, of which one takes the place of another that failed.

    Parameters
    ----------
    make
        Makes a run.
    """

    def __init__(self, make: Callable[[], Run]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._next: Run | None = make()  # what is asked for is checked at once
        self._last = self._next
        self._is_cancelled = False

    def take(self) -> Run:
        """Return a run that has not begun."""
        with self._lock:
            run = self._make() if self._next is None else self._next
            self._next, self._last = None, run
            if self._is_cancelled:
                run.cancel()
        return run

    def cancel(self) -> None:
        """End the run that was taken last, and all that will be."""
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
    def prefilled(
        self, config: StreamConfig, tokens: Tokens, sampling: str | None = None
    ) -> Iterator[Any]:
        """Open a stream for a while, with a prompt in it.

        Parameters
        ----------
        config, tokens
        sampling
            The JSON of a ``SamplingParams``, if the configuration does not say all.
        """
        self.check()
        with open_stream(self._binding, self._ctx, config) as stream:
            with self._lock:
                self._stream = stream
            try:
                self.check()
                if sampling is not None:
                    self._binding.set_sampling(stream, sampling)
                self._binding.prefill(stream, tokens)
                yield stream
            finally:
                self.end()

    def cancel(self) -> None:
        """End it: the native call that is running returns soon."""
        # Under the lock, so that the stream cannot be closed between the check and the call.
        with self._lock:
            self._is_cancelled = True
            if self._stream is not None and self._binding.supports("cancel"):
                self._binding.cancel(self._stream)

    def check(self) -> None:
        """Raise GenerationCancelled if it was cancelled."""
        if self._is_cancelled:
            raise GenerationCancelled(f"the {self._what} was cancelled")

    def end(self) -> None:
        """Leave `cancel` nothing to stop: what follows is short, and must not be cut off."""
        with self._lock:
            self._stream = None
