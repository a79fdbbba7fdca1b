"""Generate answers from random tokens that masks allow."""

from __future__ import annotations

import random

import numpy as np

from eliza_ffi.errors import NativeFaultError
from eliza_ffi.structured.guidance import GuidanceMasks


def random_answer(
    masks: GuidanceMasks, texts: tuple[bytes, ...], dice: random.Random, most: int = 60
) -> str | None:
    """Return a random answer that the masks allow.

    Parameters
    ----------
    texts
        The bytes of each token.
    most
        The maximum number of random tokens. After them, the shortest completion follows.

    Returns
    -------
    str or None
        None if no completion was found, or llguidance reports too many items.
    """
    try:
        return _answer(masks, texts, dice, most)
    except NativeFaultError as error:
        assert "Too many items" in str(error)
        return None


def _answer(
    masks: GuidanceMasks, texts: tuple[bytes, ...], dice: random.Random, most: int
) -> str | None:
    source, tokens = masks.start(), list[int]()
    while not source.has_ended and len(tokens) < most:
        if source.may_end and dice.random() < 0.5:
            break
        bits = np.unpackbits(source.mask().view(np.uint8), bitorder="little")
        allowed = [int(token) for token in np.flatnonzero(bits) if token < len(texts)]
        token = dice.choice(allowed)
        if source.may_end and texts[token].startswith(b"<"):
            break  # a token that ends the text
        source.accept(token)
        tokens.append(token)
    closed = masks.close(tokens)
    return None if closed is None else closed[1]
