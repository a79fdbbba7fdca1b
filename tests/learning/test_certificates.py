"""The promises of certificates and sets, for made sources of labelled rows whose truth is known."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scripted_decisions import MakeModel

from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.decisions.questions import Choice, MultiLabel
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.learning.thresholds import certify, looks

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

DELTA = 0.1
"""1 - confidence: how often a certificate may break its promise."""

N_TEXTS = 4_000

OPTIONS = ["a", "b", "c"]
QUESTION = Choice("Which?", OPTIONS, name="kind")


@dataclass(frozen=True, eq=False)
class Source:
    """A source of rows: texts with their scores, their right options and how frequent they are."""

    z: Floats
    y: Indices
    shares: Floats

    @classmethod
    def of(cls, copied: float = 0.0, frequencies: Any = (1, 1, 1), strength: float = 4.0) -> Source:
        """Return a source in which one text, with a sure and wrong answer, has a share of the rows.

        The scores of the other texts are about as sure as they should be.
        """
        rng = np.random.default_rng(1)
        y = rng.choice(3, size=N_TEXTS, p=np.array(frequencies) / sum(frequencies))
        evidence = strength * np.eye(3)[y] + strength**0.5 * rng.normal(size=(N_TEXTS, 3))
        z = log_softmax(evidence + np.log(np.array(frequencies)))
        z[0], y[0] = log_softmax([9.0, 0.0, 0.0]), 1
        shares = np.full(N_TEXTS, (1 - copied) / (N_TEXTS - 1))
        shares[0] = copied
        return cls(z, y, shares)

    def draw(self, n: int, seed: int) -> list[tuple[str, str]]:
        rows = np.random.default_rng(seed).choice(len(self.y), size=n, p=self.shares)
        return [(str(row), OPTIONS[self.y[row]]) for row in rows.tolist()]

    def error_above(self, threshold: float, is_meant: Any = True) -> float:
        """Return the error rate, among later rows, of the answers above a threshold."""
        p = np.exp(self.z)
        weights = self.shares * (p.max(axis=1) >= threshold) * is_meant
        wrong = p.argmax(axis=1) != self.y
        return float((weights * wrong).sum() / weights.sum()) if weights.sum() else 0.0

    def covered(self, calibration: Calibration, is_meant: Any = True) -> float:
        """Return the share of later rows whose set contains the right option."""
        sets = calibration.questions[0].sets_of(np.exp(self.z))
        inside = [right in found for right, found in zip(self.y.tolist(), sets, strict=True)]
        return float(np.average(inside, weights=self.shares * is_meant))


def failures(
    model: Any, source: Source, n: int, risk: float, n_draws: int
) -> tuple[int, int, float]:
    """Return how often the promise is broken, how often one is made, and the mean coverage."""
    n_broken = n_made = 0
    coverages = []
    for seed in range(n_draws):
        fitted = calibrate(
            model, QUESTION, source.draw(n, seed), method="none", risk=risk, on_warning=str
        )
        found = fitted.questions[0].threshold
        assert found is not None
        if found.threshold is not None:
            n_made += 1
            n_broken += source.error_above(found.threshold) > risk
        coverages.append(source.covered(fitted))
    return n_broken, n_made, float(np.mean(coverages))


def test_only_random_rows_certify(scripted_model: MakeModel) -> None:
    source = Source.of()
    is_right = source.z.argmax(axis=1) == source.y
    chosen = [(str(row), OPTIONS[source.y[row]]) for row in np.flatnonzero(~is_right)[:40]]
    rows = [*chosen, *source.draw(200, seed=1)]
    model = scripted_model(source.z)
    with_random = calibrate(
        model, QUESTION, rows, method="none", risk=0.2, random=range(40, 240)
    ).questions[0]
    assert with_random.threshold is not None
    assert with_random.threshold.n == max(n for n in looks(0.2, 0.9) if n <= 200)
    assert with_random.threshold.threshold is not None
    half = calibrate(model, QUESTION, rows, method="none", risk=0.2, on_warning=str).questions[0]
    assert half.threshold is not None
    assert half.threshold.n == 120
    assert half.threshold.coverage < with_random.threshold.coverage
    with pytest.raises(InvalidArgumentError, match="random needs risk"):
        calibrate(model, QUESTION, rows, method="none", random=[1])


def test_labels_after_the_last_look_change_nothing(scripted_model: MakeModel) -> None:
    source = Source.of()
    rows, random = source.draw(150, seed=2), range(1, 150, 2)
    look = max(n for n in looks(0.3, 0.9) if n <= len(random))
    end = random[look - 1] + 1
    assert 40 < end < 140
    wrong = [(text, OPTIONS[OPTIONS.index(answer) - 1]) for text, answer in rows[end:]]
    reasons: list[str] = []
    fitted = [
        calibrate(
            scripted_model(source.z),
            QUESTION,
            each,
            method="temperature",
            risk=0.3,
            random=[i for i in random if i < len(each)],
            on_warning=reasons.append,
        )
        for each in (rows, [*rows[:end], *wrong], rows[:end])
    ]
    assert fitted[0] == fitted[1] == fitted[2]
    later = [each for each in reasons if "after the certificate" in each]
    assert len(later) == 2
    assert f"{150 - end} labelled rows after the certificate with {look} random rows" in later[0]


RARE = Choice("Which?", ["common", "rare"], name="kind")


def rare_source() -> tuple[Floats, Indices]:
    """Return calibrated scores of texts of which 5 % are rare, and the right options."""
    rng = np.random.default_rng(1)
    y = (rng.random(20_000) < 0.05).astype(np.intp)
    odds = 5.0 * (1 - 2 * y) + 10**0.5 * rng.normal(size=len(y)) + np.log(95 / 5)
    return log_softmax(np.stack([odds, np.zeros(len(y))], axis=1)), y


def error_of_each(fitted: Calibration, z: Floats, y: Indices) -> list[tuple[float, float]]:
    """Return for each right option the error of certified answers, and how many sets contain it."""
    (question,) = fitted.questions
    p = np.exp(z)
    assert question.threshold is not None
    certified, wrong = question.threshold.certifies(p), p.argmax(axis=1) != y
    inside = np.array([k in each for k, each in zip(y, question.sets_of(p), strict=True)])
    return [
        (float((certified & wrong)[y == k].sum() / certified[y == k].sum()), inside[y == k].mean())
        for k in (0, 1)
    ]


@pytest.mark.parametrize("n_draws", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_a_risk_for_each_option_is_kept_for_a_rare_one(
    scripted_model: MakeModel, n_draws: int
) -> None:
    """On average, a risk of 0.1 allows that a fifth of the rare option's answers is wrong."""
    z, y = rare_source()
    model = scripted_model(z)
    n_broken = 0
    found = []
    warnings: list[str] = []
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).choice(len(y), 6_000, replace=False).tolist()
        labelled = [(str(row), RARE.values[y[row]]) for row in rows]
        given_: Any = {"method": "none", "risk": 0.1, "on_warning": warnings.append}
        on_average = calibrate(model, RARE, labelled, **given_)
        each = calibrate(model, RARE, labelled, each_option=True, **given_)
        assert error_of_each(on_average, z, y)[1][0] > 0.15
        assert each.questions[0].threshold is not None
        assert each.questions[0].threshold.coverage > 0.2
        errors, inside = zip(*error_of_each(each, z, y), strict=True)
        n_broken += max(errors) > 0.1
        found.append(inside)
    assert n_broken <= most_broken(n_draws)
    assert np.mean(found, axis=0).min() > 0.87
    about_rare = [each for each in warnings if "certified answers are wrong where 'rare'" in each]
    assert len(about_rare) == n_draws
    assert Calibration.from_text(each.to_text()) == each
    report = evaluate(model, RARE, labelled, calibration=on_average)
    common, rare = report.questions[0].by_option
    assert (common.option, rare.option) == ("common", "rare")
    assert rare.accuracy is not None and rare.accuracy < 0.8 and rare.in_set < 0.8
    assert "Where 'rare' is right" in " ".join(report.text().split())


