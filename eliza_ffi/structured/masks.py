"""Interfaces of objects that compute token masks during a generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class MaskSource(Protocol):
    """Computes the allowed tokens at each position of one text.

    `mask` is called on a separate thread while the model computes. The other methods are called
    only after `mask` has returned.
    """

    @property
    def has_ended(self) -> bool:
        """Whether the text must end here. The generation then ends without an end token."""

    def forced(self) -> Sequence[int]:
        """Return the forced next tokens, in order; empty if none are known to be forced.

        Forced tokens do not take one forward pass each.
        """

    def mask(self) -> NDArray[np.uint32]:
        """Return the mask of the tokens that are allowed next.

        Returns
        -------
        array of uint32, shape [(n_vocab + 31) // 32]
            Bit ``t % 32`` of word ``t // 32`` is set if token t is allowed. If the text may end
            here, the bits of the tokens that end a generation are set, too.
        """

    def accept(self, token: int) -> None:
        """Append the chosen token to the text."""


class Masks(Protocol):
    """A constraint on answers. Each answer gets its own mask source."""

    @property
    def n_words(self) -> int:
        """The number of 32-bit words in a mask: ``(n_vocab + 31) // 32``."""

    def start(self) -> MaskSource:
        """Return the mask source of a new text."""
