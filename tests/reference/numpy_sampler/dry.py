"""DRY, "don't repeat yourself": a penalty for tokens that would continue a repetition."""

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
"""The maximum number of tokens that llama.cpp reads after a breaker's first token."""

LOG_OF_FLOAT_MAX = np.float32(88.7228391)

Breakers = Sequence[Sequence[int]]


@dataclass
class Dry(Sampler):
    r"""``llama_sampler_init_dry``.

    If the last `n` tokens of the text also occur earlier in it, followed by some token, that token
    would extend the repetition to `n` + 1 tokens. For each token, `n` is the largest such number.
    If `n` is at least the allowed length `a`, the token's logit is reduced:

    .. math:: l \leftarrow l - m \cdot b^{\,n - a}

    A repetition does not extend across a sequence breaker. Tokens that are sequence breakers on
    their own are not penalised.

    Attributes
    ----------
    multiplier : float
        `m`; 0 = off.
    base : float
        `b`, 1 or more.
    allowed_length : int
        `a`.
    last_n : int
        The number of last accepted tokens that are searched; 0 = off.
    breakers : sequence of sequences of int
        Sequence breakers as non-empty token sequences. :func:`breaker_sequences` creates them from
        strings.

    References
    ----------
    https://github.com/oobabooga/text-generation-webui/pull/5677 (the idea),
    https://github.com/LostRuins/koboldcpp/pull/982 (the version in llama.cpp). llama.cpp finds
    repetitions with the Z-algorithm in linear time. This class searches for them directly.
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
        """Return the number of tokens after the last sequence breaker.

        If several matching breakers begin with the same token, the longest one counts.
        """
        for i, token in enumerate(latest_first):
            tails = [
                len(breaker) - 1
                for breaker in self.breakers
                if breaker[0] == token
                and i >= len(breaker) - 1
                # In this reversed list, the tokens after index i are at i - 1, i - 2, ...
                and all(latest_first[i - j] == breaker[j] for j in range(1, len(breaker)))
            ]
            if tails:
                return i - max(tails)
        return len(latest_first)

    def _longest_repeats(self, latest_first: list[int], limit: int) -> dict[int, int]:
        """Return, for each token, the length of the longest repetition that it would continue."""
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
    """Return every token sequence that contains a sequence breaker, as llama.cpp finds them.

    A token whose text contains the whole breaker is a sequence on its own. A token whose text ends
    with the beginning of the breaker is followed by the tokens of the rest.

    Parameters
    ----------
    breakers
        Non-empty strings. Only the first `MAX_BREAKER_BYTES` bytes in UTF-8 are used.
    pieces
        The text of every token, including special tokens; shape [n_vocab].
    tokenize
        A function that tokenizes the rest of a breaker (bytes) without adding special tokens.

    Returns
    -------
    list of tuple of int
        Distinct sequences: the token in which the breaker begins, and the tokens after it.
    """
    found: dict[tuple[int, ...], None] = {}
    for breaker in breakers:
        text = breaker.encode()[:MAX_BREAKER_BYTES]
        for token, piece in enumerate(pieces):
            if text in piece:
                found[(token,)] = None
                continue
            for i in range(1, min(len(text) - 1, len(piece)) + 1):
                if piece.endswith(text[:i]):
                    found[(token, *tokenize(text[i:])[:MAX_BREAKER_TAIL])] = None
    return list(found)
