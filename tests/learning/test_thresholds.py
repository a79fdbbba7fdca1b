"""Certified thresholds and conformal sets: exact bounds, and guarantees on known populations."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.certificates import Automation, ConformalSets
from eliza_ffi.learning import thresholds
from eliza_ffi.learning.thresholds import GRID, STARTS, automation, certify, conformal

Array = NDArray[np.float64]

N_DRAWS = 400


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return the probability of at most k successes in n trials, computed with 60 digits."""
    with localcontext() as context:
        context.prec, context.Emin = 60, -(10**8)
        success = Decimal(p)
        odds = success / (1 - success)
        term = total = (1 - success) ** n
        for i in range(1, k + 1):
            term *= odds * (n - i + 1) / i
            total += term
        return float(total)


def upper_bound(n_wrong: int, n: int, delta: float) -> float:
    """Return the smallest rate that bounds the error rate, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        is_bounded = thresholds.is_bounded(n_wrong, n, middle, delta)
        low, high = (low, middle) if is_bounded else (middle, high)
    return high


def most_successes(n: int, p: float, chance: float = 0.001) -> int:
    """Return the smallest k that n trials exceed with at most the given probability."""
    chances = [math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(n + 1)]
    return next(k for k in range(n + 1) if sum(chances[k + 1 :]) <= chance)


@settings(deadline=None)
@given(st.data(), st.integers(1, 60), st.floats(1e-6, 0.999))
def test_at_the_bound_the_binomial_tail_is_delta(data: st.DataObject, n: int, delta: float) -> None:
    k = data.draw(st.integers(0, n - 1))
    assert binomial_cdf(k, n, upper_bound(k, n, delta)) == pytest.approx(delta, rel=1e-10)
    assert upper_bound(n, n, delta) == upper_bound(0, 0, delta) == 1.0


@pytest.mark.parametrize("k", [0, 3, 5_000, 50_000, 99_990, 99_999])
@pytest.mark.parametrize("delta", [0.1, 1e-6])
def test_at_the_bound_of_many_answers_the_binomial_tail_is_delta(k: int, delta: float) -> None:
    n = 100_000
    assert binomial_cdf(k, n, upper_bound(k, n, delta)) == pytest.approx(delta, rel=1e-8)


@dataclass(frozen=True, eq=False)
class Population:
    """A population of answers: their probabilities, how frequent they are, and their error rates.

    Attributes
    ----------
    n : int
        The number of labelled rows in a draw.
    is_certifiable : bool
        Whether most draws are expected to certify a threshold.
    """

    values: Array
    errors: Array
    weights: Array | float = 1.0
    n: int = 400
    risk: float = 0.1
    is_certifiable: bool = False

    @property
    def shares(self) -> Array:
        weights = self.weights * np.ones(len(self.values))
        return weights / weights.sum()

    def draw(self, rng: np.random.Generator, n: int | None = None) -> tuple[Array, Array]:
        """Return the probabilities of some answers, and whether they are right."""
        rows = rng.choice(len(self.values), size=n or self.n, p=self.shares)
        return self.values[rows], rng.random(len(rows)) >= self.errors[rows]

    def error_above(self, threshold: float) -> float:
        """Return the true error rate of the answers above a threshold."""
        above = self.values >= threshold
        shares = self.shares[above]
        return float((shares * self.errors[above]).sum() / shares.sum()) if above.any() else 0.0


# From 0.27 to 0.9999, so that rows are above all starting points
SURE = 1 / (1 + np.exp(-np.linspace(-1, 9, 500)))
LOW = np.linspace(0.05, 0.65, 500)
OVERCONFIDENT = np.minimum(0.9, 4 * (1 - SURE) + 0.02)
WRONG_AT_THE_TOP = np.where(SURE > 0.996, 0.13, np.where(SURE > 0.9, 0.02, 0.3))
TIED = np.array([0.6, 0.9, 0.995]), np.array([0.3, 0.12, 0.085]), np.array([3.0, 4.0, 3.0])

POPULATIONS: Mapping[str, Population] = {
    "calibrated": Population(SURE, 1 - SURE, is_certifiable=True),
    "calibrated, 5 percent": Population(SURE, 1 - SURE, n=800, risk=0.05),
    "overconfident": Population(SURE, OVERCONFIDENT, is_certifiable=True),
    "useless": Population(SURE, np.full(500, 0.5)),
    "slightly too wrong everywhere": Population(SURE, np.full(500, 0.1001)),
    "most certain answers wrong": Population(SURE, WRONG_AT_THE_TOP),
    "low probabilities": Population(LOW, (1 - LOW) ** 4, n=600, is_certifiable=True),
    "ties": Population(*TIED),
    "one probability": Population(np.array([0.97]), np.array([0.101])),
    "one probability on the grid": Population(np.array([0.95]), np.array([0.101])),
    "few rows": Population(SURE, np.full(500, 0.301), n=25, risk=0.3),
}


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_error_above_certified_thresholds_rarely_exceeds_the_risk(name: str) -> None:
    """At most 10 % of the draws exceed it, apart from the chance of the drawing itself."""
    population = POPULATIONS[name]
    rng = np.random.default_rng(7)
    results = [
        certify(*population.draw(rng), risk=population.risk, confidence=0.9) for _ in range(N_DRAWS)
    ]
    certified = [each.threshold for each in results if each.threshold is not None]
    too_wrong = sum(population.error_above(each) > population.risk for each in certified)
    assert too_wrong <= most_successes(N_DRAWS, 0.1)
    if population.is_certifiable:
        assert len(certified) >= 0.6 * N_DRAWS


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_the_automated_share_is_the_largest_with_few_errors(rows: list[tuple[int, bool]]) -> None:
    p, right = np.array([each / 5 for each, _ in rows]), np.array([each for _, each in rows])
    found = automation(p, right, risk=0.3)
    shares = [0.0]
    for threshold in set(p.tolist()):
        above = p >= threshold
        if (~right[above]).sum() <= 0.3 * above.sum():
            shares.append(float(above.mean()))
    assert found.share == max(shares)
    assert found.accuracy == right.mean()
    assert 0 <= found.low <= found.share <= found.high <= 1
    assert Automation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(("name", "risk"), [("calibrated", 0.1), ("useless", 0.45)])
def test_the_interval_of_the_automated_share_holds(name: str, risk: float) -> None:
    """The share itself is too large if the probabilities say nothing, but the interval is not."""
    population = POPULATIONS[name]
    rng = np.random.default_rng(3)
    true = max((population.values >= t).mean() for t in GRID if population.error_above(t) <= risk)
    found = [automation(*population.draw(rng, 200), risk=risk) for _ in range(100)]
    inside = sum(each.low <= true + 0.01 and true - 0.01 <= each.high for each in found)
    assert inside >= 100 - most_successes(100, 0.1)


def test_more_rows_certify_more_answers_on_average() -> None:
    population = POPULATIONS["calibrated"]
    rng = np.random.default_rng(9)
    coverages = [
        [certify(*population.draw(rng, n), risk=0.1).coverage for _ in range(100)]
        for n in (50, 100, 200, 400, 800, 1_600)
    ]
    means, errors = np.mean(coverages, axis=1), np.std(coverages, axis=1) / 10
    assert (np.diff(means) >= -3 * (errors[1:] + errors[:-1])).all()
    best = max((population.values >= t).mean() for t in GRID if population.error_above(t) <= 0.1)
    assert means[0] < 0.5 * best
    assert 0.95 * best < means[-1] < 1.01 * best


def test_a_bad_start_does_not_end_the_walk() -> None:
    """The answers above 0.99 are wrong, and many answers below are right."""
    p = np.repeat([0.9995, 0.96, 0.85], [10, 1_000, 1_000])
    result = certify(p, p < 0.99, risk=0.05)
    assert (result.threshold, result.n_above, result.n_wrong) == (0.0, 2_010, 10)


def test_a_threshold_holds_for_each_part_of_the_rows() -> None:
    """Below 0.9, the answers of a small part are wrong, which the mean over all rows hides."""
    p = np.tile(np.repeat([0.95, 0.6], [50, 50]), 20)
    part = np.arange(len(p)) % 10 == 0
    right = ~(part & (p < 0.9))
    assert certify(p, right, risk=0.1).threshold == 0.0
    result = certify(p, right, risk=0.1, parts=[part])
    assert (result.threshold, result.n, result.n_above, result.n_wrong) == (0.61, 2_000, 1_000, 0)
    few = certify(p[:200], right[:200], risk=0.1, parts=[part[:200]])
    assert few.threshold is None and few.needed is not None
    assert fewest_certified(0.1) - 1 < few.needed / 20 <= fewest_certified(0.1)
    assert certify(p, right, risk=0.1, parts=[np.full(len(p), False)]).threshold is None


def test_numbers_of_numpy_are_accepted() -> None:
    p = np.linspace(0.4, 1, 300)
    for kind in (np.float64, np.float32):
        same = certify(p, p > 0.5, risk=0.25, confidence=0.5)
        assert certify(p, p > 0.5, risk=kind(0.25), confidence=kind(0.5)) == same
        assert conformal([[0.2, 0.8]] * 30, [1] * 30, kind(0.25)).alpha == 0.25


def test_answers_exactly_at_the_threshold_are_above_it() -> None:
    p = np.repeat([0.95, 0.94], [200, 200])
    result = certify(p, p == 0.95)
    assert (result.threshold, result.n_above, result.n_wrong) == (0.95, 200, 0)
    assert result.coverage == 0.5


def fewest_certified(risk: float, confidence: float = 0.9) -> int:
    """Return the number of right answers that one starting point needs."""
    return math.ceil(math.log((1 - confidence) / len(STARTS)) / math.log(1 - risk))


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2])
def test_needed_rows_are_exact_if_all_answers_are_right(risk: float) -> None:
    n = fewest_certified(risk)
    for given_rows in (0, 1, 5):
        result = certify([0.9995] * given_rows, [True] * given_rows, risk=risk)
        assert (result.threshold, result.coverage, result.needed) == (None, 0.0, n)
    assert certify([0.1] * n, [True] * n, risk=risk).threshold == 0.0
    assert certify([0.1] * (n - 1), [True] * (n - 1), risk=risk).needed == n


def test_the_page_says_how_many_examples_a_certificate_needs() -> None:
    page = (ROOT / "docs" / "guides" / "calibrate.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (\d+) % \| (\d+) \| (\d+) \| (\d+) \|$", page, flags=re.MULTILINE)
    assert len(found) == 6
    for risk, n_wrong, *needed in (map(int, row) for row in found):
        for rows, at_looks in zip(needed, (False, True), strict=True):
            for n, is_enough in ((rows // 2, True), (rows // 2 - 1, False)):  # half certifies
                right = np.arange(n) >= n_wrong
                result = certify(np.ones(n), right, risk=risk / 100, at_looks=at_looks)
                assert (result.threshold is not None) == is_enough


def test_the_needed_rows_certify_a_threshold_at_the_same_error_rate() -> None:
    """A row in four is above 0.95, and two of a hundred of these are wrong."""

    def rows(n: int) -> tuple[Array, NDArray[np.bool_]]:
        n_above, n_wrong = round(n / 4), round(0.02 * n / 4)
        p = np.full(n, 0.3)
        p[:n_above] = 0.97
        right = np.full(n, False)
        right[:n_above] = np.arange(n_above) >= n_wrong
        return p, right

    # Only with a multiple of 200 rows, the number of wrong answers needs no rounding.
    needed = certify(*rows(200)).needed
    assert needed is not None
    assert 800 < needed < 1_000
    assert certify(*rows(800)).threshold is None
    assert certify(*rows(1_000)).threshold is not None


@pytest.mark.parametrize("right", [True, False])
def test_a_risk_of_0_is_never_certified_and_a_risk_of_1_always(right: bool) -> None:
    result = certify([0.9] * 1_000, [right] * 1_000, risk=0)
    assert (result.threshold, result.needed) == (None, None)
    for n in (0, 1, 100):
        result = certify([0.9] * n, [False] * n, risk=1)
        assert (result.threshold, result.n_above, result.n_wrong) == (0.0, n, n)


def test_wrong_answers_certify_nothing_and_no_number_of_rows_helps() -> None:
    result = certify([0.9] * 1_000, [False] * 1_000)
    assert (result.threshold, result.needed, result.n_above, result.n_wrong) == (None, None, 0, 0)
    assert "No practical number of rows" in str(result)


def test_the_text_of_a_result_has_its_numbers() -> None:
    nothing = str(certify([0.97] * 990 + [0.2] * 10, [True] * 990 + [False] * 10, risk=0.001))
    assert nothing.startswith("No threshold was found above which at most 0.1 % of the answers")
    assert "(1,000 labelled rows)" in nothing and "About 4,134 rows are needed" in nothing
    found = str(certify([0.97] * 150 + [0.2] * 50, [True] * 150 + [False] * 50))
    assert found.startswith("Trust answers with a probability of at least 0.21: at most 5 %")
    assert "200 labelled rows, 150 answers (75 %)" in found and " and 0 of them were" in found
    assert str(certify([], [])).endswith("At least 80 rows are needed.")


def test_probabilities_slightly_above_1_are_accepted() -> None:
    assert certify(np.full(100, 1 + 1e-9), [True] * 100).threshold == 0.0
    assert certify(np.ones(100, np.float32), np.ones(100, bool)).threshold == 0.0


def questions(rng: np.random.Generator, n: int, k: int = 4) -> tuple[Array, NDArray[np.intp]]:
    """Return overconfident probabilities of n rows and k options, and the right options."""
    true = rng.dirichlet(np.full(k, 0.7), size=n)
    y = (rng.random((n, 1)) > true.cumsum(axis=1)[:, :-1]).sum(axis=1)
    sharp = true**2 + 1e-12
    return sharp / sharp.sum(axis=1, keepdims=True), y


def mean_coverage(n: int, alpha: float, decimals: int | None) -> tuple[float, float]:
    """Return the share of sets with the right option over many draws, and its standard error."""
    rng = np.random.default_rng(n)
    shares = []
    for _ in range(N_DRAWS):
        p, y = questions(rng, n)
        new_p, new_y = questions(rng, 200)
        if decimals is not None:
            p, new_p = p.round(decimals), new_p.round(decimals)
        sets = conformal(p, y, alpha).sets(new_p)
        shares.append(np.mean([right in each for each, right in zip(sets, new_y, strict=True)]))
    return float(np.mean(shares)), float(np.std(shares) / math.sqrt(N_DRAWS))


@pytest.mark.parametrize(("n", "alpha"), [(9, 0.1), (10, 0.1), (30, 0.1), (4, 0.3), (100, 0.05)])
def test_sets_contain_the_right_option_as_often_as_computed(n: int, alpha: float) -> None:
    """Without ties the coverage is rank / (n + 1)."""
    coverage, error = mean_coverage(n, alpha, None)
    rank = math.ceil(round((n + 1) * (1 - alpha), 9))
    assert rank / (n + 1) >= 1 - alpha
    assert coverage == pytest.approx(rank / (n + 1), abs=4 * error)


@pytest.mark.parametrize("n", [10, 40])
def test_ties_only_make_sets_larger(n: int) -> None:
    coverage, error = mean_coverage(n, 0.1, decimals=1)
    assert coverage >= 0.9 - 4 * error


def test_sets_match_the_definition() -> None:
    rng = np.random.default_rng(3)
    p, y = questions(rng, 37)
    q = sorted(1 - p[np.arange(37), y])[math.ceil(38 * 0.8) - 1]
    sets = conformal(p, y, alpha=0.2).sets(p)
    near = [[k for k in range(4) if row[k] >= 1 - q - 1e-12] for row in p]
    assert [list(each) for each in sets] == near


def test_a_set_includes_options_exactly_at_the_threshold() -> None:
    """1 - (1 - 0.07) is larger than 0.07 in floating point."""
    assert 1 - (1 - 0.07) > 0.07
    p = np.tile([0.07, 0.93], (20, 1))
    sets = conformal(p, [0] * 20).sets(p[:1])
    assert sets == ((0, 1),)


@pytest.mark.parametrize(("alpha", "fewest"), [(0.1, 9), (0.05, 19), (0.3, 3), (0.7, 1)])
def test_sets_from_too_few_rows_contain_all_options(alpha: float, fewest: int) -> None:
    p = np.array([[0.97, 0.02, 0.01]])
    for n in (0, fewest - 1):
        assert conformal(np.repeat(p, n, axis=0), [0] * n, alpha).sets(p) == ((0, 1, 2),)
    assert conformal(np.repeat(p, fewest, axis=0), [0] * fewest, alpha).sets(p) == ((0,),)


def test_the_rank_of_a_decimal_alpha_is_not_rounded_up() -> None:
    """25 * (1 - 0.44) is 14 in decimal, and larger than 14 in floating point."""
    assert 25 * (1 - 0.44) > 14
    of_right = np.arange(24, 0, -1) / 100
    p = np.stack([of_right, 1 - of_right], axis=1)
    assert conformal(p, [0] * 24, alpha=0.44).threshold == 0.11


def test_sets_of_each_option_have_thresholds_from_its_rows() -> None:
    p = np.repeat([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]], [60, 20, 20], axis=0)
    y = np.repeat([0, 1], [60, 40])
    fitted = conformal(p, y, each_option=True)
    assert (fitted.of_options, fitted.threshold) == ((0.9, 0.4), 0.4)
    assert fitted.sets([[0.6, 0.4], [0.95, 0.05], [0.3, 0.7]]) == ((1,), (0,), (1,))
    assert conformal(p, y[:60].tolist() + [0] * 40, each_option=True).of_options == (0.3, 0.0)


def test_intervals_span_the_set_and_can_be_empty() -> None:
    fitted = ConformalSets(threshold=0.3, alpha=0.1, n=50, n_options=4)
    p = [[0.4, 0.2, 0.1, 0.3], [0.1, 0.8, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]]
    assert fitted.sets(p) == ((0, 3), (1,), ())
    assert fitted.intervals(p) == (range(4), range(1, 2), range(0))
    assert fitted.sets(np.zeros((0, 4))) == ()


CERTIFIED = certify(np.linspace(0.4, 1, 300), np.arange(300) > 60, risk=0.1)
NOTHING = certify([0.9] * 10, [True] * 10)
CONFORMAL = conformal([[0.2, 0.8]] * 30, [1] * 30)


@pytest.mark.parametrize("result", [CERTIFIED, NOTHING, CONFORMAL, certify([], [])])
def test_results_survive_json(result: Any) -> None:
    assert type(result).from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize(
    ("result", "field", "value"),
    [
        *((CERTIFIED, "threshold", bad) for bad in ("0.5", math.nan, 1.5, True, [0.5])),
        *((CERTIFIED, "risk", bad) for bad in (None, -0.1, math.inf)),
        *((CERTIFIED, "confidence", bad) for bad in (None, 0, 1)),
        *((CERTIFIED, "n", bad) for bad in (None, -1, 300.5)),
        *((CERTIFIED, "n_above", bad) for bad in (None, -1, 301)),
        *((CERTIFIED, "n_wrong", bad) for bad in (None, -1, 300)),
        *((CERTIFIED, "coverage", bad) for bad in (None, 0.25, math.nan)),
        *((CERTIFIED, "needed", bad) for bad in (400, "400")),
        *((NOTHING, "needed", bad) for bad in (10, 80.5, "80")),
        (NOTHING, "n_above", 5),
        *((CONFORMAL, "threshold", bad) for bad in (None, -0.5, math.nan)),
        *((CONFORMAL, "alpha", bad) for bad in (None, 0, "0.1")),
        *((CONFORMAL, "n", bad) for bad in (None, -1)),
        *((CONFORMAL, "n_options", bad) for bad in (None, 0)),
        *((CONFORMAL, "of_options", bad) for bad in ([0.5], [0.1, 0.5], 0.5)),
        *((CERTIFIED, "frequencies", bad) for bad in (0.5, "0.5")),
    ],
)
def test_damaged_fields_are_rejected_by_name(result: Any, field: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^{field} must be") as caught:
        type(result).from_dict({**result.to_dict(), field: value})
    assert caught.value.argument == field


@pytest.mark.parametrize("result", [CERTIFIED, CONFORMAL])
def test_missing_and_unknown_fields_are_rejected_by_name(result: Any) -> None:
    given_ = result.to_dict()
    optional = {
        "option_risks",
        "frequencies",
        "of_options",
        "target",
        "option",
        "n_counted",
        "largest_cost",
        "mean_cost",
    }
    for name in given_.keys() - optional:
        rest = {key: value for key, value in given_.items() if key != name}
        with pytest.raises(InvalidArgumentError, match=f"the field '{name}' of .* is missing"):
            type(result).from_dict(rest)
    with pytest.raises(InvalidArgumentError, match="has no field 'treshold'; did you mean"):
        type(result).from_dict({**given_, "treshold": 1})
    for wrong in (None, [], "{}"):
        with pytest.raises(InvalidArgumentError, match="must be an object"):
            type(result).from_dict(wrong)


def test_sets_of_too_few_rows_reject_a_threshold() -> None:
    damaged = {**CONFORMAL.to_dict(), "n": 8}
    with pytest.raises(InvalidArgumentError, match="threshold must be 0, because 8 rows are too"):
        ConformalSets.from_dict(damaged)
