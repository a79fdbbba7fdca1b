"""Generate text in which a token mask restricts every token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError
from ..library.binding import CffiBinding
from ..library.protocol import StreamStep
from ..structured.masks import Masks, MaskSource

__all__ = ["MaskedSteps"]

QUICK_MASK = 250e-6
"""Maximum duration, in seconds, of a mask that is computed before the forward pass.

If the mask is known before the pass, the pass computes only the logits that the mask needs. A
mask that takes longer is computed on another thread during the pass."""


class MaskedSteps:
    """The steps of a generation whose tokens are all restricted by masks.

    `check` raises an error if the generation was cancelled. `has_ended` says whether the text is
    complete, so that no token may follow.
    """

    def __init__(self, binding: CffiBinding, masks: Masks, check: Callable[[], None]) -> None:
        self._binding = binding
        self._masks = masks
        self._check = check
        self.has_ended = False

    def steps(self, stream: Any) -> Iterator[StreamStep]:
        """Yield the steps. The last one is `done`."""
        source = self._masks.start()
        with closing(_MaskComputer(source, lambda: self._binding.decode(stream))) as computer:
            while not self._has_ended(source):
                self._check()
                forced = source.forced()
                if forced:
                    self._binding.set_forced_tokens(stream, forced)
                else:
                    self._binding.set_token_mask(stream, computer.mask())
                n_left = len(forced) or 1
                while n_left > 0:
                    self._check()
                    step = self._binding.next(stream)
                    n_left -= len(step.tokens)
                    for token in step.tokens:
                        source.accept(token)
                    if step.done:
                        self._has_ended(source)
                        yield step
                        return
                    yield step
            yield StreamStep((), "", True)

    def _has_ended(self, source: MaskSource) -> bool:
        self.has_ended = bool(source.has_ended)
        return self.has_ended


class _MaskComputer:
    """Computes quick masks before the forward pass, and slow masks on a thread during the pass.

    Each mask is expected to take as long as the previous mask.
    """

    def __init__(self, source: MaskSource, decode: Callable[[], None]) -> None:
        self._source = source
        self._decode = decode
        self._seconds = 0.0  # duration of the last mask's computation
        self._thread: ThreadPoolExecutor | None = None

    def mask(self) -> NDArray[np.uint32]:
        is_quick = self._seconds <= QUICK_MASK
        mask = self._compute() if is_quick else self._compute_during_the_pass()
        if not mask.any():
            raise InvalidArgumentError("the mask allows no token")
        return mask

    def _compute(self) -> NDArray[np.uint32]:
        start = perf_counter()
        mask = self._source.mask()
        self._seconds = perf_counter() - start
        return mask

    def _compute_during_the_pass(self) -> NDArray[np.uint32]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="eliza-ffi-mask")
        computing = self._thread.submit(self._compute)
        try:
            self._decode()
        finally:
            computing.exception()  # wait: the thread must not use the source any more
        return computing.result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
