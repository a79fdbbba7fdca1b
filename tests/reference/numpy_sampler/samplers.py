r"""The samplers of llama.cpp's chain, one class each.

A sampler that needs probabilities computes the softmax of the remaining candidates, so they sum to
1. The result therefore depends on the order of the samplers, and on whether temperature comes
before or after them. The last sampler of a chain draws one of the candidates.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eliza_ffi.sampling.params import MAX_BREAKER_BYTES

from .arithmetic import MersenneTwister, log32, pow32, running_sum
from .candidates import MIN_KEEP, Candidates, Sampler
from .gumbel import gumbel_noise, gumbel_uniform

ONE = np.float32(1)


@dataclass
class LogitBias(Sampler):
    """``llama_sampler_init_logit_bias``: ``logit += bias``; ``-inf`` bans a token."""

    biases: Mapping[int, float]

    def apply(self, candidates: Candidates) -> None:
        for token, bias in self.biases.items():
            candidates.logits[candidates.ids == token] += np.float32(bias)


@dataclass
class Penalties(Sampler):
    r"""``llama_sampler_init_penalties``: repetition, frequency and presence penalty.

    For a token that occurs `c` > 0 times among the last tokens:

    .. math:: l \leftarrow \begin{cases} l / r & l > 0 \\ l \cdot r & l \le 0 \end{cases}
        \quad\text{then}\quad l \leftarrow l - c f - q

    The repetition penalty `r` is applied once, however often the token occurs. `f` and `q` are the
    frequency and the presence penalty.
    """

    last_n: int = 64
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    _recent: deque[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=self.last_n)

    def apply(self, candidates: Candidates) -> None:
        if self.last_n == 0 or (self.repeat == 1 and self.frequency == 0 and self.presence == 0):
            return
        repeat, frequency = np.float32(self.repeat), np.float32(self.frequency)
        logits = candidates.logits
        for token, count in Counter(self._recent).items():
            at = candidates.ids == token
            logits[at] = np.where(logits[at] <= 0, logits[at] * repeat, logits[at] / repeat)
            logits[at] -= np.float32(count) * frequency + np.float32(self.presence)
        candidates.is_sorted = False

    def accept(self, token: int) -> None:
        self._recent.append(token)


MAX_BREAKER_TAIL = 20
"""The maximum number of tokens that llama.cpp reads after a breaker's first token."""

LOG_OF_FLOAT_MAX = np.float32(88.7228391)

Breakers = Sequence[Sequence[int]]


@dataclass
class Dry(Sampler):
    r"""``llama_sampler_init_dry``, "don't repeat yourself".

    If the last `n` tokens of the text also occur earlier in it, followed by some token, that token
    would extend the repetition to `n` + 1 tokens. For each token, `n` is the largest such number.
    If `n` is at least the allowed length `a`, the token's logit is reduced by multiplier `m` and
    base `b`:

    .. math:: l \leftarrow l - m \cdot b^{\,n - a}

    A repetition does not extend across a sequence breaker. Tokens that are sequence breakers on
    their own are not penalised.

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
    with the beginning of the breaker is followed by the tokens of the rest. `pieces` are the texts
    of all tokens, and `tokenize` tokenizes bytes without adding special tokens.
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


@dataclass
class Temperature(Sampler):
    r"""``llama_sampler_init_temp_ext``: :math:`l_i \leftarrow l_i / T`.

    With a range `d`, the temperature depends on the entropy `H` of the `k` candidates, to the
    exponent `e`:

    .. math:: T' = T_{lo} + (T_{hi} - T_{lo}) (H / \ln k)^e, \quad T_{lo} = \max(0, T - d), \;
        T_{hi} = T + d

    A temperature of 0 sets all logits to ``-inf`` except the largest one (the first, if several are
    equal). https://github.com/ggml-org/llama.cpp/pull/4972 (dynamic temperature).
    """

    temperature: float
    range: float = 0.0
    exponent: float = 1.0

    def apply(self, candidates: Candidates) -> None:
        if self.range > 0:
            if len(candidates) > 1:
                _divide(candidates, self._dynamic(candidates))
                candidates.softmax(sort=False)
        else:
            _divide(candidates, np.float32(self.temperature))

    def _dynamic(self, candidates: Candidates) -> np.float32:
        temperature, distance = np.float32(self.temperature), np.float32(self.range)
        low, high = max(np.float32(0), temperature - distance), temperature + distance
        candidates.softmax(sort=True)
        positive = candidates.probs[candidates.probs > 0]
        entropy = running_sum(-positive * log32(positive))[-1]
        share = entropy / -log32(np.float32(1) / np.float32(len(candidates)))
        return np.float32(low + (high - low) * pow32(share, np.float32(self.exponent)))


def _divide(candidates: Candidates, temperature: np.float32) -> None:
    if temperature > 0:
        np.divide(candidates.logits, temperature, out=candidates.logits)
        return
    best = int(candidates.logits.argmax())
    candidates.logits[:best] = -np.inf
    candidates.logits[best + 1 :] = -np.inf


@dataclass
class TopK(Sampler):
    """``llama_sampler_init_top_k``: keep the `k` largest logits; 0 or less = off.

    Fan, Lewis and Dauphin, "Hierarchical Neural Story Generation", arXiv:1805.04833.
    """

    k: int

    def apply(self, candidates: Candidates) -> None:
        if self.k > 0:
            candidates.sort(self.k)


@dataclass
class TopP(Sampler):
    r"""``llama_sampler_init_top_p``: keep the shortest prefix with :math:`\sum p_i \ge p`; 1 = off.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p >= 1:
            return
        candidates.softmax(sort=False)  # before sorting: the sum runs in the order of the tokens
        candidates.sort()
        reached = running_sum(candidates.probs) >= np.float32(self.p)
        reached[: MIN_KEEP - 1] = False
        if reached.any():
            candidates.keep(slice(int(reached.argmax()) + 1))


