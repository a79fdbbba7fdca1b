"""Learning from unlabelled rows, and the gate that keeps wrong heads out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted_decisions import MakeModel, ScriptedModel

from eliza_ffi.decisions import Choice, Score
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Calibration
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.scoring import QuestionScores
from eliza_ffi.evidence.self_training import MIN_ROWS
from eliza_ffi.learning import calibrate, fitting
from eliza_ffi.learning.self_training import MAX_ROWS, learn_from_rows

LAST = Feature("last", 2)
N_EMBD = 16

Floats = NDArray[np.float32]


@dataclass
class Rows:
    """Made-up rows: their states, the model's own log-probabilities, and the right options."""

    states: Floats
    log_p: NDArray[np.float64]
    right: NDArray[np.intp]

    @staticmethod
    def of(
        counts: list[int],
        *,
        n_options: int = 0,
        noise: float = 1.4,
        distance: float = 3.0,
        seed: int = 0,
    ) -> Rows:
        """Return rows in groups, with own answers whose mistakes have nothing to do with states."""
        rng = np.random.default_rng(seed)
        right = np.repeat(np.arange(len(counts)), counts)
        rng.shuffle(right)
        states = rng.normal(size=(len(right), N_EMBD))
        states[np.arange(len(right)), right] += distance
        n_options = n_options or len(counts)
        own = rng.normal(size=(len(right), n_options)) * noise
        own[np.arange(len(right)), right] += 2.0
        return Rows(states.astype("f4"), log_softmax(own), right)

    @property
    def accuracy(self) -> float:
        return float((self.log_p.argmax(axis=1) == self.right).mean())

    @property
    def learned_accuracy(self) -> float:
        """The accuracy after learning from the rows, or the model's own if this was rejected."""
        learned = learn_from_rows(self.states, self.log_p, LAST)
        found = learned.improved(self.log_p, self.states)
        return float((found.argmax(axis=1) == self.right).mean())


def nearest_mean(rows: Rows, temperature: float) -> NDArray[np.float64]:
    """Return the log-probabilities of a head: the slow, obvious way."""
    mean, deviation = rows.states.mean(axis=0), rows.states.std(axis=0)
    states = [(state - mean) / deviation for state in rows.states.astype(float)]
    p = np.exp(rows.log_p)
    n, n_options = p.shape
    means = [
        sum(p[i, k] * states[i] for i in range(n)) / sum(p[i, k] for i in range(n))
        for k in range(n_options)
    ]
    inner = [states[i] - sum(p[i, k] * means[k] for k in range(n_options)) for i in range(n)]
    variance = np.mean(np.square(inner))
    distances = [[np.square(state - each).sum() for each in means] for state in states]
    found = log_softmax(-np.array(distances) / (2 * variance * temperature))
    share = 1 / (n + 2)
    mixed: NDArray[np.float64] = np.log((1 - share) * np.exp(found) + share / n_options)
    return mixed


def test_a_head_selects_the_option_whose_mean_state_is_the_nearest() -> None:
    rows = Rows.of([50, 40, 30])
    learned = learn_from_rows(rows.states, rows.log_p, LAST)
    assert learned.head is not None
    assert not learned.keeps_shares
    found = learned.head.log_probabilities(rows.states[None])
    scale = _scale(found, nearest_mean(rows, 1.0))
    np.testing.assert_allclose(found, nearest_mean(rows, scale), atol=1e-4)


