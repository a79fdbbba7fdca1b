"""Costs of the kinds of error: the decision with the least expected cost, and its certificate."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scripted_decisions import MakeModel

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.decisions.answers import decisions_answer
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Calibration, QuestionCalibration
from eliza_ffi.evidence.costs import Costs, costs_of
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.learning.thresholds import GRID, certify, is_bounded, is_mean_bounded
from eliza_ffi.tables import decide_table

KIND = Choice("What is it?", ["spam", "ham", "news"], "kind")
COSTS = {"ham": {"spam": 8, "news": 2}, "news": {"spam": 4}}


def of_kind(costs: Any = COSTS, review_cost: float | None = None) -> Costs:
    (found,) = costs_of(costs, review_cost, [KIND])
    assert found is not None
    return found


def source(n: int = 4_000) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return overconfident log-probabilities of texts, and their right options."""
    rng = np.random.default_rng(1)
    y = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    return log_softmax(1.3 * (3 * np.eye(3)[y] + 1.7 * rng.normal(size=(n, 3)))), y


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(0, 10_000), st.sampled_from([None, 0.0, 0.7, 3.0]))
def test_the_answer_is_that_of_a_search_through_all_options(
    n_options: int, seed: int, review: float | None
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.choice([0.0, 0.25, 1.0, 7.0, rng.random()], size=(n_options, n_options))
    matrix[0, 1] = 2.0
    costs = Costs(matrix=tuple(map(tuple, matrix.tolist())), review=review)
    p = rng.dirichlet(np.full(n_options, 0.5), size=20)
    for row, answer, least, is_review in zip(
        p, costs.answers(p), costs.expected(p), costs.is_review(p), strict=True
    ):
        each = [
            math.fsum(row[right] * matrix[right, k] for right in range(n_options))
            for k in range(n_options)
        ]
        assert each[answer] == pytest.approx(min(each))
        assert least == pytest.approx(min(each))
        assert is_review == (review is not None and least > review)


def test_equal_costs_answer_the_most_probable_option() -> None:
    z, _ = source(500)
    costs = of_kind({})
    assert costs.matrix == ((0, 1, 1), (1, 0, 1), (1, 1, 0))
    assert (costs.answers(np.exp(z)) == z.argmax(axis=1)).all()
    assert costs.sure(np.exp(z)) == pytest.approx(np.exp(z).max(axis=1))
    assert of_kind({"kind": COSTS}) == of_kind()


@settings(deadline=None)
@given(st.integers(1, 300), st.data(), st.floats(0.02, 0.98), st.floats(0.001, 0.2))
def test_the_bound_of_losses_is_at_least_that_of_wrong_answers(
    n: int, data: st.DataObject, mean: float, delta: float
) -> None:
    """The binomial test is exact for losses of 0 and 1. Without a loss, both are the same."""
    n_wrong = data.draw(st.integers(0, n))
    if is_mean_bounded(n_wrong, n, mean, delta):
        assert is_bounded(n_wrong, n, mean, delta * (1 + 1e-9))
        assert is_mean_bounded(n_wrong / 2, n, mean, delta)
    if is_bounded(0, n, mean, delta):
        assert is_mean_bounded(0, n, mean, delta * (1 + 1e-9))


@pytest.mark.parametrize(
    ("n", "risk", "review_cost", "share"),
    [(1_000, 0.3, None, 0.6), (2_000, 0.2, None, 0.45), (2_000, 0.3, 0.9, 0.7)],
)
def test_the_mean_cost_is_above_the_risk_in_at_most_a_tenth_of_the_splits(
    n: int, risk: float, review_cost: float | None, share: float
) -> None:
    """The lowest threshold with a low enough mean on the rows breaks it in a third of them."""
    z, y = source()
    p, costs = np.exp(z), of_kind(review_cost=review_cost)
    answers, sure = costs.answers(p), costs.sure(p)
    of_answers = costs.of_answers(answers, y)
    n_broken, n_by_mean, shares = 0, 0, []
    for seed in range(200):
        rows = np.random.default_rng(seed).choice(len(y), n)
        found = certify(
            sure[rows],
            (answers == y)[rows],
            risk=risk,
            costs=of_answers[rows],
            largest_cost=costs.largest,
        )
        if found.threshold is not None:
            above = sure >= found.threshold
            n_broken += of_answers[above].mean() > risk
            shares.append(above.mean())
            assert found.mean_cost is not None and found.mean_cost <= risk
        by_mean = [t for t in GRID if (of_answers - risk)[rows][sure[rows] >= t].sum() <= 0]
        n_by_mean += of_answers[sure >= min(by_mean)].mean() > risk
    assert n_broken <= 0.1 * 200 < 0.33 * 200 < n_by_mean
    assert len(shares) > 0.9 * 200
    assert np.mean(shares) > share


def test_a_calibration_with_costs_is_certified_and_evaluated(
    scripted_model: MakeModel,
) -> None:
    z, y = source(2_000)
    model = scripted_model(z)
    rows = [(str(i), KIND.values[right]) for i, right in enumerate(y.tolist())]
    given_: Any = {"method": "none", "costs": COSTS, "review_cost": 0.9}
    fitted = calibrate(model, KIND, rows, risk=0.5, **given_)
    assert Calibration.from_text(fitted.to_text()) == fitted
    damaged = {**fitted.questions[0].to_dict(), "costs": None}
    with pytest.raises(InvalidArgumentError, match="largest_cost must be that of the costs, None"):
        QuestionCalibration.from_dict(damaged)
    (question,) = fitted.questions
    assert question.sets is None and question.costs is not None
    found, p = question.threshold, np.exp(z)
    assert found is not None and found.threshold is not None
    assert "cost at most 0.5 on average, with 90 % confidence" in str(found)
    assert f"Trust answers with an expected cost of at most {found.most_expected:.3g}" in str(found)

    report = evaluate(model, KIND, rows, calibration=fitted).questions[0]
    answers, certified = question.answers(p), question.certifies(p)
    assert report.accuracy == pytest.approx((answers == y).mean())
    of_answers = question.costs.of_answers(answers, y)
    assert report.costs is not None and report.costs.most_expected == found.most_expected
    assert report.costs.mean == pytest.approx(of_answers[certified].mean())
    text = " ".join(evaluate(model, KIND, rows, calibration=fitted).text().split())
    assert f"the certified answers cost {report.costs.mean:.3g} on average" in text


TEXTS = [f"{text} {i}" for i in range(10) for text in ("Win a prize", "See you", "Election")]


def test_the_model_gives_the_cheapest_answer_and_leaves_the_dear_ones_to_a_person(
    tiny_model: Model, tmp_path: Path
) -> None:
    rows = [(text, KIND.values[i % 3]) for i, text in enumerate(TEXTS)]
    given_: Any = {"method": "temperature", "costs": COSTS}
    fitted = calibrate(tiny_model, KIND, rows, risk=7, **given_)
    found = fitted.questions[0].threshold
    assert found is not None and found.threshold is not None
    expected = []
    for text in TEXTS[:6]:
        answer = tiny_model.decide(text, KIND, calibration=fitted, abstain="risk")["kind"]
        p = np.array([answer.distribution])
        option = KIND.values[of_kind().answers(p)[0]]
        assert (answer.choice, answer.cheapest) == (option, option)
        assert answer.probability == answer.probabilities[option]
        assert answer.expected_cost == pytest.approx(of_kind().expected(p)[0])
        assert answer.certified == (not answer.abstained) == found.certifies(p, of_kind())[0]
        assert answer.value == (option if answer.certified else None)
        expected.append(answer.expected_cost)
    assert {"cheapest": option, "expected_cost": expected[-1]}.items() <= decisions_answer(
        answer
    ).items()

    review_cost = float(np.median(expected))
    (tmp_path / "in.jsonl").write_text("".join(f'{{"x": "{text}"}}\n' for text in TEXTS[:6]))
    output = tmp_path / "out.csv"
    fitted = calibrate(tiny_model, KIND, rows, risk=7, review_cost=review_cost, **given_)
    without_risk = replace(fitted, questions=(replace(fitted.questions[0], threshold=None),))
    result = decide_table(
        tiny_model, tmp_path / "in.jsonl", "x", KIND, output, calibration=without_risk
    )
    with output.open(newline="") as file:
        decided = list(csv.DictReader(file))
    costs = [float(row["kind_expected_cost"]) for row in decided]
    assert costs == pytest.approx(expected, abs=0.02)
    assert [row["review"] for row in decided] == [str(c > review_cost).lower() for c in costs]
    assert [row["kind"] == "" for row in decided] == [cost > review_cost for cost in costs]
    assert 0 < result.counts.review < 6


def test_true_is_answered_below_one_half_if_missing_it_costs_more(tiny_model: Model) -> None:
    urgent = Predicate("It is urgent.", "urgent")
    rows = [(text, i % 2) for i, text in enumerate(TEXTS)]
    given_: Any = {"method": "temperature"}
    for costs, value in (
        ({"true": {"false": 1000}}, True),
        ({True: {False: 1000}}, True),
        ({"false": {"true": 1000}}, False),
    ):
        fitted = calibrate(tiny_model, urgent, rows, costs=costs, **given_)
        answer = tiny_model.decide("See you", urgent, calibration=fitted)["urgent"]
        assert answer.value is value
        assert answer.expected_cost == pytest.approx(answer.distribution[value])


TWO = [KIND, Predicate("It is urgent.", "urgent")]


@pytest.mark.parametrize(
    ("questions", "given_", "message"),
    [
        (KIND, {"costs": 5}, "costs must be a mapping from right options"),
        (KIND, {"costs": {"spam": 5}}, "if 'spam' is right must be a mapping from answers"),
        (KIND, {"costs": {"eggs": {}}}, "costs of 'kind': expected one of 'spam', .*got 'eggs'"),
        (KIND, {"costs": {"ham": {"eggs": 1}}}, "if 'ham' is right: expected one of .* 'eggs'"),
        *(
            (KIND, {"costs": {"ham": {"spam": cost}}}, "right: 'spam' must be a number of 0 or")
            for cost in (-1, math.inf, math.nan, "1", None)
        ),
        (
            TWO[1],
            {"costs": {True: {False: 0}, False: {True: 0}}},
            "costs: expected a cost above 0, got only zeros",
        ),
        (TWO, {"costs": COSTS}, "costs: expected questions among 'kind', 'urgent', got 'ham'"),
        (Score("How?", ["a", "b"]), {"costs": {}}, "expected a Choice .* or a Predicate"),
        (MultiLabel("Fit?", ["x", "y"]), {"review_cost": 1}, "a Predicate, not labels"),
        (KIND, {"review_cost": -1}, "review_cost must be a number of 0 or more"),
        (TWO, {"review_cost": {"kind": 1}}, "review_cost: expected one for each of .*'urgent'"),
        (KIND, {"costs": COSTS, "risk": 8}, "risk must be above 0 and below 8"),
        (KIND, {"costs": COSTS, "risk": 0}, "risk must be above 0 and below 8"),
        (KIND, {"costs": COSTS, "target": "accuracy"}, "costs cannot be combined with"),
        (KIND, {"costs": COSTS, "risk": 1, "each_option": True}, "costs cannot be combined with"),
    ],
)
def test_wrong_costs_are_named(
    scripted_model: MakeModel, questions: Any, given_: dict[str, Any], message: str
) -> None:
    model = scripted_model(np.zeros((1, 3)))
    with pytest.raises(InvalidArgumentError, match=message):
        calibrate(model, questions, [("0", {})] * 20, **given_)
    assert model.calls == []


def test_a_damaged_matrix_is_rejected() -> None:
    for matrix in ([[0, 1]], [[0, 1], [1]], [[0, 0], [0, 0]], [[0, -1], [1, 0]]):
        with pytest.raises(InvalidArgumentError):
            Costs.from_dict({"matrix": matrix, "review": None})
