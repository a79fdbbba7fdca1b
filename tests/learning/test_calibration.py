"""Calibrations: formulas, fitting, selection of a method, and files."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scripted_decisions import MakeModel, ScriptedModel

from eliza_ffi.decisions import prompts as prompts_module
from eliza_ffi.decisions.examples import UNLABELLED, read_examples
from eliza_ffi.decisions.fingerprint import fingerprint_of
from eliza_ffi.decisions.probabilities import log_mean, log_softmax, relative_to, tempered
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.errors import InvalidArgumentError, ModelError
from eliza_ffi.evidence.calibration import METHODS, Calibration
from eliza_ffi.evidence.scoring import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    OptionScores,
    QuestionScores,
)
from eliza_ffi.learning import examples as asked_examples
from eliza_ffi.learning.fitting import MIN_EXAMPLES, _simplest, calibrate
from eliza_ffi.learning.report import evaluate
from eliza_ffi.learning.temperature import fit_temperature

Floats = NDArray[np.float64]
ScoredExamples = tuple[Floats, NDArray[np.intp]]

HEADS = tuple(method for method in METHODS if method.startswith("head"))
OTHERS = tuple(method for method in METHODS if method not in (*HEADS, "weights"))
"""The methods for a model without hidden states and without an encoder."""

TONE = Choice("Which tone?", ["calm", "angry", "sad"], name="tone")
URGENT = Predicate("It is urgent.", name="urgent")
MOOD = Score("How good?", ["bad", "fair", "good"], name="mood")
TOPICS = MultiLabel("Is it about this?", ["sport", "money"], name="topics")

scores = st.floats(-15, 15)  # exp(15 / MIN_TEMPERATURE) does not overflow


@st.composite
def scored_examples(draw: st.DrawFn) -> ScoredExamples:
    """Return log-probabilities of n examples and k options, and the right options."""
    n, k = draw(st.integers(1, 20)), draw(st.integers(2, 5))
    rows = draw(st.lists(st.lists(scores, min_size=k, max_size=k), min_size=n, max_size=n))
    y = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return log_softmax(rows), np.array(y)


@pytest.mark.slow
@given(scored_examples(), st.lists(st.floats(0.01, 1), min_size=5, max_size=5))
def test_baselines_and_means_are_of_probabilities(
    given_: ScoredExamples, weights: list[float]
) -> None:
    z, _ = given_
    baseline = np.array(weights[: z.shape[1]]) / sum(weights[: z.shape[1]])
    for row, got in zip(np.exp(z), np.exp(relative_to(z, np.log(baseline))), strict=True):
        shares = [p / b for p, b in zip(row, baseline, strict=True)]
        assert got == pytest.approx([share / sum(shares) for share in shares], abs=1e-12)
    expected = [sum(math.exp(value) for value in column) / len(z) for column in z.T]
    assert np.exp(log_mean(z)) == pytest.approx(expected, abs=1e-12)


WRONG_TEMPERATURES = [partial(tempered, [0.0, 1.0], t) for t in (0.0, -1.0, math.inf, math.nan)]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *((call, "a finite number above 0") for call in WRONG_TEMPERATURES),
        (partial(fit_temperature, [[0.0, -np.inf]], [0]), "an option has probability 0"),
        (partial(relative_to, [0.0, 0.0], [0.0, -np.inf]), "log_baseline must be finite"),
    ],
)
def test_infinite_values_are_rejected(call: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        call()


@given(st.lists(scores, min_size=2, max_size=6), st.floats(0.05, 20))
def test_a_temperature_divides_scores_and_preserves_their_order(
    z: list[float], temperature: float
) -> None:
    p = np.exp(tempered(z, temperature))
    powers = [math.exp((each - max(z)) / temperature) for each in z]
    assert p == pytest.approx([power / sum(powers) for power in powers], abs=1e-12)
    assert p.sum() == pytest.approx(1)
    assert p[int(np.argmax(z))] == p.max()


def reference_loss(z: Floats, y: NDArray[np.intp], temperature: float) -> float:
    nll = 0.0
    for row, right in zip(z, y, strict=True):
        nll += math.log(sum(math.exp((each - row[right]) / temperature) for each in row))
    return nll + 1 / temperature - 1 + math.log(temperature)


@pytest.mark.slow
@given(scored_examples())
def test_no_temperature_on_a_fine_grid_has_a_lower_loss(given_: ScoredExamples) -> None:
    z, y = given_
    fitted = fit_temperature(z, y)
    assert MIN_TEMPERATURE <= fitted <= MAX_TEMPERATURE
    lowest = reference_loss(z, y, fitted)
    for temperature in [1.0, *np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 50)]:
        assert lowest <= reference_loss(z, y, temperature) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("right_of_ten", [6, 8, 9])
@pytest.mark.parametrize("odds", [1.0, 4.0])
def test_equal_margins_have_a_known_fitted_temperature(odds: float, right_of_ten: int) -> None:
    # All examples have the same scores. At the minimum of the loss, the slopes of the likelihood
    # and of the prior cancel out.
    y = np.array([0] * right_of_ten + [1] * (10 - right_of_ten))
    z = np.tile([odds, 0.0], (10, 1))
    b = 1 / fit_temperature(z, y)
    claimed = 1 / (1 + math.exp(-odds * b))
    assert odds * (10 * claimed - right_of_ten) == pytest.approx(1 / b - 1, abs=1e-8)
    # With many examples the prior has no effect: the fitted probability is the accuracy.
    many = fit_temperature(np.tile(z, (2000, 1)), np.tile(y, 2000))
    logit = math.log(right_of_ten / (10 - right_of_ten))
    assert many == pytest.approx(odds / logit, rel=2e-3)


def test_the_fitted_temperature_stays_within_its_bounds() -> None:
    z = np.tile([[2.0, 0.0], [0.0, 2.0]], (1000, 1)) * 0.01
    assert fit_temperature(z, [0, 1] * 1000) == MIN_TEMPERATURE  # never wrong
    assert fit_temperature(100 * z, [1, 0] * 1000) == MAX_TEMPERATURE  # always wrong
    assert fit_temperature(np.zeros((4, 3)), [0, 1, 2, 0]) == 1.0  # no information


def test_right_answers_become_indices_of_options() -> None:
    flag = Choice("Which?", [True, "true", "no"], none="neither")
    labelled = read_examples(
        [URGENT, flag, MOOD, TOPICS],
        [
            ("a", {"urgent": True, "1": "true", "mood": "good", "topics": ["money"]}),
            ("b", {"urgent": False, "1": True, "mood": 1, "topics": set()}),
            ("c", {"urgent": np.bool_(True), "1": "neither", "mood": np.int64(0)}),
            ("d", {"urgent": None}),
        ],
    )
    assert labelled.inputs == ("a", "b", "c", "d")
    x = UNLABELLED
    expected = [[0, 1, 2, 1, 0], [1, 0, 1, 1, 1], [0, 3, 0, x, x], [x, x, x, x, x]]
    assert labelled.targets.tolist() == expected
    alone = read_examples([URGENT], [("a", True), ("b", None)])
    assert alone.targets.tolist() == [[0], [x]]
    numbers = [1, 0, 1.0, np.int64(0), np.float32(1)]
    of_numbers = read_examples([URGENT], [("a", number) for number in numbers])
    assert of_numbers.targets.tolist() == [[0], [1], [0], [1], [0]]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"urgent": "yes"}, "example 1, 'urgent': the answer to a predicate must be True or False"),
        ({"urgent": 2}, "the answer to a predicate must be True or False, or 1 or 0, got 2"),
        ({"urgent": 0.5}, "got 0.5"),
        ({"urgent": "1"}, "got '1'"),
        ({"tone": "glad"}, "expected one of 'calm', 'angry', 'sad', got 'glad'"),
        ({"tone": 0}, "got 0"),
        ({"tone": True}, "got True"),
        ({"mood": 3}, "expected one of 'bad', 'fair', 'good' or a level from 0 to 2, got 3"),
        ({"mood": -1}, "got -1"),
        ({"mood": True}, "got True"),
        ({"mood": 0.5}, "got 0.5"),
        ({"mood": "great"}, "got 'great'"),
        ({"topics": "sport"}, "to labels must be a list of the labels that fit, got 'sport'"),
        ({"topics": ["art"]}, "expected one of 'sport', 'money', got 'art'"),
        ({"tune": "sad"}, "example 1 answers 'tune', but no question has that name"),
        ("calm", "example 1: expected a mapping from the questions 'urgent', 'tone', 'mood', "),
    ],
)
def test_malformed_answers_are_rejected(answers: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        read_examples([URGENT, TONE, MOOD, TOPICS], [("w", {}), ("x", answers)])
    assert reason in str(raised.value)
    for example, found in (("x", "got 'x'"), (("x", {}, {}), "got a tuple; it has 3 items")):
        expected = f"example 0 must be a pair of an input and a right answer, {found}$"
        with pytest.raises(InvalidArgumentError, match=expected):
            read_examples([URGENT], [example])


def drawn(n: int, k: int, seed: int = 1) -> ScoredExamples:
    """Return log-probabilities, and right options drawn from these probabilities."""
    random = np.random.default_rng(seed)
    z = log_softmax(1.5 * random.normal(size=(n, k)))
    return z, np.array([random.choice(k, p=np.exp(row)) for row in z])


def examples_of(y: NDArray[np.intp]) -> list[tuple[str, dict[str, Any]]]:
    values = [option.value for option in TONE.options]
    return [(str(i), {"tone": values[right]}) for i, right in enumerate(y)]


def test_a_model_with_tripled_scores_gets_temperature_3(scripted_model: MakeModel) -> None:
    z, y = drawn(2000, 3)
    model = scripted_model(3.0 * z)
    calibration = calibrate(model, TONE, examples_of(y), method="temperature")
    (fitted,) = calibration.questions
    assert fitted.temperature == pytest.approx(3.0, rel=0.1)
    assert fitted.temperature == fit_temperature(log_softmax(3.0 * z), y)
    assert (fitted.method, fitted.n_examples) == ("temperature", 2000)
    assert fitted.nll["temperature"] < fitted.nll["none"]
    scores = model.scores("0", TONE, PromptSettings(), False)
    expected = tempered(scores.orders[0].constrained, fitted.temperature)
    assert calibration.apply(0, scores) == pytest.approx(expected)


def test_batch_calibration_divides_by_the_mean_and_needs_no_answers(
    scripted_model: MakeModel,
) -> None:
    z, _ = drawn(MIN_EXAMPLES, 3)
    model = scripted_model(z)
    inputs = [(str(i), {}) for i in range(len(z))]
    calibration = calibrate(model, TONE, inputs, method="batch")
    mean = np.exp(z).mean(axis=0)
    for i in range(len(z)):
        shares = np.exp(z[i]) / mean
        got = np.exp(calibration.apply(0, model.scores(str(i), TONE, PromptSettings(), False)))
        assert got == pytest.approx(shares / shares.sum())
    assert calibration.questions[0].nll == {}
    with pytest.raises(InvalidArgumentError, match="expected 3 options, got 2"):
        calibration.apply(0, QuestionScores((OptionScores(log_softmax([0.0, 1.0])),)))


def test_cross_validation_evaluates_each_example_without_its_fold(
    scripted_model: MakeModel,
) -> None:
    z, y = drawn(23, 3)
    z = log_softmax(2.0 * z)
    calibration = calibrate(scripted_model(z), TONE, examples_of(y), method="batch+temperature")
    # Sorted by the right option and dealt to 5 folds.
    dealt = sorted(range(23), key=lambda i: (y[i], i))
    losses = []
    for fold in range(5):
        held_out = dealt[fold::5]
        rest = [i for i in range(23) if i not in held_out]
        mean = np.log(np.exp(z[rest]).mean(axis=0))
        temperature = fit_temperature(relative_to(z[rest], mean), y[rest])
        for i in held_out:
            losses.append(-tempered(relative_to(z[i], mean), temperature)[y[i]])
    nll = calibration.questions[0].nll
    assert nll["batch+temperature"] == pytest.approx(np.mean(losses))
    assert nll["none"] == pytest.approx(-z[np.arange(23), y].mean())


@pytest.mark.parametrize(
    ("sharper", "biased", "expected"),
    [
        (1, False, "none"),
        (3, False, "temperature"),
        (1, True, "batch"),
        (3, True, "batch+temperature"),
    ],
)
def test_auto_selects_the_simplest_sufficient_method(
    sharper: int, biased: bool, expected: str, scripted_model: MakeModel
) -> None:
    z, y = drawn(400, 3)
    model = scripted_model(sharper * (z + biased * np.array([2.0, 0.0, -2.0])))
    calibration = calibrate(model, TONE, examples_of(y), method="auto")
    (fitted,) = calibration.questions
    assert fitted.method == expected
    assert set(fitted.nll) == set(OTHERS)
    assert fitted.nll[expected] < min(fitted.nll.values()) + 0.02
    if expected != "none":
        fitted_nll = evaluate(model, TONE, examples_of(y), calibration=calibration).overall.nll
        assert fitted_nll < fitted.nll["none"] - 0.1


def test_auto_ignores_gains_within_one_standard_error(scripted_model: MakeModel) -> None:
    others = [method for method in OTHERS if method != "none"]
    taken = []
    for seed in range(8):
        z, y = drawn(100, 3, seed)  # already calibrated
        (fitted,) = calibrate(scripted_model(z), TONE, examples_of(y), method="auto").questions
        if min(fitted.nll[method] for method in others) < fitted.nll["none"]:
            taken.append(fitted.method)
    assert len(taken) >= 3, "no method was better by chance"
    # By chance, one gain in six is larger than a standard error.
    assert taken.count("none") >= 2 / 3 * len(taken)


def test_a_method_asks_each_example_once(scripted_model: MakeModel) -> None:
    z, _ = drawn(MIN_EXAMPLES, 3)
    asked = [str(i) for i in range(MIN_EXAMPLES)]
    for method in ("none", "temperature", "batch", "auto"):
        for scoring, whole in (("constrained", False), ("full", True)):
            model = scripted_model(z)
            calibration = fitted_on(model, method=method, scoring=scoring)
            assert [(call[0], call[2]) for call in model.calls] == [(asked, whole)]
            assert calibration.needs_whole_rows == whole


def test_an_example_is_asked_only_the_questions_it_answers(scripted_model: MakeModel) -> None:
    z, _ = drawn(3 * MIN_EXAMPLES, 2)
    model = scripted_model(z)
    other = Predicate("It is polite.", name="polite")
    answers = [{"urgent": True}, {"polite": False, "urgent": False}, {}]
    examples = [(str(i), answers[i % 3]) for i in range(3 * MIN_EXAMPLES)]
    counts: list[tuple[int, int | None]] = []
    calibration = calibrate(
        model, [URGENT, other], examples, method="temperature", progress=lambda *n: counts.append(n)
    )
    urgent, polite = calibration.questions
    assert (urgent.n_examples, polite.n_examples) == (20, 10)
    by_questions = {tuple(call[1]): call[0] for call in model.calls}
    assert by_questions == {
        ("It is urgent.",): [str(3 * i) for i in range(MIN_EXAMPLES)],
        ("It is urgent.", "It is polite."): [str(3 * i + 1) for i in range(MIN_EXAMPLES)],
    }
    assert counts == [(i + 1, 20) for i in range(20)]
    assert polite.temperature == fit_temperature(z[1::3], [1] * MIN_EXAMPLES)


def test_wrong_requests_are_named(scripted_model: MakeModel) -> None:
    z, y = drawn(MIN_EXAMPLES - 1, 3)
    model = scripted_model(z)
    for method in ("temperature", "auto", "batch"):
        with pytest.raises(InvalidArgumentError, match="at least 10 examples of 'tone', got 9"):
            calibrate(model, TONE, examples_of(y), method=method)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="method must be .* got 'platt'"):
        calibrate(model, TONE, examples_of(y), method="platt")  # type: ignore[arg-type]
    assert model.calls == []
    assert calibrate(model, TONE, examples_of(y), method="none").questions[0].n_examples == 9


def fitted_on(model: ScriptedModel, **more: Any) -> Calibration:
    _, y = drawn(MIN_EXAMPLES, 3)
    return calibrate(model, TONE, examples_of(y), **{"method": "temperature", **more})


def write(given: str, asked: Any) -> str:
    return given


def test_a_calibration_is_valid_for_one_model_and_its_settings(scripted_model: MakeModel) -> None:
    z, _ = drawn(MIN_EXAMPLES, 3)
    model = scripted_model(z)
    calibration, own = fitted_on(model), fingerprint_of(model)
    calibration.check(own, [TONE], PromptSettings())
    calibration.check(own, [Choice("Which tone?", TONE.choices, name="renamed")], PromptSettings())
    labels = [(str(i), {"topics": ["sport"] if i % 2 else []}) for i in range(MIN_EXAMPLES)]
    of_labels = calibrate(scripted_model(z[:, :2]), TOPICS, labels, method="temperature")
    assert len(of_labels.questions) == 2
    of_labels.check(own, [TOPICS], PromptSettings())
    of_labels.check(own, TOPICS.predicates, PromptSettings())
    described = Choice("Which tone?", [("calm", "at ease"), "angry", "sad"], name="tone")
    for questions, how, fingerprint, reason in (
        ([TONE], PromptSettings(), "1-2", f"for another model: expected '{own}', got '1-2'"),
        ([TONE, URGENT], PromptSettings(), own, "for 1 questions, got 2"),
        ([described], PromptSettings(), own, "another question: 'tone' differs in choices"),
        ([Choice("Tone?", TONE.choices)], PromptSettings(), own, "'0' differs in instructions"),
        ([MOOD], PromptSettings(), own, "'mood' differs in choices, instructions, levels, type"),
    ):
        with pytest.raises(InvalidArgumentError) as raised:
            calibration.check(fingerprint, questions, how)
        assert reason in str(raised.value)
    assert fitted_on(model, prompt=write).prompt == "write"


def test_auto_skips_methods_that_a_decision_model_does_not_support(
    scripted_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = drawn(20, 3)
    model = scripted_model(z)
    monkeypatch.setattr(model, "session", object(), raising=False)
    monkeypatch.setattr(asked_examples, "decision_model_of", lambda session: session)
    calibration = calibrate(model, TONE, examples_of(y), method="auto")
    assert not any(whole for _, _, whole in model.calls)
    assert set(calibration.questions[0].nll) == set(OTHERS)
    report = evaluate(model, TONE, examples_of(y))
    assert report.overall.flips is None
    assert evaluate(model, TONE, examples_of(y), reorder=2).overall.flips is not None


def test_a_calibration_rejects_changed_prompts_with_the_same_name(
    scripted_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, _ = drawn(MIN_EXAMPLES, 3)
    model = scripted_model(z)
    one, other = (lambda given, asked, head=head: head + given + asked.text for head in "ab")
    own = fingerprint_of(model)
    fitted = fitted_on(model, prompt=one)
    fitted.check(own, [TONE], PromptSettings(prompt=one))
    assert fitted.prompt_arguments() == {"answer_style": "text", "orders": 1}
    with pytest.raises(InvalidArgumentError, match="other prompts: '.*<lambda>' wrote different"):
        fitted.check(own, [TONE], PromptSettings(prompt=other))
    plain = fitted_on(model)
    plain.check(own, [TONE], PromptSettings())
    monkeypatch.setattr(prompts_module, "YES", "indeed")
    with pytest.raises(InvalidArgumentError, match="other prompts: 'default' wrote different text"):
        plain.check(own, [TONE], PromptSettings())
    replace(plain, wording=None).check(own, [TONE], PromptSettings())  # a file without this field


def test_a_fingerprint_depends_on_files_but_not_on_paths(tmp_path: Path) -> None:
    def fingerprint(content: bytes, **more: Any) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"
        path.write_bytes(content)
        return fingerprint_of(ScriptedModel(path, lambda *_: [], **more))

    content = bytes(range(256)) * 3000
    adapter = tmp_path / "adapter.gguf"
    adapter.write_bytes(b"adapter")
    plain = fingerprint(content)
    assert plain == fingerprint(content)
    assert plain.startswith(f"{len(content)}-")
    adapted = [fingerprint(content, lora=({"path": str(adapter), "scale": s},)) for s in (1.0, 0.5)]
    changed = (content[:-1] + b"x", content + b"x", b"x" + content[1:])
    others = [fingerprint(each) for each in changed]
    assert len({plain, *adapted, *others}) == 6
    with pytest.raises(ModelError, match=r"cannot read .*gone\.gguf"):
        fingerprint_of(ScriptedModel(tmp_path / "gone.gguf", lambda *_: []))


def test_the_fingerprint_of_a_decision_model_covers_its_template(tmp_path: Path) -> None:
    def fingerprint(template: str, temperature: float) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"
        writer = GGUFWriter(path, "llama")
        # None of the 256 samples of the file contains the decision entries.
        writer.add_string("filling", "x" * 2_500_000)
        writer.add_string("llama.decision.type", "openjev")
        writer.add_string("tokenizer.chat_template.systemone", template)
        writer.add_float32("llama.decision.temperature.choice", temperature)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        path.write_bytes(path.read_bytes() + bytes(3_000_000))
        return fingerprint_of(ScriptedModel(path, lambda *_: [], decision_type="openjev"))

    plain = fingerprint("a {{ state }}", 1.5)
    assert plain == fingerprint("a {{ state }}", 1.5)
    assert len({plain, fingerprint("b {{ state }}", 1.5), fingerprint("a {{ state }}", 1.25)}) == 3


@pytest.fixture
def saved(scripted_model: MakeModel, tmp_path: Path) -> tuple[Calibration, Path]:
    z, _ = drawn(MIN_EXAMPLES, 3)
    calibration = fitted_on(scripted_model(z), method="batch+temperature")
    path = tmp_path / "tone.json"
    calibration.save(path)
    return calibration, path


@pytest.mark.parametrize("method", [*OTHERS, "auto"])
@pytest.mark.parametrize("orders", [1, 3])
def test_a_saved_calibration_is_loaded_unchanged(
    method: Any, orders: int, scripted_model: MakeModel, tmp_path: Path
) -> None:
    z, _ = drawn(MIN_EXAMPLES, 3)
    model = scripted_model(z, first_bonus=0.2)
    calibration = fitted_on(model, method=method, orders=orders)
    calibration.save(tmp_path / "c.json")
    again = Calibration.load(tmp_path / "c.json")
    assert again == calibration
    scores = model.scores("0", TONE, PromptSettings(orders=orders), True)
    assert (again.apply(0, scores) == calibration.apply(0, scores)).all()
    assert np.exp(again.apply(0, scores)).sum() == pytest.approx(1)


def test_truncated_and_changed_files_are_detected(saved: tuple[Calibration, Path]) -> None:
    calibration, path = saved
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidArgumentError, match=r"tone\.json is not a usable calibration: "):
            Calibration.load(path)
    for place in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(InvalidArgumentError):  # except if a number's last digit has no effect
            assert Calibration.load(path) == calibration
    path.write_bytes(whole)
    assert Calibration.load(path) == calibration


HEAD = b'{"format": "eliza-ffi decision calibration", "version": '


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[1, 2]", "format"),
        (b'{"format": "other"}', "format"),
        (HEAD + b"2}", "expected version 3, got 2"),
        (HEAD + b"3}", "calibration' is missing"),
        (HEAD + b'3, "calibration": {}}', "damaged"),
    ],
)
def test_other_files_are_rejected_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        Calibration.from_text(content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"method": "magic"}, "method must be .* got 'magic'"),
        ({"method": "temperature"}, "temperature does not use baseline"),
        ({"method": "contextual"}, "method must be one of none, temperature, .* 'contextual'"),
        ({"method": "head"}, "head does not use baseline"),
        ({"baseline": [0.0, 0.0]}, "baseline must have 3 options, got 2"),
        ({"baseline": [0.0, 0.0, "0"]}, "baseline must be a number, got '0'"),
        ({"baseline": 3}, "baseline must be a list, got 3"),
        ({"temperature": 0}, "temperature must be a number from 0.05 to 20.0, got 0"),
        ({"temperature": 10**999}, "temperature must be .* 20.0, got 1000"),
        ({"n_examples": None}, "n_examples must be a whole number of 0 or more, got None"),
        ({"nll": {"x": 1.0}}, "nll must be .* got 'x'"),
        ({"nll": []}, "nll must be an object, got an empty list"),
        ({"question": {"type": "choice"}}, "instructions are missing"),
        ({"question": {"type": "labels", "instructions": "x", "labels": ["a"]}}, "for each label"),
        ({"scoring": "best"}, "scoring must be .* got 'best'"),
        ({"scoring": "mean"}, "scoring must be one of constrained, full, got 'mean'"),
        ({"answer_style": "digits"}, "answer_style must be"),
        ({"orders": 0}, "orders must be a whole number from 1 to 64"),
        ({"model": 7}, "model must be a string, got 7"),
    ],
)
def test_invalid_values_in_an_edited_file_are_rejected(
    change: dict[str, Any], reason: str, saved: tuple[Calibration, Path]
) -> None:
    calibration, path = saved
    (question,) = calibration.questions
    if not change.keys() <= vars(calibration).keys():
        change = {"questions": (replace(question, **change),)}
    replace(calibration, **change).save(path)
    with pytest.raises(InvalidArgumentError, match=reason):
        Calibration.load(path)


def test_a_failed_save_keeps_the_existing_file(
    saved: tuple[Calibration, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, path = saved
    before = sorted(path.parent.iterdir())
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        replace(calibration, prompt="other").save(path)
    assert Calibration.load(path) == calibration
    assert sorted(path.parent.iterdir()) == before


def test_a_head_that_is_about_as_good_as_the_best_method_is_selected() -> None:
    draw = np.random.default_rng(0)
    best, noise = draw.gamma(1, size=60), draw.normal(size=60)
    losses: dict[Any, NDArray[np.float64]] = {
        "none": best + 1,
        "batch": best,
        "head": best + noise - noise.mean() + 0.1,  # within one standard error
        "head+weights": best + 0.2 * noise + 1,  # clearly worse
    }
    costs: dict[Any, float] = {"none": 1.0, "batch": 1.0, "head": 0.2, "head+weights": 0.1}
    assert _simplest(losses, costs) == "head"
    del losses["head"]
    assert _simplest(losses, costs) == "batch"


def test_labels_are_suspicious_relative_to_others_of_the_same_option(
    scripted_model: MakeModel,
) -> None:
    """Examples of the last option always have a low probability, so another label comes first."""
    rows = np.log([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.46, 0.46, 0.08], [0.1, 0.8, 0.1]])
    y = np.array([*range(3)] * 9 + [0])
    z = rows[[*range(3)] * 9 + [3]]
    calibration = calibrate(scripted_model(z), TONE, examples_of(y), method="none")
    listed = calibration.suspicious_labels
    assert listed[0].row == len(y) - 1
    assert {each.given for each in listed[1:]} == {"sad"}
    assert listed[0].probability > listed[1].probability