def _scale(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """Return the temperature of `found`, if that of `wanted` is 1, from the surest row."""
    row = int(found.max(axis=1).argmin())  # the rule of succession hardly changes this row
    n = len(found)
    plain = [np.log(np.exp(each[row]) - 1 / (n + 2) / each.shape[1]) for each in (found, wanted)]
    first, second = (np.sort(each)[-1] - np.sort(each)[-2] for each in plain)
    return float(second / first)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("counts", [[150, 150], [60, 60, 60, 60, 60], [30, 30, 40]])
def test_rows_improve_answers_whose_mistakes_are_random(counts: list[int], seed: int) -> None:
    rows = Rows.of(counts, seed=seed)
    assert rows.learned_accuracy >= rows.accuracy + 0.05


FAILURES: dict[str, Callable[[int], Rows]] = {
    "all rows have the same right answer": lambda seed: Rows.of([300, 0], seed=seed),
    "one of three options is missing": lambda seed: Rows.of([150, 150, 0], seed=seed),
    "one option has 95 % of the rows": lambda seed: Rows.of([285, 15], seed=seed),
    "one of five options has 95 %": lambda seed: Rows.of([285, 4, 4, 4, 3], seed=seed),
    "two of three options mean the same": lambda seed: Rows.of([150, 150], n_options=3, seed=seed),
    "the states say nothing": lambda seed: Rows.of([150, 150], distance=0.0, seed=seed),
    "the own answers are guesses": lambda seed: Rows.of([100, 100, 100], noise=20.0, seed=seed),
    "there are 100 rows": lambda seed: Rows.of([20] * 5, distance=1.5, seed=seed),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("failure", FAILURES)
def test_rows_make_no_answers_worse(failure: str, seed: int) -> None:
    rows = FAILURES[failure](seed)
    assert rows.learned_accuracy >= rows.accuracy - 0.01


def test_states_without_information_are_rejected_with_the_figures() -> None:
    rows = Rows.of([150, 150], distance=0.0)
    learned = learn_from_rows(rows.states, rows.log_p, LAST)
    assert learned.head is None
    assert learned.agreement < learned.own_agreement
    assert str(learned).startswith("the model's own answers are kept: heads of two halves of 300")


def test_few_rows_teach_nothing() -> None:
    rows = Rows.of([MIN_ROWS // 2, MIN_ROWS // 2 - 1])
    learned = learn_from_rows(rows.states, rows.log_p, LAST)
    assert learned.head is None
    assert f"needs {MIN_ROWS}" in str(learned)


def test_answers_stay_as_sure_as_the_model_on_average() -> None:
    rows = Rows.of([150, 150])
    learned = learn_from_rows(rows.states, rows.log_p, LAST)
    found = np.exp(learned.improved(rows.log_p, rows.states)).max(axis=1).mean()
    assert found == pytest.approx(np.exp(rows.log_p).max(axis=1).mean(), abs=1e-4)


def test_a_head_that_keeps_the_shares_keeps_them() -> None:
    rows = Rows.of([240, 60], noise=1.0)
    learned = learn_from_rows(rows.states, rows.log_p, LAST)
    assert learned.head is not None
    assert learned.keeps_shares
    values = rows.log_p + learned.head.log_probabilities(rows.states[None])
    own = (np.bincount(rows.log_p.argmax(axis=1)) + 1) / 302
    np.testing.assert_allclose(np.exp(log_softmax(values)).mean(axis=0), own, atol=0.02)


# Calibrations. The model's answers and states come from made-up rows: the input "7" is row 7.

KIND = Choice("Which kind?", {"a": "the first", "b": "the second", "c": "the third"}, name="kind")
SIZE = Score("How large?", ["small", "medium", "large"], name="size")


@dataclass
class StatefulModel(ScriptedModel):
    states: Floats = field(default_factory=lambda: np.zeros((0, N_EMBD), dtype="f4"))

    def scores(self, given: Any, question: Any, how: Any, whole: bool) -> QuestionScores:
        found = super().scores(given, question, how, whole)
        state = self.states[int(given)] if given.isdigit() else np.zeros(N_EMBD, dtype="f4")
        return QuestionScores(found.orders, hidden=state[None])


@pytest.fixture
def model_of(
    scripted_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Rows], StatefulModel]:
    """Return a function that makes a model with the answers and the states of rows."""
    monkeypatch.setattr(fitting, "_features_for", lambda *_: (LAST,))

    def make(rows: Rows) -> StatefulModel:
        scripted = scripted_model(rows.log_p)
        return StatefulModel(scripted.path, scripted.logits, states=rows.states)

    return make


MakeStateful = Callable[[Rows], StatefulModel]


def accuracy(model: StatefulModel, calibration: Calibration, rows: Rows) -> float:
    scores = [
        model.scores(str(i), KIND, calibration_settings(calibration), False)
        for i in range(len(rows.right))
    ]
    answers = [calibration.apply(0, each).argmax() for each in scores]
    return float(np.mean(answers == rows.right))


def calibration_settings(calibration: Calibration) -> Any:
    from eliza_ffi.decisions.prompt_settings import PromptSettings

    return PromptSettings(calibration.answer_style, calibration.orders)


def test_calibrate_learns_from_inputs_alone(model_of: MakeStateful) -> None:
    rows = Rows.of([100, 100, 100])
    model = model_of(rows)
    calibration = calibrate(model, KIND, inputs=map(str, range(300)))
    (question,) = calibration.questions
    assert question.rows is not None
    assert question.rows.head is not None
    assert question.features == (LAST,)
    assert calibration.is_prior  # the answers are not calibrated
    loaded = Calibration.from_text(calibration.to_text())
    assert loaded.digest == calibration.digest
    assert accuracy(model, loaded, rows) >= rows.accuracy + 0.05


def test_calibrate_reports_why_rows_taught_nothing(model_of: MakeStateful) -> None:
    rows = Rows.of([100, 100, 100], distance=0.0)
    warnings: list[str] = []
    calibration = calibrate(
        model_of(rows), KIND, inputs=map(str, range(300)), on_warning=warnings.append
    )
    (question,) = calibration.questions
    assert question.rows is not None
    assert question.rows.head is None
    assert question.features == ()
    assert warnings == [f"kind: {question.rows}"]
    assert Calibration.from_text(calibration.to_text()).digest == calibration.digest


def test_the_levels_of_a_score_are_not_learned(model_of: MakeStateful) -> None:
    rows = Rows.of([100, 100, 100])
    (question,) = calibrate(model_of(rows), SIZE, inputs=map(str, range(300))).questions
    assert question.rows is not None
    assert question.rows.head is None


@pytest.mark.parametrize("n_labels", [10, 30])
def test_rows_and_labels_are_used_together(model_of: MakeStateful, n_labels: int) -> None:
    rows = Rows.of([100, 100, 100])
    model = model_of(rows)
    names = KIND.values
    labelled = [(str(i), names[rows.right[i]]) for i in range(n_labels)]
    of_labels = calibrate(model, KIND, labelled)
    of_both = calibrate(model, KIND, [*labelled, *((str(i), None) for i in range(n_labels, 300))])
    assert not of_both.is_prior
    assert of_both.questions[0].n_examples == n_labels
    of_rows = calibrate(model, KIND, inputs=map(str, range(300)))
    best = max(accuracy(model, each, rows) for each in (of_labels, of_rows))
    assert accuracy(model, of_both, rows) >= best - 0.05


def test_fewer_than_twenty_labels_change_no_answer(model_of: MakeStateful) -> None:
    rows = Rows.of([100, 100, 100])
    model = model_of(rows)
    wrong = [(str(i), KIND.values[(rows.right[i] + 1) % 3]) for i in range(19)]
    of_both = calibrate(model, KIND, wrong, inputs=map(str, range(19, 300)))
    of_rows = calibrate(model, KIND, inputs=map(str, range(300)))
    assert accuracy(model, of_both, rows) == accuracy(model, of_rows, rows)
    assert not of_both.is_prior


def test_fewer_than_ten_labels_measure_nothing(model_of: MakeStateful) -> None:
    rows = Rows.of([100, 100, 100])
    labelled = [(str(i), KIND.values[rows.right[i]]) for i in range(9)]
    calibration = calibrate(model_of(rows), KIND, labelled, inputs=map(str, range(9, 300)))
    assert calibration.is_prior
    with pytest.raises(InvalidArgumentError, match="at least 10 examples of 'kind', got 9"):
        calibrate(model_of(rows), KIND, labelled)


def test_a_certificate_needs_labels(model_of: MakeStateful) -> None:
    with pytest.raises(InvalidArgumentError, match="needs at least 20 examples"):
        calibrate(model_of(Rows.of([100, 100, 100])), KIND, inputs=map(str, range(300)), risk=0.2)


def test_a_sample_of_many_inputs_is_read(model_of: MakeStateful) -> None:
    rows = Rows.of([500, 500, 500])
    model = model_of(rows)
    calibrate(model, KIND, inputs=map(str, range(1500)))
    (call,) = model.calls
    assert len(call[0]) == MAX_ROWS