def test_answers_with_an_option_keep_its_own_risk(scripted_model: MakeModel) -> None:
    """The option's answers are more often wrong than the others, and must be so less often."""
    rng = np.random.default_rng(5)
    n = 4_000
    p = rng.uniform(0.5, 1, n)
    answers = rng.integers(2, size=n)
    right = rng.random(n) < np.where(answers == 1, np.where(p < 0.8, 0.7, 0.99), 0.98)
    y = np.where(right, answers, 1 - answers)
    z = np.log(np.where(np.arange(2) == answers[:, None], p[:, None], 1 - p[:, None]))
    labelled = [(str(row), RARE.values[y[row]]) for row in range(n)]
    given_: Any = {"method": "none", "risk": 0.1, "on_warning": str}
    model = scripted_model(z)
    fitted = calibrate(model, RARE, labelled, option_risks={"rare": 0.04}, **given_)
    threshold = fitted.questions[0].threshold
    assert threshold is not None and threshold.of_options is not None
    common, rare = threshold.of_options
    assert common is not None and rare is not None
    assert (threshold.threshold, threshold.risk) == (common, 0.1)
    certified = threshold.certifies(np.exp(z))
    assert certified.tolist() == (p >= np.where(answers == 1, rare, common)).tolist()
    wrong = [(~right)[certified & (answers == k)].mean() for k in (0, 1)]
    assert wrong[0] <= 0.1 and 0 < wrong[1] <= 0.04
    on_average = calibrate(model, RARE, labelled, **given_).questions[0].threshold
    assert on_average is not None
    assert (~right)[on_average.certifies(np.exp(z)) & (answers == 1)].mean() > 0.04
    assert Calibration.from_text(fitted.to_text()) == fitted
    assert f"the threshold of their option ({common:g}, {rare:g})" in str(threshold)


