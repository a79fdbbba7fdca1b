"""Infill: to fill a gap in a text, prefer ending the text to tokens of low probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .arithmetic import running_sum
from .candidates import Candidates, Sampler

__all__ = ["Infill", "InfillVocabulary"]

LEAST_SHARE = np.float32(0.2)


@dataclass(frozen=True)
class InfillVocabulary:
    """The facts about a vocabulary that the infill sampler needs.

    Attributes
    ----------
    pieces : sequence of bytes, shape [n_vocab]
        The text of every token; empty for control tokens.
    ends : frozenset of int
        The tokens that end a generation.
    end_of_turn : int
        The end token that is drawn if no text token is probable enough.
    """

    pieces: Sequence[bytes] = field(repr=False)
    ends: frozenset[int]
    end_of_turn: int


@dataclass
class Infill(Sampler):
    r"""``llama_sampler_init_infill``, for use after top-k and top-p.

    1. If :math:`3 k \sum_{end} p > \sum_{text} p`, keep only end tokens.
    2. If a token's text begins with another token's text, the more probable of the two takes over
       the probability of the other, which is removed.
    3. Remove text tokens with a probability below 0.2. If none is left, keep only the end-of-turn
       token. Otherwise renormalize, and remove those below 1 / (n + 1), where `n` are left.

    Later samplers use only the logits, which do not change except to ``-inf``. This sampler
    therefore decides which tokens remain, and the original logits decide between these.

    References
    ----------
    https://github.com/ggml-org/llama.cpp/pull/9896
    """

    vocabulary: InfillVocabulary

    def apply(self, candidates: Candidates) -> None:
        candidates.softmax(sort=True)
        ends = self._ends(candidates)
        p_end = _sum(candidates.probs[ends])
        p_text = _sum(candidates.probs[~ends])
        if np.float32(3) * p_end * np.float32(len(candidates)) > p_text:
            candidates.keep(ends)
            _renormalize(candidates)
            return
        self._merge_beginnings(candidates)

        candidates.keep(self._ends(candidates) | (candidates.probs >= LEAST_SHARE))
        n_text = int((~self._ends(candidates)).sum())
        if n_text == 0:
            self._end_turn(candidates)
            return
        _renormalize(candidates)
        least = np.float32(1.0 / (n_text + 1))
        candidates.keep(self._ends(candidates) | (candidates.probs >= least))
        _renormalize(candidates)

    def _ends(self, candidates: Candidates) -> NDArray[np.bool_]:
        is_end = [token in self.vocabulary.ends for token in candidates.ids.tolist()]
        return np.array(is_end, dtype=np.bool_)  # the dtype matters if the list is empty

    def _merge_beginnings(self, candidates: Candidates) -> None:
        logits, probs = candidates.logits, candidates.probs
        pieces = [self.vocabulary.pieces[token] for token in candidates.ids.tolist()]
        for i, shorter in enumerate(pieces):
            for j, longer in enumerate(pieces):
                if logits[i] == -np.inf:
                    break
                if i == j or logits[j] == -np.inf:
                    continue
                if shorter and longer.startswith(shorter):
                    kept, merged = (j, i) if probs[j] > probs[i] else (i, j)
                    probs[kept] += probs[merged]
                    probs[merged], logits[merged] = 0, -np.inf

    def _end_turn(self, candidates: Candidates) -> None:
        candidates.ids = np.array([self.vocabulary.end_of_turn], dtype=np.int32)
        candidates.logits = np.ones(1, dtype=np.float32)
        candidates.probs = np.ones(1, dtype=np.float32)


def _sum(values: NDArray[np.float32]) -> np.float32:
    return np.float32(running_sum(values)[-1]) if len(values) else np.float32(0)


def _renormalize(candidates: Candidates) -> None:
    np.divide(candidates.probs, _sum(candidates.probs), out=candidates.probs)
