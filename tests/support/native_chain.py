"""The native sampler chain, the numpy reference, and random inputs to compare both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import cffi
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from numpy_sampler import Candidates, Chain, InfillVocabulary

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.sampling import Sampling

N_VOCAB = 32000

Test = TypeVar("Test", bound=Callable[..., Any])


def with_fixtures(test: Test) -> Test:
    """Let a Hypothesis test have fixtures.

    A function, because conftest.py imports this module before it loads Hypothesis's profile.
    """
    return settings(suppress_health_check=[HealthCheck.function_scoped_fixture])(test)


@dataclass(frozen=True)
class Outcome:
    """The result of a chain: remaining ids, logits and probabilities, shape [k], and the token."""

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    probs: NDArray[np.float32]
    token: int


class NativeChain:
    """Runs the native library's sampler chain through its test hook."""

    def __init__(self, path: Path, model: Path) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            """
            int eliza_test_chain(const char * model_path, const char * settings,
                                 const int32_t * ids, const float * logits, size_t n,
                                 const int32_t * accepted, size_t n_accepted, int32_t * ids_out,
                                 float * logits_out, float * probs_out, int32_t * selected_out,
                                 char * error_out, size_t error_cap);
            float eliza_test_gumbel_uniform(uint32_t position, uint32_t seed_offset,
                                            uint32_t token);
            """
        )
        self._lib: Any = self._ffi.dlopen(str(path))
        self._model = str(model).encode()

    def apply(
        self,
        params: Sampling,
        logits: Sequence[float],
        ids: Sequence[int],
        accepted: Sequence[int] = (),
    ) -> Outcome:
        n = len(logits)
        ids_out = np.zeros(n, dtype=np.int32)
        logits_out, probs_out = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
        selected = self._ffi.new("int32_t *")
        error = self._ffi.new("char[]", 1024)
        left = self._lib.eliza_test_chain(
            self._model,
            params.to_json().encode(),
            list(ids),
            list(logits),
            n,
            list(accepted),
            len(accepted),
            self._ffi.from_buffer("int32_t[]", ids_out),
            self._ffi.from_buffer("float[]", logits_out),
            self._ffi.from_buffer("float[]", probs_out),
            selected,
            error,
            1024,
        )
        if left < 0:
            raise InvalidArgumentError(self._ffi.string(error).decode())
        return Outcome(ids_out[:left], logits_out[:left], probs_out[:left], int(selected[0]))

    def uniform(self, position: int, seed: int, token: int) -> float:
        return float(self._lib.eliza_test_gumbel_uniform(position, seed, token))


def reference_of(
    params: Sampling,
    logits: Sequence[float],
    ids: Sequence[int],
    accepted: Sequence[int] = (),
    breakers: Sequence[Sequence[int]] = (),
    infill: InfillVocabulary | None = None,
) -> Candidates:
    chain = Chain(params, N_VOCAB, breakers=breakers, infill=infill)
    for token in accepted:
        chain.accept(token)
    return chain.apply(logits, ids, position=len(accepted))


def possible(outcome: Outcome | Candidates) -> dict[int, float]:
    """Return the remaining tokens with a logit above -infinity, in ascending order."""
    left = zip(outcome.ids.tolist(), outcome.logits.tolist(), strict=True)
    return {token: logit for token, logit in sorted(left) if logit > -np.inf}


def assert_same(native: Outcome, reference: Candidates) -> None:
    """Check that both chains keep the same tokens with the same logits and draw the same token."""
    assert list(possible(native)) == list(possible(reference))
    np.testing.assert_allclose(
        list(possible(native).values()), list(possible(reference).values()), rtol=2e-5, atol=2e-5
    )
    assert native.token == reference.token


