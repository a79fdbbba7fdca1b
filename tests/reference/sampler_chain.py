"""The samplers of llama.cpp by their definitions, in double precision: slow and obvious.

Mirostat 2 is at its first token, XTC applies always, DRY has no sequence breakers, and no token is
drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from eliza_ffi.sampling import Sampling
from eliza_ffi.sampling.params import parse_order

Logits = dict[int, float]
"""The logits of the remaining tokens; -inf = excluded, but counted by the dynamic temperature."""


def remaining(
    sampling: Sampling, logits: Sequence[float], tokens: Sequence[int], text: Sequence[int] = ()
) -> Logits:
    """Return the tokens that the samplers leave, with their logits. `text` has earlier tokens."""
    biases = dict(sampling.logit_bias)
    pairs = zip(tokens, logits, strict=True)
    left = {token: float(logit) + biases.get(token, 0.0) for token, logit in pairs}
    names = parse_order(sampling.samplers)
    if sampling.mirostat == 2:
        names = (*names, "mirostat 2")
    for name in names:
        left = SAMPLERS[name](sampling, left, text)
    return possible(left)


def possible(left: Logits) -> Logits:
    return {token: logit for token, logit in left.items() if logit > -math.inf}


def probabilities(left: Logits) -> Logits:
    """Return the softmax of the logits, the most probable token first, without excluded ones."""
    highest = max(left.values())
    powers = {token: math.exp(logit - highest) for token, logit in possible(left).items()}
    total = math.fsum(powers.values())
    shares = {token: power / total for token, power in powers.items()}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def penalties(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    recent = text[-sampling.repeat_last_n :] if sampling.repeat_last_n else ()
    for token, count in Counter(recent).items():
        if token in left:
            logit = left[token]
            repeat = sampling.repeat_penalty
            logit = logit * repeat if logit <= 0 else logit / repeat
            left[token] = logit - count * sampling.frequency_penalty - sampling.presence_penalty
    return left


def dry(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    """The last n tokens also occur earlier: the token that follows there continues a repetition."""
    recent = list(text)[-sampling.dry_penalty_last_n :]
    longest: Counter[int] = Counter()
    for end in range(1, len(recent)):
        length = 0
        while length < end and recent[end - 1 - length] == recent[-1 - length]:
            length += 1
        longest[recent[end]] = max(longest[recent[end]], length)
    for token, length in longest.items():
        more = length - sampling.dry_allowed_length
        if more >= 0 and token in left and len(recent) > sampling.dry_allowed_length:
            left[token] -= sampling.dry_multiplier * sampling.dry_base**more
    return left


def top_n_sigma(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    if sampling.top_n_sigma == 0:
        return left
    values = np.array([*possible(left).values()])
    least = values.max() - sampling.top_n_sigma * values.std()
    return {token: logit if logit >= least else -math.inf for token, logit in left.items()}


def top_k(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    best = sorted(left, key=lambda token: -left[token])[: sampling.top_k or None]
    return {token: left[token] for token in best}


def _first(left: Logits, order: list[int], share: float, *, above: bool) -> Logits:
    """Return the first tokens in this order whose probabilities reach a share, or are above it."""
    shares, total, kept = probabilities(left), 0.0, []
    for token in order:
        kept.append(token)
        total += shares[token]
        if total > share if above else total >= share:
            break
    return {token: left[token] for token in kept}


def typical(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    if sampling.typical_p == 1:
        return left
    shares = probabilities(left)
    entropy = -math.fsum(p * math.log(p) for p in shares.values())
    order = sorted(shares, key=lambda token: abs(-math.log(shares[token]) - entropy))
    return _first(left, order, sampling.typical_p, above=True)


def top_p(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    if sampling.top_p == 1:
        return left
    return _first(left, [*probabilities(left)], sampling.top_p, above=False)


def min_p(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    if sampling.min_p == 0:
        return left
    least = max(left.values()) + math.log(sampling.min_p)
    return {token: logit for token, logit in left.items() if logit >= least}


def xtc(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    """Remove all tokens above the threshold but the least probable one of them."""
    if sampling.xtc_probability == 0 or sampling.xtc_threshold > 0.5:
        return left
    shares = probabilities(left)
    removed = [token for token, p in shares.items() if p >= sampling.xtc_threshold][:-1]
    return {token: logit for token, logit in possible(left).items() if token not in removed}


def temperature(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    divisor, distance = sampling.temperature, sampling.dynatemp_range
    if distance > 0:
        if len(left) == 1:
            return left
        entropy = -math.fsum(p * math.log(p) for p in probabilities(left).values())
        share = (entropy / math.log(len(left))) ** sampling.dynatemp_exponent
        low = max(0.0, divisor - distance)
        divisor = low + (divisor + distance - low) * share
    return {token: logit / divisor for token, logit in left.items()}


def mirostat_2(sampling: Sampling, left: Logits, text: Sequence[int]) -> Logits:
    """Remove tokens whose surprise is above twice the target, but never the most probable one."""
    least = 2.0 ** (-2 * sampling.mirostat_tau)
    best, *others = probabilities(left).items()
    return {token: left[token] for token, p in (best, *others) if p >= min(least, best[1])}


SAMPLERS: dict[str, Callable[[Sampling, Logits, Sequence[int]], Logits]] = {
    "penalties": penalties,
    "dry": dry,
    "top_n_sigma": top_n_sigma,
    "top_k": top_k,
    "typ_p": typical,
    "top_p": top_p,
    "min_p": min_p,
    "xtc": xtc,
    "temperature": temperature,
    "mirostat 2": mirostat_2,
}