@dataclass
class MinP(Sampler):
    r"""``llama_sampler_init_min_p``: keep :math:`l_i \ge \max_j l_j + \ln p`; 0 = off.

    This is :math:`p_i \ge p \cdot \max_j p_j` without a softmax. The order does not change. Nguyen
    et al., "Turning Up the Heat: Min-p Sampling", arXiv:2407.01082.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p > 0:
            least = candidates.logits.max() + log32(np.float32(self.p))
            candidates.keep(candidates.logits >= least)


@dataclass
class TypicalP(Sampler):
    r"""``llama_sampler_init_typical``: keep the most typical tokens until :math:`\sum p_i > p`.

    A token is more typical if its surprise is nearer to the expected surprise, that is, if
    :math:`|-\ln p_i - H|` is smaller, with the entropy :math:`H = -\sum_j p_j \ln p_j` in nats.
    Afterwards the tokens are ordered by this distance, not by logit. 1 = off. Meister et al.,
    "Locally Typical Sampling", arXiv:2202.00666.

    Here, a token of probability 0 does not contribute to the entropy and is the least typical.
    llama.cpp computes ``0 * log(0)``, which is NaN, and then keeps unpredictable tokens.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p >= 1:
            return
        candidates.softmax(sort=True)
        probs, logs = candidates.probs, log32(candidates.probs)
        terms = np.zeros_like(probs)
        np.multiply(-probs, logs, out=terms, where=probs > 0)
        order = np.argsort(np.abs(-logs - running_sum(terms)[-1]), kind="stable")
        reached = running_sum(probs[order]) > np.float32(self.p)
        reached[: MIN_KEEP - 1] = False
        candidates.keep(order[: int(reached.argmax()) + 1] if reached.any() else order)
        candidates.is_sorted = False


@dataclass
class TopNSigma(Sampler):
    r"""``llama_sampler_init_top_n_sigma``: allow :math:`l_i \ge \max_j l_j - n \sigma`.

    :math:`\sigma` is the standard deviation of the logits above ``-inf``. The logits of all other
    tokens are set to ``-inf``; the tokens stay among the candidates. `n` of 0 or less = off. Tang
    et al., "Top-nsigma: Not All Logits Are You Need", arXiv:2411.07641.
    """

    n: float

    def apply(self, candidates: Candidates) -> None:
        if self.n <= 0 or len(candidates) <= 1:
            return
        finite = candidates.logits[candidates.logits > -np.inf]
        count = np.float32(len(finite))
        mean = running_sum(finite)[-1] / count
        squares = np.square((finite - mean).astype(np.float64)).astype(np.float32)
        sigma = np.sqrt(running_sum(squares)[-1] / count)
        least = finite.max() - np.float32(self.n) * sigma
        candidates.logits[candidates.logits < least] = -np.inf


