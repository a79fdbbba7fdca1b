"""Generating under masks: the pass on one thread, and on another which tokens may come next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError
from ..library.protocol import LlmStreamingBinding, StreamStep
from ..structured.masks import Masks, MaskSource, one_token_mask

__all__ = ["MaskedSteps"]


class MaskedSteps:
    """The steps of a generation of which every token is masked.

    Parameters
    ----------
    binding
        The library.
    masks
        What may be written.
    check
        Raises where the generation was cancelled.

    Attributes
    ----------
    has_ended : bool
        Whether what was written is whole and nothing may follow.
    """

    def __init__(
        self, binding: LlmStreamingBinding, masks: Masks, check: Callable[[], None]
    ) -> None:
        self._binding = binding
        self._masks = masks
        self._check = check
        self.has_ended = False

    def steps(self, stream: Any) -> Iterator[StreamStep]:
        """Yield the steps; the last is `done`.

        Raises
        ------
        InvalidArgumentError
            If a mask allows nothing.
        ContextFullError, GenerationCancelled, NativeFault
            As the library raises them.
        """
        source = self._masks.start()
        with ThreadPoolExecutor(1, thread_name_prefix="eliza-ffi-mask") as beside:
            while not self._has_ended(source):
                # Each forced token is chosen by a mask of its own, which takes no pass.
                for forced in source.forced() or (None,):
                    self._check()
                    if forced is None:
                        mask = self._mask(stream, source, beside)
                    else:
                        mask = one_token_mask(forced, self._masks.n_words)
                    self._binding.set_token_mask(stream, mask)
                    step = self._binding.next(stream)
                    for chosen in step.tokens:
                        source.accept(chosen)
                    if step.done:
                        self._has_ended(source)
                        yield step
                        return
                    yield step
            yield StreamStep((), "", True)

    def _mask(self, stream: Any, source: MaskSource, beside: Executor) -> NDArray[np.uint32]:
        computing = beside.submit(source.mask)
        try:
            self._binding.decode(stream)
        finally:
            computing.exception()  # nothing else may be asked of the source meanwhile
        mask = computing.result()
        if not mask.any():
            raise InvalidArgumentError("the mask allows no token")
        return mask

    def _has_ended(self, source: MaskSource) -> bool:
        self.has_ended = bool(source.has_ended)
        return self.has_ended
