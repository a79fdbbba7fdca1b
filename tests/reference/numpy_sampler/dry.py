"""DRY, "don't repeat yourself": a penalty for tokens that would go on with a repetition."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from eliza_ffi.sampling.params import MAX_BREAKER_BYTES

from .candidates import Candidates, Sampler

__all__ = ["MAX_BREAKER_TAIL", "Dry", "breaker_sequences"]

MAX_BREAKER_TAIL = 20
"""llama.cpp reads no more tokens behind a breaker's first."""

LOG_OF_FLOAT_MAX = np.float32(88.7228391)

Breakers = Sequence[Sequence[int]]


@dataclass
class Dry(Sampler):
    r"""``llama_sampler_init_dry``.

    If the last `n` tokens of the text stand elsewhere in it, followed by a token, that token would
    make the repetition `n` + 1 long. For its longest repetition, if `n` is at least the allowed
    length `a`:

    .. math:: l \leftarrow l - m \cdot b^{\,n - a}

    A repetition does not reach back over a sequence breaker, and tokens that are breakers by
    themselves are not penalised.

    Attributes
    ----------
    multiplier : float
        `m`; 0 = off.
    base : float
        `b`, 1 or more.
    allowed_length : int
        `a`.
    last_n : int
        How many accepted tokens are looked back on; 0 = off.
    breakers : sequence of sequences of int
        Sequence breakers as tokens, none empty; :func:`breaker_sequences` makes them of texts.

    References
    ----------
    https://github.com/oobabooga/text-generation-webui/pull/5677 (the idea),
    https://github.com/LostRuins/koboldcpp/pull/982 (what llama.cpp does). llama.cpp finds the
    repetitions by the Z-algorithm, in linear time; here they are looked for as the definition has
    it.
    """

    multiplier: float = 0.0
    base: float = 1.75
    allowed_length: int = 2
    last_n: int = 1024
    breakers: Breakers = ()
    _recent: deque[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=self.last_n)

    def apply(self, candidates: Candidates) -> None:
        if self.multiplier == 0 or self.base < 1 or self.last_n == 0:
            return
        if len(self._recent) <= self.allowed_length:
            return
        latest_first = list(self._recent)[::-1]
        limit = self._reach(latest_first)
        if limit < self.allowed_length:
            return
        single = {breaker[0] for breaker in self.breakers if len(breaker) == 1}
        for token, length in self._longest_repeats(latest_first, limit).items():
            if token not in single:
                candidates.logits[candidates.ids == token] -= self._penalty(length)
        candidates.is_sorted = False

    def accept(self, token: int) -> None:
        self._recent.append(token)

    def reset(self) -> None:
        self._recent.clear()

    def _reach(self, latest_first: list[int]) -> int:
        """Return how many of the latest tokens stand behind the last sequence breaker.

        Where several breakers begin with the same token, it is the longest that is there.
        """
        for i, token in enumerate(latest_first):
            tails = [
                len(breaker) - 1
                for breaker in self.breakers
                if breaker[0] == token
                and i >= len(breaker) - 1
                # The tokens behind the one at i are those at i - 1, i - 2, ...
                and all(latest_first[i - j] == breaker[j] for j in range(1, len(breaker)))
            ]
            if tails:
                return i - max(tails)
        return len(latest_first)

    def _longest_repeats(self, latest_first: list[int], limit: int) -> dict[int, int]:
        """Return the length of the longest repetition that each token would go on with."""
        n = len(latest_first)
        longest: dict[int, int] = {}
        for k in range(1, n):
            length = 0
            while k + length < n and latest_first[length] == latest_first[k + length]:
                length += 1
            length = min(length, limit)
            follower = latest_first[k - 1]
            if length >= self.allowed_length and length > longest.get(follower, -1):
                longest[follower] = length
        return longest

    def _penalty(self, length: int) -> np.float32:
        exponent = length - self.allowed_length
        base = np.float32(self.base)
        if base > np.float32(1.000001):  # so that the power does not overflow
            exponent = min(exponent, int(LOG_OF_FLOAT_MAX / np.float32(math.log(base))) or exponent)
        with np.errstate(over="ignore"):
            return np.float32(float(np.float32(self.multiplier)) * float(base) ** exponent)


def breaker_sequences(
    breakers: Iterable[str],
    pieces: Sequence[bytes],
    tokenize: Callable[[bytes], Sequence[int]],
) -> list[tuple[int, ...]]:
    """Return every way in which sequence breakers can begin in a token, as llama.cpp finds them.

    A token that has all of the breaker in it is a breaker by itself. One that ends with the
    beginning of it is one together with the tokens of the rest.

    Parameters
    ----------
    breakers
        Texts, none empty, of at most `MAX_BREAKER_BYTES` bytes in UTF-8; more is cut off.
    pieces
        The text of every token, special ones spelled out; shape [n_vocab].
    tokenize
        Turns the rest of a breaker into tokens, without special ones; called with bytes.

    Returns
    -------
    list of tuple of int
        Each the token it begins in, and the tokens behind that. Distinct.
    """
    found: dict[tuple[int, ...], None] = {}
    for breaker in breakers:
        wanted = breaker.encode()[:MAX_BREAKER_BYTES]
        for token, piece in enumerate(pieces):
            if wanted in piece:
                found[(token,)] = None
                continue
            for i in range(1, min(len(wanted) - 1, len(piece)) + 1):
                if piece.endswith(wanted[:i]):
                    found[(token, *tokenize(wanted[i:])[:MAX_BREAKER_TAIL])] = None
    return list(found)
