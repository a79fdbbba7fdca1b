r"""The sampler chain: from the logits of a vocabulary to one token.

    logit bias -> the samplers of the order string -> the sampler that draws the token

:class:`~eliza_ffi.sampling.params.Sampling` configures this chain and the chain of a native stream.
The tests compare both. To generate text, use a native stream.
"""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from eliza_ffi.sampling import parse_order
from eliza_ffi.sampling.params import BESIDE_MIROSTAT, Sampling

from .arithmetic import MersenneTwister
from .candidates import Candidates, Sampler
from .samplers import (
    AdaptiveP,
    Breakers,
    Dist,
    Dry,
    Greedy,
    Gumbel,
    Infill,
    InfillVocabulary,
    LogitBias,
    MinP,
    Mirostat,
    MirostatV2,
    Penalties,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)

MOVE_SINGLE_LOGITS = ("penalties", "dry")


class Chain:
    """A sampler chain that remembers the text, like the chain of a stream.

    `breakers` are the sequence breakers of `params` as tokens, see `breaker_sequences`; DRY needs
    them. `infill` is needed by the infill sampler. The attribute `samplers` has the samplers in the
    order in which they run; the last one draws the token. `seed` is the seed in use.

    At temperature 0, the chain runs bias, penalties and DRY and then takes the most probable token.
    Truncation, except by XTC and typical, would not remove that token. llama.cpp runs XTC and
    typical at temperature 0 too. Mirostat is combined with bias, penalties, DRY and temperature.
    """

    def __init__(
        self,
        params: Sampling,
        n_vocab: int,
        *,
        breakers: Breakers | None = None,
        infill: InfillVocabulary | None = None,
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self.seed = MersenneTwister(params.seed).seed
        self._breakers = breakers or ()
        self._infill = infill
        self.samplers = [*self._links(), self._last()]

    def apply(
        self, logits: ArrayLike, ids: ArrayLike | None = None, position: int = 0
    ) -> Candidates:
        """Run the chain on a copy of the logits, without recording the drawn token.

        `ids` are the tokens of the logits, such as the allowed tokens of a span. Only Gumbel-max
        depends on the position. Raise InvalidArgumentError if a logit is NaN, or all are ``-inf``.
        """
        candidates = Candidates.of(logits, ids, position)
        for sampler in self.samplers:
            sampler.apply(candidates)
        return candidates

    def accept(self, token: int) -> None:
        """Record the next token of the text."""
        for sampler in self.samplers:
            sampler.accept(token)

    def _links(self) -> list[Sampler]:
        names = parse_order(self.params.samplers)
        if self.params.mirostat:
            names = tuple(name for name in names if name in BESIDE_MIROSTAT)
        if self.params.is_greedy:
            names = tuple(name for name in names if name in MOVE_SINGLE_LOGITS)
        bias: list[Sampler] = (
            [LogitBias(dict(self.params.logit_bias))] if self.params.logit_bias else []
        )
        build = self._builders()
        active = {*self.params.active(), "infill"}
        return bias + [build[name]() for name in names if name in build and name in active]

    def _builders(self) -> dict[str, Callable[[], Sampler]]:
        p = self.params
        return {
            "penalties": lambda: Penalties(
                p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty
            ),
            "dry": lambda: Dry(
                p.dry_multiplier,
                p.dry_base,
                p.dry_allowed_length,
                p.dry_penalty_last_n,
                self._breakers,
            ),
            "top_n_sigma": lambda: TopNSigma(p.top_n_sigma),
            "top_k": lambda: TopK(p.top_k),
            "typ_p": lambda: TypicalP(p.typical_p),
            "top_p": lambda: TopP(p.top_p),
            "min_p": lambda: MinP(p.min_p),
            "xtc": lambda: Xtc(p.xtc_probability, p.xtc_threshold, self.seed),
            "temperature": lambda: Temperature(
                p.temperature, p.dynatemp_range, p.dynatemp_exponent
            ),
            "infill": self._build_infill,
        }

    def _build_infill(self) -> Sampler:
        assert self._infill is not None
        return Infill(self._infill)

    def _last(self) -> Sampler:
        p = self.params
        if p.is_greedy:
            return Greedy()
        if p.mirostat == 1:
            return Mirostat(p.mirostat_tau, p.mirostat_eta, self.seed, self.n_vocab)
        if p.mirostat == 2:
            return MirostatV2(p.mirostat_tau, p.mirostat_eta, self.seed)
        if p.adaptive_target >= 0:
            return AdaptiveP(p.adaptive_target, p.adaptive_decay, self.seed)
        return Gumbel(self.seed) if p.draw == "gumbel" else Dist(self.seed)
