"""Evaluations of decisions: requests to the model, metrics, tables, JSON and plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted_decisions import MakeModel, ScriptedModel

from eliza_ffi.decisions.fingerprint import fingerprint_of
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.errors import ContextFullError, InvalidArgumentError, NotSupportedError
from eliza_ffi.evidence.calibration import Calibration
from eliza_ffi.learning import metrics
from eliza_ffi.learning.fitting import calibrate
from eliza_ffi.learning.pictures import coverage_curve
from eliza_ffi.learning.report import DecisionReport, evaluate
from eliza_ffi.model import Model

Floats = NDArray[np.float64]

TONE = Choice("Which tone?", ["calm", "angry", "sad"], name="tone")
URGENT = Predicate("It is urgent.", name="urgent")
MOOD = Score("How good?", ["bad", "fair", "good"], name="mood")

# The probabilities that the model gives for four inputs, and the right answers.
TONES = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]])
TRUTHS = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6]])
MOODS = np.array([[1.0, 0.0, 0.0], [0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])
OUTPUTS = {
    question.instructions: np.log(np.maximum(p, 1e-300))
    for question, p in ((TONE, TONES), (URGENT, TRUTHS), (MOOD, MOODS))
}
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("0", {"tone": "calm", "urgent": True, "mood": "bad"}),
    ("1", {"tone": "sad", "urgent": False, "mood": 2}),
    ("2", {"tone": "sad", "urgent": False, "mood": 0}),
    ("3", {"tone": "calm"}),
]
TONE_EXAMPLES = [(text, {"tone": answers["tone"]}) for text, answers in EXAMPLES]


@pytest.fixture
def model(scripted_model: MakeModel) -> ScriptedModel:
    return scripted_model(OUTPUTS)


@pytest.fixture
def report(model: ScriptedModel) -> DecisionReport:
    return evaluate(model, [TONE, URGENT, MOOD], EXAMPLES)


def test_a_report_contains_the_metrics_of_each_question(report: DecisionReport) -> None:
    tone, urgent, mood = report.questions
    assert [each.kind for each in report.questions] == ["choice", "predicate", "score"]
    y = [0, 2, 2, 0]
    assert (tone.name, tone.n, tone.options) == ("tone", 4, ("calm", "angry", "sad"))
    assert tone.accuracy == 0.75
    assert tone.confusion == ((2, 0, 0), (0, 0, 0), (0, 1, 1))
    # calm: both right; angry: answered once, wrongly; sad: one right of two.
    assert tone.macro_f1 == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert tone.nll == pytest.approx(metrics.nll(np.log(TONES), y))
    assert tone.brier == pytest.approx(metrics.brier(TONES, y))
    # Each answer is in a bin of its own, with the probabilities 0.7, 0.8, 0.4 and 0.6.
    assert tone.ece == pytest.approx((0.3 + 0.8 + 0.6 + 0.4) / 4)
    assert tone.level_error is None
    assert (urgent.n, urgent.options) == (3, ("true", "false"))
    assert urgent.confusion == ((1, 0), (1, 1))
    assert urgent.nll == pytest.approx(-np.log([0.9, 0.8, 0.4]).mean())
    assert mood.confusion == ((1, 1, 0), (0, 0, 0), (0, 0, 1))
    # The expected levels are 0, 1.25 and 1.5, and the right levels are 0, 2 and 0.
    assert mood.level_error == pytest.approx((0 + 0.75 + 1.5) / 3)


def test_the_overall_report_combines_all_answers(report: DecisionReport) -> None:
    parts, whole = report.questions, report.overall
    n = np.array([each.n for each in parts])
    assert whole.n == n.sum() == 10
    for name in ("accuracy", "nll", "brier"):
        values = np.array([getattr(each, name) for each in parts])
        assert getattr(whole, name) == pytest.approx((n * values).sum() / 10)
    assert whole.macro_f1 == pytest.approx(np.mean([each.macro_f1 for each in parts]))
    probabilities = np.concatenate([each.probabilities for each in parts])
    right = np.concatenate([each.right for each in parts])
    assert whole.bins == metrics.reliability(probabilities, right)
    assert whole.coverage == metrics.coverage(probabilities, right)
    assert (whole.confusion, whole.level_error) == ((), None)


def test_answers_that_depend_on_the_order_are_flips(scripted_model: MakeModel) -> None:
    # The weight of the option that is shown first is multiplied by e.
    unbiased = evaluate(scripted_model(OUTPUTS), TONE, TONE_EXAMPLES)
    biased = evaluate(scripted_model(OUTPUTS, first_bonus=1.0), TONE, TONE_EXAMPLES)
    assert unbiased.questions[0].flips == 0.0
    expected = 0
    for row in TONES:
        first, last = row * [np.e, 1, 1], row * [1, 1, np.e]
        expected += first.argmax() != last.argmax()
    assert 0 < expected < 4
    assert biased.questions[0].flips == biased.overall.flips == expected / 4
    once = evaluate(scripted_model(OUTPUTS), TONE, TONE_EXAMPLES, reorder=1)
    assert once.overall.flips is None


def test_reorder_affects_only_the_flips(scripted_model: MakeModel) -> None:
    model = scripted_model(OUTPUTS, first_bonus=1.0)
    once, often = (evaluate(model, TONE, TONE_EXAMPLES, reorder=n).to_json() for n in (1, 6))
    for one in (once["overall"], *once["questions"]):
        assert one.pop("flips") is None
    for one in (often["overall"], *often["questions"]):
        assert one.pop("flips") > 0
    assert once == often
    averaged = evaluate(model, TONE, TONE_EXAMPLES, orders=6)
    assert averaged.overall.nll != once["overall"]["nll"]
    assert averaged.overall.flips is not None


def test_each_example_is_asked_once_about_its_questions(model: ScriptedModel) -> None:
    counts: list[tuple[int, int | None]] = []
    evaluate(model, [TONE, URGENT, MOOD], EXAMPLES, progress=lambda *now: counts.append(now))
    calls = [(call[0], len(call[1]), call[2]) for call in model.calls]
    assert calls == [(["0", "1", "2"], 3, False), (["3"], 1, False)]
    assert counts == [(1, 4), (2, 4), (3, 4), (4, 4)]
    evaluate(model, TONE, [("0", {"tone": "calm"})], scoring="full")
    assert model.calls[-1][2]


def test_each_label_has_its_own_report(scripted_model: MakeModel) -> None:
    topics = MultiLabel("Is it about this?", ["sport", "money"], name="topics")
    outputs = {each.instructions: np.log(TRUTHS) for each in topics.predicates}
    examples = [("0", {"topics": ["sport", "money"]}), ("1", {"topics": ["money"]})]
    report = evaluate(scripted_model(outputs), topics, examples)
    found = [(each.name, each.accuracy) for each in report.questions]
    assert found == [("topics: sport", 1.0), ("topics: money", 0.5)]


@pytest.mark.parametrize("scoring", ["constrained", "full"])
def test_each_scoring_is_evaluated_with_its_own_probabilities(
    model: ScriptedModel, scoring: Any
) -> None:
    report = evaluate(model, TONE, TONE_EXAMPLES, scoring=scoring)
    y = [0, 2, 2, 0]
    log_p = [
        model.scores(text, TONE, PromptSettings(), True).log_probabilities(scoring)
        for text, _ in TONE_EXAMPLES
    ]
    assert report.scoring == scoring
    assert report.questions[0].nll == pytest.approx(metrics.nll(log_p, y))


def drawn(n: int) -> tuple[Floats, list[tuple[str, dict[str, Any]]]]:
    """Return the log-probabilities of a model with tripled scores, and examples."""
    random = np.random.default_rng(2)
    p = random.dirichlet([1.0, 1.0, 1.0], n)
    values = [option.value for option in TONE.options]
    examples = [(str(i), {"tone": values[random.choice(3, p=row)]}) for i, row in enumerate(p)]
    return np.log(p**3 / (p**3).sum(axis=1, keepdims=True)), examples


@pytest.mark.parametrize("method", ["temperature", "auto", "batch+temperature"])
def test_a_calibration_improves_held_out_metrics(method: Any, scripted_model: MakeModel) -> None:
    outputs, examples = drawn(1200)
    model = scripted_model(outputs)
    calibration = calibrate(model, TONE, examples[:600], method=method)
    raw = evaluate(model, TONE, examples[600:], reorder=1)
    fitted = evaluate(model, TONE, examples[600:], calibration=calibration, reorder=2)
    assert (raw.calibrated, fitted.calibrated) == (False, True)
    assert "uncalibrated" in raw.text()
    assert "uncalibrated" not in fitted.text()
    assert fitted.overall.nll < raw.overall.nll - 0.1
    assert fitted.overall.brier < raw.overall.brier
    assert fitted.overall.ece < raw.overall.ece / 2
    if method == "temperature":
        assert fitted.overall.accuracy == raw.overall.accuracy


@pytest.mark.slow
def test_calibrated_decisions_match_the_evaluation(tiny_model: Model, tmp_path: Path) -> None:
    values = ["calm", "angry", "sad"]
    texts = ["All is well.", "How dare you!", "I lost it.", "Fine by me."]
    examples = [
        (f"{text} {i}", {"tone": values[i % 3], "urgent": i % 2 == 0, "mood": i % 3})
        for i, text in enumerate(texts * 3)
    ]
    questions = [TONE, URGENT, MOOD]
    path = tmp_path / "c.json"
    calibrate(tiny_model, questions, examples, method="batch+temperature").save(path)
    calibration = Calibration.load(path)
    raw = evaluate(tiny_model, questions, examples)
    fitted = evaluate(tiny_model, questions, examples, calibration=calibration)
    assert raw.model == fitted.model == calibration.model
    assert [each.n for each in fitted.questions] == [12, 12, 12]
    for before, after in zip(raw.questions, fitted.questions, strict=True):
        assert before.flips is not None
        # The fit used these examples, so it is not worse than guessing (the highest temperature).
        assert after.nll <= np.log(len(after.options)) + 0.05
    decision = tiny_model.decide(examples[0][0], questions, calibration=calibration)
    assert decision.calibrated
    for place, report in enumerate(fitted.questions):
        answer = decision.answers[place]
        assert max(answer.distribution) == pytest.approx(report.probabilities[0], abs=0.02)


def test_invalid_arguments_are_rejected_before_the_model_runs(model: ScriptedModel) -> None:
    one: Any = EXAMPLES[:1]
    with pytest.raises(InvalidArgumentError, match="scoring must be .* got 'best'"):
        evaluate(model, TONE, one, scoring="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="reorder must be .* from 1 to 64, got 0"):
        evaluate(model, TONE, one, reorder=0)
    with pytest.raises(InvalidArgumentError, match="bins must be .* from 1 to 1000, got 0"):
        evaluate(model, TONE, one, bins=0)
    with pytest.raises(InvalidArgumentError, match="no example answers 'urgent'"):
        evaluate(model, [TONE, URGENT], EXAMPLES[3:])
    with pytest.raises(InvalidArgumentError, match="no example answers 'tone'"):
        evaluate(model, TONE, [])
    assert model.calls == []


def test_the_tables_have_a_row_for_each_question_and_for_all(
    report: DecisionReport, model: ScriptedModel
) -> None:
    head, _, *lines = report.text().splitlines()
    assert head == (
        f"model {fingerprint_of(model)}, uncalibrated probabilities, scoring constrained, "
        "answer style text, orders 1, prompt default (chat, input-first, prior none)"
    )
    names = ["question", "tone", "urgent", "mood", "all"]
    assert [line.split()[0] for line in lines[:5]] == names
    assert lines[1].split() == [
        *(
            "tone",
            "choice",
            "4",
            "75.0%",
            *str(report.questions[0].automated).split(),
            "50.0%",
            "0.556",
        ),
        *(f"{getattr(report.questions[0], name):.3f}" for name in ("nll", "brier", "ece")),
        *("0.0%", "-"),
    ]
    assert lines[3].split()[-1] == "0.75"
    assert [line.split()[0] for line in lines[-5:]] == names
    assert lines[-4].split()[1:5] == ["100%", "75%", "75%", "67%"]
    assert len({len(line) for line in lines[:5]}) == 1


def test_the_json_contains_every_metric(report: DecisionReport) -> None:
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert content["calibrated"] is False
    assert content["overall"]["accuracy"] == report.overall.accuracy
    tone = content["questions"][0]
    assert tone["confusion"] == [[2, 0, 0], [0, 0, 0], [0, 1, 1]]
    assert tone["coverage"][0] == {"threshold": 0.0, "coverage": 1.0, "accuracy": 0.75}
    assert tone["automated"] == vars(report.questions[0].automated)
    assert tone["automated"]["accuracy"] == 0.75
    assert len(tone["bins"]) == 10
    probability = pytest.approx(0.7)
    bin = {"low": 0.6, "high": 0.7, "n": 1, "probability": probability, "accuracy": 1.0}
    assert tone["bins"][6] == bin
    assert "probabilities" not in tone


def test_the_coverage_curve_ends_with_all_answers(report: DecisionReport) -> None:
    points = coverage_curve(report.questions[0])
    assert [point.coverage for point in points] == [0.25, 0.5, 0.75, 1.0]
    assert [point.accuracy for point in points] == [0.0, 0.5, pytest.approx(2 / 3), 0.75]
    assert [point.threshold for point in points] == pytest.approx([0.8, 0.7, 0.6, 0.4])


def test_the_plots_are_png_files_with_a_panel_for_each_question(
    report: DecisionReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    saved: list[Any] = []
    save = figure.savefig
    monkeypatch.setattr(
        figure, "savefig", lambda self, *a, **k: saved.append(self) or save(self, *a, **k)
    )
    files = report.save_plots(tmp_path / "plots" / "new")
    assert [file.name for file in files] == ["reliability.png", "coverage.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    for each, label in zip(saved, ("perfect calibration", "probability threshold"), strict=True):
        assert label in [text.get_text() for text in each.legends[0].get_texts()]
        assert sum(bool(axis.lines) for axis in each.axes) == len(report.questions) + 1


def test_the_error_without_matplotlib_names_the_extra_to_install(
    report: DecisionReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupportedError, match=r"pip install 'eliza-ffi\[plot\]'"):
        report.save_plots(tmp_path)


LONG = "a long story " * 400
MANY = [("hello", {"urgent": True}), (LONG, {"urgent": True}), ({"a": [1]}, {"urgent": False})] * 5


@pytest.fixture(scope="module")
def small_model() -> Iterator[Model]:
    with Model(n_ctx=512, n_threads=1) as model:
        yield model


@pytest.mark.parametrize("run", [evaluate, calibrate])
def test_the_error_of_a_long_example_contains_its_length(
    small_model: Model, run: Callable[..., Any]
) -> None:
    examples = [("hello", {"urgent": True})] * 12
    examples[7] = (LONG, {"urgent": True})
    with pytest.raises(ContextFullError, match="example 7: an input of 5,200 characters: cannot"):
        run(small_model, URGENT, examples)


def test_long_examples_are_skipped_with_on_skip(small_model: Model) -> None:
    skipped: list[tuple[int, str]] = []
    report = evaluate(small_model, URGENT, MANY, on_skip=lambda *each: skipped.append(each))
    assert [place for place, _ in skipped] == [1, 4, 7, 10, 13]
    assert all(why.startswith("an input of 5,200 characters: ") for _, why in skipped)
    without = [example for example in MANY if example[0] is not LONG]
    assert report.overall.n == len(without) == 10
    alone = evaluate(small_model, URGENT, without)
    assert report.overall.nll == pytest.approx(alone.overall.nll, abs=1e-6)
    fitted = calibrate(small_model, URGENT, MANY, method="temperature", on_skip=Mock())
    same = calibrate(small_model, URGENT, without, method="temperature")
    assert fitted.questions[0].n_examples == 10
    assert fitted.questions[0].temperature == pytest.approx(same.questions[0].temperature, rel=1e-4)
    with pytest.raises(InvalidArgumentError, match="at least 10 examples of 'urgent', got 8"):
        calibrate(small_model, URGENT, MANY[:12], on_skip=Mock())
    none = [("x", {}), (LONG, {"urgent": True})]
    with pytest.raises(InvalidArgumentError, match="no example can be used; example 1: an input"):
        evaluate(small_model, URGENT, none, on_skip=Mock())


def test_an_error_of_the_prompt_function_is_not_skipped(small_model: Model) -> None:
    write, skip = Mock(side_effect=InvalidArgumentError("nothing to say")), Mock()
    with pytest.raises(InvalidArgumentError, match="^nothing to say$"):
        evaluate(small_model, URGENT, [("x", {"urgent": True})], prompt=write, on_skip=skip)
    skip.assert_not_called()