@pytest.mark.parametrize(("target", "n", "at"), [("precision", 1_200, 0.8), ("recall", 400, 0.85)])
def test_a_target_of_one_option_fails_in_at_most_a_tenth_of_the_splits(
    target: Any, n: int, at: float
) -> None:
    source = Source.of(frequencies=(60, 20, 20), strength=2.0)
    p = np.exp(source.z)
    sure, answers = p.max(axis=1), p.argmax(axis=1)
    is_of_option = (answers if target == "precision" else source.y) == 2
    n_broken, shares = 0, []
    for seed in range(200):
        rows = np.random.default_rng(seed).choice(len(p), size=n, p=source.shares)
        right, of_option = (answers == source.y)[rows], is_of_option[rows]
        found = certify(sure[rows], right, risk=1 - at, target=target, of_option=of_option)
        if found.threshold is not None:
            above = sure >= found.threshold
            counted = is_of_option & above if target == "precision" else is_of_option
            n_broken += (above & (answers != source.y))[counted].mean() > 1 - at
            shares.append(above.mean())
    assert n_broken <= 0.1 * 200
    assert len(shares) > 0.5 * 200  # otherwise nothing was tested
    assert np.mean(shares) > 0.4


def test_a_certificate_says_what_its_target_promises(scripted_model: MakeModel) -> None:
    source = Source.of(strength=8.0)
    model, rows = scripted_model(source.z), source.draw(600, 0)
    given_: Any = {"method": "none", "option": "c", "at": 0.85, "on_warning": str}
    for target, promise in (
        ("precision", "at most 15 % of the answers 'c' are wrong"),
        ("recall", "at most 15 % of the inputs for which 'c' is right get another answer"),
    ):
        few = calibrate(model, QUESTION, rows[:20], target=target, **given_).questions[0].threshold
        assert f"No threshold was found above which {promise}" in str(few)
        fitted = calibrate(model, QUESTION, rows, target=target, **given_)
        found = fitted.questions[0].threshold
        assert found is not None and found.threshold is not None and found.n_counted is not None
        assert (found.target, found.option, found.risk) == (target, "c", 0.15)
        assert found.n_wrong < found.n_counted < found.n_above <= found.n == 300
        assert found.certifies(np.exp(source.z)).mean() == pytest.approx(found.coverage, abs=0.1)
        assert promise in str(found) and "rows missed the target" in str(found)
        assert Calibration.from_text(fitted.to_text()) == fitted
    same = calibrate(model, QUESTION, rows, target="accuracy", method="none")
    assert same == calibrate(model, QUESTION, rows, risk=0.05, method="none")


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"target": "recall"}, "target recall: expected one of 'common', 'rare', got None"),
        ({"target": "recall", "option": "no"}, "one of 'common', 'rare', got 'no'"),
        ({"target": "accuracy", "option": "rare"}, "option needs the target"),
        ({"option": "rare"}, "option needs the target"),
        ({"target": "accuracy", "at": 1}, "at must be above 0 and below 1"),
        ({"target": "accuracy", "risk": 0.1}, "target cannot be combined with risk"),
        ({"target": "speed"}, "target must be one of"),
        ({"option_risks": {"rare": 0.1}}, "option_risks needs risk"),
        ({"risk": 0.1, "option_risks": {"no": 0.1}}, "expected one of 'common', 'rare', got 'no'"),
        ({"risk": 0.1, "option_risks": {"rare": 1.0}}, "above 0 and below 1"),
        ({"risk": 0.1, "each_option": True, "option_risks": {"rare": 0.1}}, "without each_option"),
    ],
)
def test_wrong_risks_of_options_are_rejected(
    scripted_model: MakeModel, given_: dict[str, Any], message: str
) -> None:
    z, y = rare_source()
    labelled = [(str(row), RARE.values[y[row]]) for row in range(40)]
    with pytest.raises(InvalidArgumentError, match=message):
        calibrate(scripted_model(z), RARE, labelled, method="none", **given_)


