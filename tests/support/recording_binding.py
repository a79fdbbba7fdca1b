"""A binding that records its calls and can fail on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.errors import GenerationCancelledError, NativeFaultError
from eliza_ffi.library.protocol import StreamConfig, StreamStats, StreamStep, Tokens, TrieLeaf

ALL = frozenset(("next", "cancel", "set_token_trie", "clear_token_trie"))

STEPS = (
    StreamStep((1,), "one", False),
    StreamStep((2, 3), "two", False, 2, 1),
    StreamStep((4,), "end", True),
)


class RecordingBinding:
    """Takes the place of a `CffiBinding` whose pulls have the results `steps`.

    `failures` maps a call to the exception that it raises; ``"next:1"`` is the second pull. The
    call `hold` blocks until `cancel`, like a long forward pass, and then raises
    GenerationCancelledError.
    """

    def __init__(
        self,
        steps: Iterable[StreamStep] = STEPS,
        *,
        has: Iterable[str] = ALL,
        failures: dict[str, BaseException] | None = None,
        hold: str | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.configs: list[StreamConfig] = []
        self.payloads: list[tuple[str, int]] = []
        self.held = threading.Event()
        self.on_call: Callable[[str], None] = lambda name: None
        self._steps = tuple(steps)
        self._has = frozenset(has)
        self._failures = failures or {}
        self._hold = hold
        self._cancelled = threading.Event()
        self._pulled: dict[int, int] = {}
        self._lock = threading.Lock()
        self._opened = 0

    def supports(self, name: str) -> bool:
        return name in self._has

    def open(self, ctx: Any, config: StreamConfig) -> int:
        self._record("open")
        with self._lock:
            known = {each.name: getattr(config, each.name) for each in fields(StreamConfig)}
            self.configs.append(StreamConfig(**known))
            self._opened += 1
            self._pulled[self._opened] = 0
            return self._opened

    def prefill(self, stream: int, tokens: Tokens) -> None:
        self._record("prefill", stream)

    def next(self, stream: int, *, at_once: bool = False) -> StreamStep:
        position = self._pulled[stream]
        self._record("next", stream, f"next:{position}")
        self._pulled[stream] += 1
        return self._steps[position]

    def cancel(self, stream: int) -> None:
        assert stream in self._pulled, "cancel on a closed stream"
        self._record("cancel", stream)
        self._cancelled.set()

    def set_token_trie(self, stream: int, payload: str, mode: int) -> None:
        self.payloads.append((payload, mode))
        self._record("set_token_trie", stream)

    def clear_token_trie(self, stream: int) -> None:
        self._record("clear_token_trie", stream)

    def token_trie_leaf(self, stream: int) -> TrieLeaf | None:
        self._record("token_trie_leaf", stream)
        return TrieLeaf("A", -0.5)

    def token_trie_scores(self, stream: int) -> NDArray[np.float64]:
        self._record("token_trie_scores", stream)
        return np.log([0.25, 0.75])

    def stats(self, stream: int) -> StreamStats:
        self._record("stats", stream)
        raise NativeFaultError("no counts here")

    def close(self, stream: int) -> None:
        self._record("close", stream)
        del self._pulled[stream]

    def _record(self, name: str, stream: int | None = None, point: str | None = None) -> None:
        assert stream is None or stream in self._pulled, f"{name} on a closed stream"
        self.calls.append(name)
        self.on_call(name)
        self._fail_or_hold(point or name)

    def _fail_or_hold(self, point: str) -> None:
        if point == self._hold:
            self.held.set()
            assert self._cancelled.wait(10), "held and never cancelled"
            raise GenerationCancelledError("cancelled")
        failure = self._failures.get(point)
        if failure is not None:
            raise failure
