"""Pulls over a library that only pushes: ``next`` made of ``generate``.

The library's one call of ``generate`` runs on a thread of its own, and its callback hands each
token over and then waits until the next one is asked for. So the library sees the one call that
it was written for, nothing is computed before it is asked for, and no token can be lost.

Calls of ``generate`` for one token each would be simpler, but are the same only where a library
goes on from such a call as if there had been none: those that draft several tokens, hold back half
a character or count a penalty per call do not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ...errors import GenerationCancelled
from ..protocol import StreamStep, TokenCallback

__all__ = ["NO_LIMIT", "PushedPull"]

NO_LIMIT = 2**31 - 1
"""What ``generate`` is told where there is no limit: some libraries take 0 for "no token"."""


class PushedPull:
    """The tokens of one stream, pulled.

    Parameters
    ----------
    push : callable
        Runs ``generate(limit, on_token)`` to its end, and raises if it fails.
    interrupt : callable
        Makes a ``generate`` that is computing return soon, if the library can.
    take_rest : callable
        Returns the text that was held back because a character was not whole.
    max_tokens : int
        Tokens to generate, 0 = no limit.

    Notes
    -----
    `next` is called by one thread at a time; `cancel` and `halt` may come from any other.

    Between two pulls the library stands still inside its callback. One that locks more than this
    stream meanwhile cannot be given another call by the thread that would have to pull next.
    """

    def __init__(
        self,
        push: Callable[[int, TokenCallback], None],
        interrupt: Callable[[], None],
        take_rest: Callable[[], str],
        max_tokens: int = 0,
    ) -> None:
        self._push = push
        self._interrupt = interrupt
        self._take_rest = take_rest
        self._max_tokens = max_tokens
        self._left = max_tokens or NO_LIMIT
        self._changed = threading.Condition()
        self._steps: deque[StreamStep] = deque()
        self._failure: BaseException | None = None
        self._is_running = False
        self._is_resting = False  # inside the callback, until the next token is asked for
        self._is_asked = False
        self._is_halting = False
        self._is_cancelled = False
        self._has_ended = False

    def begin(self) -> None:
        """Go on after a prefill: the limit counts anew. The library must be at rest."""
        with self._changed:
            self._left = self._max_tokens or NO_LIMIT
            self._has_ended = False
            self._failure = None

    def next(self) -> StreamStep:
        """Return the next token; after the last, a step that is `done`.

        Raises
        ------
        GenerationCancelled
            If `cancel` was called during this pull or since the one before. Tokens that came
            meanwhile stay, and the pull after it goes on with them.
        ElizaError
            If the library failed, after all tokens that it had brought.
        """
        with self._changed:
            if not (self._steps or self._has_ended or self._failure or self._is_cancelled):
                self._ask()
                self._changed.wait_for(lambda: self._steps or not self._is_running)
            if self._is_cancelled:
                self._wait_for_the_end()
                self._is_cancelled = False
                raise GenerationCancelled("the generation was cancelled")
            if self._steps:
                return self._steps.popleft()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if not self._has_ended:
                raise GenerationCancelled("the stream was closed while it generated")
            return StreamStep((), self._take_rest(), True)

    def cancel(self) -> None:
        """Make the pull that is waiting raise GenerationCancelled, or if none is, the next one."""
        with self._changed:
            self._is_cancelled = True
            is_computing = self._is_running and not self._is_resting
            self._changed.notify_all()
        if is_computing:
            self._interrupt()

    def halt(self) -> None:
        """End the library's call and wait until it has returned; the tokens it brought stay."""
        with self._changed:
            self._is_halting = True
            is_computing = self._is_running and not self._is_resting
            self._changed.notify_all()
        # Not under the lock: the library may hold one of its own while it calls back.
        if is_computing:
            self._interrupt()
        with self._changed:
            self._wait_for_the_end()
            self._is_halting = False

    def _ask(self) -> None:
        self._is_asked = True
        if self._is_running:
            self._changed.notify_all()
            return
        if self._left == 0:
            self._has_ended = True
            return
        self._is_running = True
        threading.Thread(target=self._run, name="eliza-ffi-generate", daemon=True).start()

    def _wait_for_the_end(self) -> None:
        self._changed.wait_for(lambda: not self._is_running)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._push(self._left, self._on_token)
        except BaseException as error:  # the thread that pulls raises it
            failure = error
        with self._changed:
            is_ours = self._is_halting or self._is_cancelled
            if failure is None:
                self._has_ended = True
            elif not (is_ours and isinstance(failure, GenerationCancelled)):
                self._failure = failure
            self._is_running = False
            self._changed.notify_all()

    def _on_token(self, token: int, text: str) -> bool:
        with self._changed:
            if token >= 0 and self._left != NO_LIMIT:
                self._left = max(self._left - 1, 0)
            self._steps.append(StreamStep((token,) if token >= 0 else (), text, False))
            self._is_asked = False
            self._is_resting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_asked or self._is_halting or self._is_cancelled)
            self._is_resting = False
            return self._is_halting or self._is_cancelled