def test_each_question_can_have_a_risk_of_its_own(scripted_model: MakeModel) -> None:
    source = Source.of()
    two = {"strict": QUESTION, "lenient": QUESTION, "labels": MultiLabel("Fit?", ["x", "y"])}
    model = scripted_model(
        {"Which?": source.z, "Fit?": np.zeros((1, 2))}
        | {each.instructions: source.z[:, :2] for each in two["labels"].predicates}
    )
    rows = [
        (text, {"strict": right, "lenient": right, "labels": []})
        for text, right in source.draw(300, 0)
    ]
    given_: Any = {"method": "none", "on_warning": str}
    fitted = calibrate(
        model, two, rows, risk={"strict": 0.1, "lenient": 0.3, "labels": 0.2}, **given_
    )
    found = [each.threshold for each in fitted.questions]
    assert [each and each.risk for each in found] == [0.1, 0.3, 0.2, 0.2]
    assert fitted.labels[0].threshold.risk == 0.2
    for risk, threshold in ((0.1, found[0]), (0.3, found[1])):
        alone = calibrate(model, QUESTION, [(x, y["strict"]) for x, y in rows], risk=risk, **given_)
        assert alone.questions[0].threshold == threshold
    for wrong, message in (
        ({"strict": 0.1}, "risk: expected one for each of .*, got none for 'lenient'"),
        ({"strikt": 0.1}, "risk: expected questions among 'strict', .*, got 'strikt'"),
        ({**dict.fromkeys(two, 0.1), "lenient": 1}, "risk of 'lenient' must be above 0 and below"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            calibrate(model, two, rows, risk=wrong, **given_)


@pytest.mark.parametrize(
    "settings",
    [
        {"risk": 0.2},
        {"risk": 0.2, "each_option": True},
        {"risk": 0.2, "option_risks": {"a": 0.1}},
        {"risk": 0.2, "costs": {"a": {"b": 5}}},
        {"target": "recall", "option": "a"},
    ],
)
def test_without_random_rows_a_warning_says_how_many_are_needed(
    scripted_model: MakeModel, settings: dict[str, Any]
) -> None:
    source, warnings = Source.of(), list[str]()
    fitted = calibrate(
        scripted_model(source.z),
        QUESTION,
        source.draw(40, 0),
        random=[],
        method="none",
        on_warning=warnings.append,
        **settings,
    )
    threshold = fitted.questions[0].threshold
    assert threshold is not None and (threshold.threshold, threshold.n) == (None, 0)
    assert "(random rows): No threshold was found" in warnings[0] and "At least " in warnings[0]


def test_an_option_without_rows_cannot_be_certified(scripted_model: MakeModel) -> None:
    source = Source.of(strength=8.0)
    model = scripted_model(source.z)
    rows = [row for row in source.draw(600, 0) if row[1] != "c"]
    for each_option in (False, True):
        fitted = calibrate(
            model, QUESTION, rows, risk=0.2, each_option=each_option, on_warning=str, method="none"
        )
        threshold = fitted.questions[0].threshold
        assert threshold is not None and (threshold.threshold is None) == each_option
    with pytest.raises(InvalidArgumentError, match="each_option needs risk"):
        calibrate(model, QUESTION, rows, each_option=True)


SOURCES: dict[str, tuple[Callable[[], Source], float]] = {
    "one text has a quarter of the rows": (lambda: Source.of(0.25), 0.2),
    "one text has a tenth of the rows": (lambda: Source.of(0.1), 0.2),
    "one text has a tenth of the rows, which is allowed": (lambda: Source.of(0.1), 0.3),
    "independent rows": (lambda: Source.of(strength=2.0), 0.2),
    "a rare option": (lambda: Source.of(frequencies=(95, 5, 1e-9)), 0.05),
}


def most_broken(n_draws: int) -> float:
    """Return the largest number of broken promises that three standard deviations allow."""
    return n_draws * DELTA + 3 * (n_draws * DELTA * (1 - DELTA)) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_certificates_and_sets_keep_their_promise_in_many_draws(
    scripted_model: MakeModel, name: str
) -> None:
    make, risk = SOURCES[name]
    source = make()
    n_broken, _, coverage = failures(scripted_model(source.z), source, 200, risk, 100)
    assert n_broken <= most_broken(100)
    assert coverage >= 1 - risk - 0.02


def test_a_frequent_text_counts_as_often_as_it_occurs(scripted_model: MakeModel) -> None:
    """Its answer is sure and wrong: no threshold is possible, and sets contain the right option."""
    source = Source.of(0.25)
    n_broken, n_made, coverage = failures(scripted_model(source.z), source, 200, 0.2, 8)
    assert (n_broken, n_made) == (0, 0)
    assert coverage >= 0.8
    _, n_allowed, _ = failures(scripted_model(source.z), source, 400, 0.5, 3)
    assert n_allowed == 3


def test_a_table_with_every_row_several_times_certifies_no_more_than_without_copies(
    scripted_model: MakeModel,
) -> None:
    source = Source.of(strength=3.0)
    model = scripted_model(source.z)
    rows = source.draw(60, 0)
    for copies in (1, 4):
        found = calibrate(model, QUESTION, rows * copies, method="none", risk=0.1, on_warning=str)
        threshold = found.questions[0].threshold
        assert threshold is not None and threshold.threshold is None


def test_frequent_copies_are_named_in_a_warning(
    scripted_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source.of(0.25)
    model = scripted_model(source.z)
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        calibrate(model, QUESTION, source.draw(200, 0), method="none", risk=0.2)
    copies = r"kind: \d+ of 200 rows have the same input, '0'. The certificate holds if this"
    assert any(re.search(copies, each) for each in caplog.messages)
    warnings: list[str] = []
    unique = [(str(i), OPTIONS[source.y[i]]) for i in range(1, 400)]
    calibrate(model, QUESTION, unique, method="none", risk=0.3, on_warning=warnings.append)
    assert warnings == []
    calibrate(model, QUESTION, source.draw(200, 0), method="none", on_warning=warnings.append)
    assert warnings == []  # without a risk, nothing is promised


def test_python_warns_if_nothing_is_certified(
    scripted_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    """12 of 75 answers above the thresholds are wrong; the warning names a sufficient number."""
    z, y = np.log(np.tile([0.8, 0.1, 0.1], (150, 1))), np.zeros(150, int)
    y[np.random.default_rng(0).permutation(150)[75:][:6]] = 1
    rows = [(str(i), OPTIONS[right]) for i, right in enumerate(y.tolist())]
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        fitted = calibrate(scripted_model(z), QUESTION, rows, method="none", risk=0.1)
    threshold = fitted.questions[0].threshold
    assert threshold is not None and threshold.needed is not None
    (message,) = caplog.messages
    assert message.startswith("calibrate: kind (the half of the rows that was not used for")
    assert f"That is about {2 * threshold.needed:,} rows in all" in message


@pytest.mark.parametrize("name", ["risk", "confidence"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_numpy_scalars_mean_the_same_as_numbers_of_python(
    scripted_model: MakeModel, name: str, kind: Any
) -> None:
    source = Source.of()
    rows, model = source.draw(80, 0), scripted_model(source.z)
    given_: dict[str, Any] = {"risk": 0.25, "confidence": 0.5, "method": "batch"}
    found = calibrate(model, QUESTION, rows, **given_ | {name: kind(0.25)}, on_warning=str)
    same = calibrate(model, QUESTION, rows, **given_ | {name: 0.25}, on_warning=str)
    assert found.to_text() == same.to_text()


@pytest.mark.parametrize("value", ["0.1", None, np.array([0.1]), 1 + 0j, np.bool_(True)])
def test_other_values_are_rejected_before_the_model_runs(
    scripted_model: MakeModel, value: Any
) -> None:
    model = scripted_model(np.zeros((40, 3)))
    rows = [(str(i), "a") for i in range(40)]
    with pytest.raises(InvalidArgumentError, match="confidence must be a number"):
        calibrate(model, QUESTION, rows, risk=0.1, confidence=value)
    assert model.calls == []


TOPICS = MultiLabel("Which fit?", ["x", "y", "z"], name="topics")


def labels_source(n: int, seed: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the log-odds of three labels for n texts, which are calibrated, and what fits."""
    rng = np.random.default_rng(seed)
    odds = 8.0 * rng.normal(size=(n, 3))
    return odds, rng.random((n, 3)) < 1 / (1 + np.exp(-odds))


def test_whole_answers_to_labels_keep_the_risk(scripted_model: MakeModel) -> None:
    """If each label keeps a risk of 0.1, more of the answers that all labels certify are wrong.

    The answers to three labels are wrong if at least one label is.
    """
    odds, fits = labels_source(12_000, 1)
    z = {"Which fit?": np.zeros((1, 2))} | {
        each.instructions: np.stack([odds[:, i], np.zeros(len(odds))], axis=1)
        for i, each in enumerate(TOPICS.predicates)
    }
    model = scripted_model(z)
    sure = np.maximum(1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    is_wrong = ((odds > 0) != fits).any(axis=1)
    n_broken = n_made = n_broken_by_labels = 0
    n_draws, n, risk = 12, 600, 0.1
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).choice(len(odds), n, replace=False)
        labelled = [
            (str(row), [label for label, fit in zip("xyz", fits[row], strict=True) if fit])
            for row in rows.tolist()
        ]
        fitted = calibrate(model, TOPICS, labelled, method="none", risk=risk, on_warning=str)
        (whole,) = fitted.labels
        if whole.threshold.threshold is not None:
            n_made += 1
            above = sure.prod(axis=1) >= whole.threshold.threshold
            n_broken += is_wrong[above].mean() > risk
        each = [question.threshold for question in fitted.questions]
        least = [np.inf if one is None or one.threshold is None else one.threshold for one in each]
        n_broken_by_labels += is_wrong[(sure >= least).all(axis=1)].mean() > risk
    assert n_made > 0.8 * n_draws
    assert n_broken <= most_broken(n_draws)
    assert n_broken_by_labels > n_draws / 2


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    copies=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    seed=st.integers(0, 1_000),
    method=st.sampled_from(["none", "temperature", "batch+temperature", "frequencies", "auto"]),
    each_option=st.booleans(),
    risk=st.sampled_from([0.05, 0.3, 0.6]),
)
def test_tables_with_any_copies_are_calibrated(
    scripted_model: MakeModel,
    copies: list[int],
    seed: int,
    method: Any,
    each_option: bool,
    risk: float,
) -> None:
    """Copies may have different right options, and all rows may be copies of one text."""
    rng = np.random.default_rng(seed)
    rows = [(str(i), OPTIONS[rng.integers(3)]) for i, n in enumerate(copies) for _ in range(n)]
    rows += [("0", "a")] * max(0, 20 - len(rows))
    model = scripted_model(rng.normal(size=(len(copies), 3)))
    fitted = calibrate(
        model, QUESTION, rows, method=method, risk=risk, each_option=each_option, on_warning=str
    )
    (question,) = fitted.questions
    found, sets = question.threshold, question.sets
    assert found is not None and sets is not None
    assert found.n == len(rows) - len(rows) // 2
    assert question.n_examples + found.n == len(rows)
    if len(copies) == 1:  # no text is new
        assert found.threshold is None and sets.threshold == 0
    assert Calibration.from_text(fitted.to_text()).questions[0].threshold == found