@dataclass
class Xtc(Sampler):
    """``llama_sampler_init_xtc``, "exclude top choices".

    With a given probability, removes all tokens whose probability is at least a threshold, except
    the least probable of them. A threshold above 0.5 = off, because two tokens cannot both have
    such a probability. Uses its own random number generator with the chain's seed. A candidate with
    ``-inf`` does not count as a top choice, even if the threshold is 0. Otherwise it could be the
    only one that remains, and no token could be drawn.
    https://github.com/oobabooga/text-generation-webui/pull/6335
    """

    probability: float
    threshold: float = 0.1
    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)

    def apply(self, candidates: Candidates) -> None:
        if self.probability <= 0 or self.threshold > 0.5 or len(candidates) < 2:
            return
        if self._random.uniform32() > np.float32(self.probability):
            return
        candidates.softmax(sort=True)
        is_likely = candidates.probs >= np.float32(self.threshold)
        n_likely = int((is_likely & (candidates.logits > -np.inf)).sum())
        if n_likely > 1:
            candidates.keep(slice(n_likely - 1, None))


MIN_SHARE = np.float32(0.2)


@dataclass(frozen=True)
class InfillVocabulary:
    """The facts about a vocabulary that the infill sampler needs.

    `pieces` are the texts of all tokens, empty for control tokens. `ends` are the tokens that end a
    generation; `end_of_turn` is drawn if no text token is probable enough.
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

        candidates.keep(self._ends(candidates) | (candidates.probs >= MIN_SHARE))
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


def _renormalize(candidates: Candidates) -> None:
    np.divide(candidates.probs, _sum(candidates.probs), out=candidates.probs)


@dataclass
class MirostatV2(Sampler):
    r"""``llama_sampler_init_mirostat_v2``: remove tokens with a surprise above :math:`\mu` bits.

    It draws the token, and then adjusts the largest allowed surprise to the target `tau` with the
    learning rate `eta`:

    .. math:: \mu \leftarrow \mu - \eta \, (-\log_2 p - \tau), \quad \mu_0 = 2 \tau

    where `p` is the probability of the drawn token among the remaining candidates. Basu et al.,
    "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity",
    arXiv:2007.14966.
    """

    tau: float = 5.0
    eta: float = 0.1
    seed: int | None = None
    mu: np.float32 = field(init=False)
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)
        self.mu = np.float32(2) * np.float32(self.tau)

    def apply(self, candidates: Candidates) -> None:
        candidates.softmax(sort=True)
        self._truncate(candidates)
        candidates.softmax(sort=True)
        candidates.selected = self._random.index(candidates.probs)
        error = _surprise(candidates.probs[candidates.selected]) - np.float32(self.tau)
        self.mu = self.mu - np.float32(self.eta) * error

    def _truncate(self, candidates: Candidates) -> None:
        too_surprising = _surprise(candidates.probs) > self.mu
        if too_surprising.any():
            candidates.keep(slice(max(int(too_surprising.argmax()), 1)))


@dataclass
class Mirostat(MirostatV2):
    r"""``llama_sampler_init_mirostat``: top-k, where `k` is estimated from Zipf's law.

    The exponent `s` of the law is fitted to the `m` most probable candidates,

    .. math:: \hat s = \frac{\sum_i t_i b_i}{\sum_i t_i^2}, \quad t_i = \ln\frac{i + 2}{i + 1}, \;
        b_i = \ln\frac{p_i}{p_{i+1}}, \qquad k = \left(\frac{\epsilon \, 2^\mu}{1 -
        n^{-\epsilon}}\right)^{1 / \hat s}, \; \epsilon = \hat s - 1

    with the vocabulary's size `n`. If `k` is NaN or does not fit into 32 bits, which happens with
    equal logits, llama.cpp converts it to ``int`` nevertheless, which is undefined behaviour in
    C++. On x86 the result is the smallest ``int``, so k becomes 1.
    """

    n_vocab: int = 0
    m: int = 100

    def _truncate(self, candidates: Candidates) -> None:
        k = self._estimate(candidates.probs)
        fits = np.isfinite(k) and abs(k) < 2**31
        candidates.sort(max(int(k), 1) if fits else 1)

    def _estimate(self, probs: NDArray[np.float32]) -> np.float32:
        n = min(self.m, len(probs))
        i = np.arange(n - 1, dtype=np.float32)
        with np.errstate(all="ignore"):
            t = log32((i + 2) / (i + 1))
            b = log32(probs[: n - 1] / probs[1:n])
            s = _sum(t * b) / _sum(t * t)
            epsilon = s - ONE
            numerator = epsilon * pow32(2, self.mu)
            return np.float32(
                pow32(numerator / (ONE - pow32(np.float32(self.n_vocab), -epsilon)), ONE / s)
            )


def _surprise(probs: ArrayLike) -> NDArray[np.float32]:
    """Return ``-log2(p)``, in bits."""
    with np.errstate(divide="ignore"):
        return -np.log2(np.asarray(probs, dtype=np.float64)).astype(np.float32)


def _sum(values: NDArray[np.float32]) -> np.float32:
    return np.float32(running_sum(values)[-1]) if len(values) else np.float32(0)


INVERSE_WIDTH = np.float32(1) / np.float32(0.3)
PEAK_LOGIT = np.float32(5)
SHARPNESS = np.float32(10)


@dataclass
class AdaptiveP(Sampler):
    r"""``llama_sampler_init_adaptive_p``, which draws tokens whose probability is near a target.

    Each logit is replaced by a function of the distance between the token's probability and the
    adapted target `t'`. The token is drawn from the new logits:

    .. math:: l_i \leftarrow 5 - 10 \frac{d_i^2}{1 + d_i}, \quad d_i = \frac{|p_i - t'|}{0.3}, \quad
        t' = \min(1, \max(0, 2 t - \bar p))

    :math:`\bar p` is the exponentially weighted mean of the original probabilities of the accepted
    tokens, with initial value `t`. With each further token, the weight of an earlier token is
    multiplied by `decay`, 0 to 0.99. https://github.com/ggml-org/llama.cpp/pull/17927
    """

    target: float
    decay: float = 0.9
    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)
    _weighted_sum: np.float32 = field(init=False, repr=False)
    _total_weight: np.float32 = field(init=False, repr=False)
    _pending: tuple[int, np.float32] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)
        rest = ONE - np.float32(self.decay)
        self._weighted_sum = np.float32(self.target) / rest
        self._total_weight = ONE / rest
        self._pending = None

    def apply(self, candidates: Candidates) -> None:
        candidates.softmax(sort=False)
        original = candidates.probs
        distance = np.abs((original - self._adapted_target()) * INVERSE_WIDTH)
        shaped = PEAK_LOGIT - SHARPNESS * distance * distance / (ONE + distance)
        candidates.logits = np.where(candidates.logits == -np.inf, candidates.logits, shaped)
        # As in llama.cpp, `is_sorted` does not change. If it is True, the softmax subtracts the
        # first logit, which need not be the largest now. The new logits are so close to each other
        # that this is harmless.
        candidates.softmax(sort=False)
        candidates.selected = self._random.index(candidates.probs)
        self._pending = (candidates.token, np.float32(original[candidates.selected]))

    def accept(self, token: int) -> None:
        if self._pending is not None and self._pending[0] == token:
            decay = np.float32(self.decay)
            self._weighted_sum = self._pending[1] + decay * self._weighted_sum
            self._total_weight = ONE + decay * self._total_weight
        self._pending = None

    def _adapted_target(self) -> np.float32:
        mean = self._weighted_sum / self._total_weight
        return np.float32(np.clip(np.float32(2) * np.float32(self.target) - mean, 0, 1))


@dataclass
class Greedy(Sampler):
    """``llama_sampler_init_greedy``: take the largest logit, the first one if several are equal."""

    def apply(self, candidates: Candidates) -> None:
        candidates.check()
        candidates.selected = int(candidates.logits.argmax())


@dataclass
class Dist(Sampler):
    r"""``llama_sampler_init_dist``: invert the cumulative distribution function of the softmax.

    Returns the first `n` with :math:`\sum_{i \le n} w_i \ge u \sum_i w_i`, where :math:`w_i =
    e^{l_i - \max l}`. Sums are in double precision. A random number is used even if there is only
    one candidate.
    """

    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)

    def apply(self, candidates: Candidates) -> None:
        weights = candidates.weights().astype(np.float64)
        cumulative = np.add.accumulate(weights)
        reached = cumulative >= cumulative[-1] * self._random.uniform()
        candidates.probs = (weights / cumulative[-1]).astype(np.float32)
        candidates.selected = int(reached.argmax()) if reached.any() else len(candidates) - 1


@dataclass
class Gumbel(Sampler):
    """``llama_sampler_init_gumbel``: the argmax of logit + noise, where the noise is a hash.

    Has no state; the position comes from the candidates. If scores are equal, the lowest id is
    taken. See :mod:`numpy_sampler.gumbel`.
    """

    seed_offset: int

    def apply(self, candidates: Candidates) -> None:
        candidates.check()
        uniform = gumbel_uniform(candidates.position, self.seed_offset, candidates.ids)
        scores = candidates.logits + gumbel_noise(uniform)
        best = np.flatnonzero(scores == scores.max())
        candidates.selected = int(best[candidates.ids[best].argmin()])
