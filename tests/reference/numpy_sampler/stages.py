r"""The distribution of sampling on the CPU, stage by stage, as akunu's book describes it.

A logit vector goes through temperature, softmax, top-k, min-p, top-p and renormalise, in this order
(stages 3 to 8 of nine). All numbers are in single precision and sums run from left to right, as in
the C++ code of the book. llama.cpp's samplers are different functions in a different order: see
:mod:`numpy_sampler.chain`. ``docs/reference/sampling.md`` lists the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eliza_ffi.errors import InvalidArgumentError

from .arithmetic import exp32, running_sum

TOP_K_CAP = 256
"""The number of candidates that the book's top-k keeps if no k is given."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Ranked:
    """Candidates in order of descending probability, with their tokens; shape [k].

    After a truncation, the sum of the probabilities is below 1.
    """

    ids: NDArray[np.int32]
    probs: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, n: int) -> Ranked:
        """Return the `n` most probable candidates."""
        return Ranked(self.ids[:n], self.probs[:n])


def scale_temperature(logits: ArrayLike, temperature: float) -> Floats:
    r"""Stage 3: :math:`l_i \leftarrow l_i \cdot (1 / T)`, with `T` above 0.

    The reciprocal is rounded before the multiplication, as in the book.
    """
    inverse = np.float32(1) / np.float32(temperature)
    scaled: Floats = np.asarray(logits, dtype=np.float32) * inverse
    return scaled


def softmax(logits: ArrayLike) -> Floats:
    r"""Stage 4: the numerically stable softmax.

    .. math:: p_i = e^{l_i - m} / \sum_j e^{l_j - m}, \quad m = \max_j l_j

    The largest exponent is 0, so there is no overflow. Logits of ``-inf`` get probability 0. See
    Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and softmax functions", IMA
    J. Numer. Anal. 41(4), 2021.
    """
    checked = check_logits(logits)
    powers = exp32(checked - checked.max())
    probs: Floats = powers * (np.float32(1) / running_sum(powers)[-1])
    return probs


def top_k(probs: Floats, k: int, cap: int | None = TOP_K_CAP) -> Ranked:
    """Stage 5: keep the `k` most probable tokens, with a partial sort.

    As in the book, a `k` of 0 or less, or of `n_vocab` or more, keeps `cap` tokens (None = all). Of
    tokens with equal probability, the lower id comes first. With the book's ``std::partial_sort``,
    their order is unspecified. The probabilities are not renormalised.
    """
    n = len(probs)
    kept = k if 0 < k < n else n if cap is None else min(n, cap)
    ids = largest_first(probs, kept)
    return Ranked(ids.astype(np.int32), probs[ids])


def min_p(ranked: Ranked, p: float) -> Ranked:
    r"""Stage 6: keep :math:`p_i \ge p \cdot \max_j p_j`, and always the first token; 0 = off.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs",
    arXiv:2407.01082; llama.cpp pull request 3841.
    """
    if p <= 0 or len(ranked) == 0:
        return ranked
    too_small = ranked.probs < ranked.probs[0] * np.float32(p)
    too_small[0] = False
    return ranked.first(int(too_small.argmax()) if too_small.any() else len(ranked))


def top_p(ranked: Ranked, p: float) -> Ranked:
    r"""Stage 7: keep the shortest prefix with a cumulative probability of at least `p`; 1 = off.

    .. math:: n = \min \{ n : \textstyle\sum_{i \le n} p_i \ge p \}

    The probabilities are relative to the whole vocabulary; they are not renormalised after top-k
    and min-p. Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751.
    """
    if p >= 1 or len(ranked) == 0:
        return ranked
    reached = running_sum(ranked.probs) >= np.float32(p)
    return ranked.first(int(reached.argmax()) + 1 if reached.any() else len(ranked))


def renormalize(ranked: Ranked) -> Ranked:
    r"""Stage 8: :math:`p_i \leftarrow p_i / \sum_j p_j` over the remaining tokens."""
    return Ranked(ranked.ids, ranked.probs * (np.float32(1) / running_sum(ranked.probs)[-1]))


def distribution(
    logits: ArrayLike,
    temperature: float = 1.0,
    k: int = 0,
    p: float = 1.0,
    least: float = 0.0,
    cap: int | None = TOP_K_CAP,
) -> Ranked:
    """Return the distribution that the book draws from; `least` is min-p.

    `temperature` must be above 0. At exactly 1, the logits are not scaled, so they are not rounded.
    """
    scaled = check_logits(logits)
    if temperature != 1:
        scaled = scale_temperature(scaled, temperature)
    ranked = top_k(softmax(scaled), k, cap)
    return renormalize(top_p(min_p(ranked, least), p))


def largest_first(values: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Return the indexes of the `k` largest values, largest first; equal ones keep their order."""
    n = len(values)
    chosen = np.arange(n)
    if k < n:
        kth = np.partition(values, n - k)[n - k]
        above = np.flatnonzero(values > kth)
        equal = np.flatnonzero(values == kth)[: k - len(above)]
        chosen = np.sort(np.concatenate((above, equal)))
    return chosen[np.argsort(-values[chosen], kind="stable")]


def check_logits(logits: ArrayLike) -> Floats:
    """Return the logits in single precision.

    Raise InvalidArgumentError if there are none, one is NaN or ``+inf``, or all are ``-inf``.
    """
    checked = np.array(logits, dtype=np.float32)
    if checked.ndim != 1 or len(checked) == 0:
        raise InvalidArgumentError(f"logits: expected shape [n], got {list(checked.shape)}")
    if np.isnan(checked).any():
        raise InvalidArgumentError(f"logits[{int(np.isnan(checked).argmax())}] is NaN")
    if checked.max() == -np.inf:
        raise InvalidArgumentError("all logits are -inf: there is nothing to choose from")
    if checked.max() == np.inf:
        raise InvalidArgumentError(f"logits[{int(checked.argmax())}] is +inf")
    return checked
