"""What a generation under masks asks of whoever computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import check_whole

__all__ = ["MaskSource", "Masks", "one_token_mask"]


MOST_WORDS = 2**26
"""Of a mask: there are no more than 2**31 tokens."""


class MaskSource(Protocol):
    """Where one text stands, and what may follow.

    `mask` is called on a thread of its own while the model computes; the others are called when
    it has returned.
    """

    @property
    def has_ended(self) -> bool:
        """Whether nothing may follow: the generation ends without a token for it."""

    def forced(self) -> Sequence[int]:
        """Return tokens that must come next, one after the other; none where that is not known.

        They take no forward pass each.
        """

    def mask(self) -> NDArray[np.uint32]:
        """Return which tokens may come next.

        Returns
        -------
        array of uint32, shape [(n_vocab + 31) // 32]
            Bit ``t % 32`` of word ``t // 32`` stands for token t. Where the text may end, the bits
            of tokens that end a generation are set, too.
        """

    def accept(self, token: int) -> None:
        """Take note of the token that has come."""


class Masks(Protocol):
    """A language of answers, of which any number of texts can be begun."""

    @property
    def n_words(self) -> int:
        """How many words of 32 bits a mask has: ``(n_vocab + 31) // 32``."""

    def start(self) -> MaskSource:
        """Return where a text begins."""


def one_token_mask(token: int, n_words: int) -> NDArray[np.uint32]:
    """Return the mask of a single token, shape ``[n_words]``."""
    try:
        mask = np.zeros(n_words, np.uint32)
        mask[token // 32] = np.uint32(1 << token % 32)
    except (IndexError, TypeError, ValueError):  # not looked at before: this is done per token
        check_whole("n_words", n_words, 1, MOST_WORDS)
        check_whole("token", token, 0, 32 * n_words - 1)
        raise
    return mask
