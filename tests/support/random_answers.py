"""Answers made of random tokens that masks allow, as a model with no opinion would write them."""

from __future__ import annotations

import random

import numpy as np

from eliza_ffi.errors import NativeFault
from eliza_ffi.structured import GuidanceMasks

__all__ = ["random_answer"]


def random_answer(
    masks: GuidanceMasks, texts: tuple[bytes, ...], dice: random.Random, most: int = 60
) -> str | None:
    """Return an answer.

    Parameters
    ----------
    masks
    texts
        What each token spells.
    dice
    most
        Tokens after which the answer is brought to its end.

    Returns
    -------
    str or None
        None if no ending was found, or the language contains itself without end.
    """
    try:
        return _answer(masks, texts, dice, most)
    except NativeFault as error:
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