def is_on_an_edge(
    params: Sampling,
    logits: Sequence[float],
    ids: Sequence[int],
    accepted: Sequence[int] = (),
    infill: InfillVocabulary | None = None,
) -> bool:
    """Return whether a change of settings and logits as small as rounding changes the result."""
    fields = ("top_p", "min_p", "typical_p", "top_n_sigma", "xtc_threshold", "mirostat_tau")
    chosen = reference_of(params, logits, ids, accepted, infill=infill)
    for factor in (1 - 2e-6, 1 + 2e-6):
        changes = {name: min(getattr(params, name) * factor, 1e6) for name in fields}
        changes = {
            name: min(value, 1.0) if name.endswith(("_p", "threshold")) else value
            for name, value in changes.items()
            if getattr(params, name) not in (0, 1)
        }
        moved = replace(params, **changes)
        shaken = [
            logit * (1 + (i % 3 - 1) * 3e-7) if np.isfinite(logit) else logit
            for i, logit in enumerate(logits)
        ]
        other = reference_of(moved, shaken, ids, accepted, infill=infill)
        if other.token != chosen.token or possible(other).keys() != possible(chosen).keys():
            return True
    return False


def assert_agree(
    native: NativeChain,
    params: Sampling,
    logits: Sequence[float],
    ids: Sequence[int] | None = None,
    accepted: Sequence[int] = (),
    **vocabulary: Any,
) -> None:
    """Check that both chains have the same result, unless rounding could change it.

    With `ids` None, the tokens are 0, 1, ...
    """
    ids = range(len(logits)) if ids is None else ids
    if not is_on_an_edge(params, logits, ids, accepted, **vocabulary):
        reference = reference_of(params, logits, ids, accepted, **vocabulary)
        assert_same(native.apply(params, logits, ids, accepted), reference)


# Distinct logits, because std::sort, which llama.cpp uses, does not define the order of equal ones.
distinct = st.lists(st.integers(-300000, 300000), min_size=1, max_size=60, unique=True).map(
    lambda numbers: [n / 30000 for n in numbers]
)


def hundredths(low: float, high: float) -> st.SearchStrategy[float]:
    return st.integers(round(low * 100), round(high * 100)).map(lambda n: n / 100)


def some(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw settings, each of them from its own strategy."""
    return st.fixed_dictionaries(values)


SETTINGS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "temperature": some(temperature=hundredths(0.2, 3)),
    "dynatemp": some(
        temperature=hundredths(0.5, 2),
        dynatemp_range=st.sampled_from([0.25, 0.5, 3.0]),
        dynatemp_exponent=st.sampled_from([0.5, 1.0, 2.0]),
    ),
    "top_k": some(top_k=st.integers(1, 70)),
    "top_p": some(top_p=hundredths(0.01, 0.99)),
    "min_p": some(min_p=hundredths(0.01, 1)),
    "typ_p": some(typical_p=hundredths(0.01, 0.99)),
    "top_n_sigma": some(top_n_sigma=hundredths(0.1, 4)),
    "xtc": some(xtc_probability=hundredths(0.1, 1), xtc_threshold=hundredths(0.01, 0.5)),
    "penalties": some(
        repeat_penalty=st.sampled_from([0.8, 1.1, 1.5]),
        frequency_penalty=st.sampled_from([0.0, -0.5, 0.7]),
        presence_penalty=st.sampled_from([0.0, 0.3]),
        repeat_last_n=st.sampled_from([0, 3, 64]),
    ),
    "dry": some(
        dry_multiplier=st.sampled_from([0.5, 1.0]),
        dry_base=st.sampled_from([1.0, 1.5, 1.75]),
        dry_allowed_length=st.integers(0, 3),
        dry_penalty_last_n=st.sampled_from([4, 16, 1024]),
    ),
    "mirostat": some(mirostat=st.sampled_from([1, 2]), mirostat_tau=hundredths(0.5, 6)),
    "adaptive_p": some(
        adaptive_target=hundredths(0, 1),
        adaptive_decay=st.sampled_from([0.0, 0.5, 0.9]),
        samplers=st.just("top_k;temperature;adaptive_p"),
    ),
    "logit_bias": some(logit_bias=st.sampled_from([((3, 2.5),), ((1, -1.25), (4, 0.5))])),
    "gumbel": st.just({"draw": "gumbel"}),
}

CHAINED = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"]
