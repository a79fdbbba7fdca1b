"""Thresholds of cascades: the targets that they certify, with sources whose error is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.decisions.examples import UNLABELLED
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Cascade, CascadeCalibration
from eliza_ffi.evidence.cascade import CascadePlan, Reading
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.learning.cascades import Goal, Stages, Walk
from eliza_ffi.tables import decide_table

KIND = Choice("What is it about?", ["animal", "tool", "food"], "kind")
SHARES = np.array([0.6, 0.3, 0.1])
N_SPLITS = 200


class Population:
    """Rows with their right options, and the log-probabilities of a cheap and a dear source."""

    def __init__(self, rng: np.random.Generator, n: int, n_copies: int = 1) -> None:
        self.targets = np.repeat(rng.choice(3, size=n, p=SHARES), n_copies)
        self.groups = np.repeat(np.arange(n), n_copies)
        right = 3.0 * np.eye(3)[self.targets[::n_copies]]
        noise = rng.normal(size=(2, n, 3)) * np.array([1.8, 1.0])[:, None, None]
        # The cheap source is too sure of itself.
        logs = log_softmax(np.array([1.6, 1.0])[:, None, None] * (right + noise))
        self.logs = np.repeat(logs, n_copies, axis=1)

    def stages(self, rows: Any, is_last_asked: bool = True) -> Stages:
        read: Any = [[Reading((each,)) for each in s[rows]] for s in self.logs]
        if not is_last_asked:
            read[-1] = [None] * len(rows)
        return Stages(KIND, read, 0, self.targets[rows], self.groups[rows], [False, False])


class Asked:
    """Answers of the dear source to rows, each text of which is asked once."""

    def __init__(self, everybody: Population, rows: Any) -> None:
        self._everybody, self._rows, self.texts = everybody, rows, set[int]()

    def __call__(self, places: list[int]) -> list[Reading | None]:
        self.texts |= {int(self._everybody.groups[self._rows[each]]) for each in places}
        return [Reading((self._everybody.logs[1, self._rows[each]],)) for each in places]


def kept(walked: Walk, threshold: float, abstains: bool, at: float) -> bool:
    """Return whether a target is kept in a population."""
    counted, misses, _ = walked.counts(threshold, abstains)
    return bool(misses.sum() <= (1 - at) * counted.sum())


@pytest.mark.slow
@pytest.mark.parametrize("is_adaptive", [False, True])
@pytest.mark.parametrize("n_copies", [1, 4])
@pytest.mark.parametrize(
    ("target", "at", "option"),
    [
        ("agreement", 0.95, None),
        ("accuracy", 0.9, None),
        ("accuracy", 0.97, None),  # with rows for review
        ("precision", 0.75, 2),
        ("recall", 0.8, 2),
    ],
)
def test_a_certified_target_fails_in_at_most_a_tenth_of_the_splits(
    target: Any, at: float, option: int | None, n_copies: int, is_adaptive: bool
) -> None:
    """A tenth of the rows has the option 2."""
    rng = np.random.default_rng(7)
    everybody = Population(rng, 6000 // n_copies, n_copies)
    whole = everybody.stages(np.arange(6000))
    n_failed, n_found, early, goal = 0, 0, [], Goal(target, at, option)
    for _ in range(N_SPLITS):
        rows = rng.integers(6000, size=500)
        ask = Asked(everybody, rows) if is_adaptive else None
        try:
            found = everybody.stages(rows, not is_adaptive).fit("kind", goal, ask)
        except InvalidArgumentError:
            continue
        p = whole.probabilities(found.weights, found.constants)
        walked = Walk(p, everybody.targets, goal, [])
        n_failed += not kept(walked, found.threshold, found.abstains, at)
        n_found += 1
        early.append(found.early)
    assert n_failed <= 0.1 * N_SPLITS
    # Otherwise nothing was tested. Several looks need more rows for the same certificate.
    assert n_found > (0.05 if is_adaptive else 0.3) * N_SPLITS
    assert np.mean(early) > 0.15


def test_adaptive_sampling_saves_answers_of_the_last_source() -> None:
    """It ends almost as many rows early as if the last source had answered all of them."""
    everybody = Population(np.random.default_rng(2), 8000)
    everybody.targets[:] = UNLABELLED
    every, goal = np.arange(8000), Goal("agreement", 0.95)
    n_asked, early = [], []
    for seed in range(10):
        rows = np.random.default_rng(seed).choice(every, 3000, replace=False)
        whole = everybody.stages(rows).fit("kind", goal)
        ask = Asked(everybody, rows)
        found = everybody.stages(rows, False).fit("kind", goal, ask)
        n_asked.append(len(ask.texts))
        early.append((whole.early, found.early))
    fixed, adaptive = np.mean(early, axis=0)
    assert np.mean(n_asked) < 0.5 * 3000
    assert fixed > adaptive > fixed - 0.05
    few = everybody.stages(np.arange(300), False)
    with pytest.raises(InvalidArgumentError, match="about [0-9,]+ rows for the certificate would"):
        few.fit("kind", Goal("agreement", 0.995), Asked(everybody, np.arange(300)))


def test_a_target_that_nothing_reaches_is_refused_and_too_few_rows_are_counted() -> None:
    rng = np.random.default_rng(3)
    everybody = Population(rng, 4000)

    def fitted(n: int, target: Any, at: float) -> Any:
        return everybody.stages(np.arange(n)).fit("kind", Goal(target, at))

    with pytest.raises(
        InvalidArgumentError, match=r"kind: .*about [0-9,]+ rows .* would do"
    ) as few:
        fitted(60, "agreement", 0.98)
    needed = int(str(few.value).partition("about ")[2].partition(" rows")[0].replace(",", ""))
    assert 60 < needed < 200
    assert fitted(2 * needed, "agreement", 0.98).n >= needed
    always = Population(np.random.default_rng(0), 400)
    always.logs[:] = np.log([0.98, 0.01, 0.01])  # the same answer, whatever the input is
    with pytest.raises(InvalidArgumentError, match="no number of rows would do: .* 5|6[0-9.]+%"):
        always.stages(np.arange(400)).fit("kind", Goal("accuracy", 0.9))


def test_the_walk_counts_what_decisions_are() -> None:
    """The counts of a row match the decision that a plan makes about the row."""
    rng = np.random.default_rng(5)
    everybody = Population(rng, 300)
    goal, whole = Goal("accuracy", 0.95), everybody.stages(np.arange(300))
    found = whole.fit("kind", goal)
    fitted = CascadeCalibration(
        sources=({}, {}), questions=(found,), target="accuracy", at=0.95, confidence=0.9
    )
    plan = CascadePlan(Cascade([animals, person]), [KIND], fitted)
    p = whole.probabilities(found.weights, found.constants)
    walked = Walk(p, everybody.targets, goal, [])
    counted, misses, ends = walked.counts(found.threshold, found.abstains)
    for i, (cheap, dear) in enumerate(everybody.logs.transpose(1, 0, 2)):
        readings: list[Any] = [(cheap,)]
        if plan.is_open(readings):
            readings.append((dear,))
        decision = plan.decision(readings)
        answer = decision["kind"]
        assert decision.stage == ends[i] + 1
        assert answer.abstained != counted[i]
        is_wrong = KIND.values.index(answer.choice) != everybody.targets[i]
        assert misses[i] == (is_wrong and not answer.abstained)
    assert 0 < misses.sum() < counted.sum() and 0 < ends.sum() < 300


# ---- With functions as sources --------------------------------------------------------------


def animals(inputs: list[Any], questions: Any) -> list[str | None]:
    return ["animal" if "cat" in each else None for each in inputs]


def person(inputs: list[Any], questions: Any) -> list[str | None]:
    return [None if "?" in each else "animal" if "cat" in each else "tool" for each in inputs]


def test_the_next_source_is_asked_only_about_open_inputs() -> None:
    asked: list[list[Any]] = []

    def last(inputs: list[Any], questions: Any) -> list[str | None]:
        asked.append(inputs)
        return person(inputs, questions)

    cascade = Cascade([animals, last])
    found = cascade.decide_many(["a cat", "a saw", "what?"], KIND)
    assert asked == [["a saw", "what?"]]
    assert [each["kind"].value for each in found] == ["animal", "tool", None]
    assert [each.stage for each in found] == [1, 2, 2]
    assert [each["kind"].abstained for each in found] == [False, False, True]  # needs review
    assert cascade.decide("a cat", KIND).to_dict()["stage"] == 1


def test_a_cascade_is_evaluated_by_source() -> None:
    rows = [("a cat", "animal"), ("a saw", "tool"), ("some bread", "food")]
    report = evaluate(Cascade([animals, person]), KIND, rows)
    assert report.questions[0].accuracy == pytest.approx(2 / 3)
    assert report.rows == {"animals": 1, "person": 2, "review": 0}
    shown = report.text()
    assert "animals        3      1" in shown and "person         2      2" in shown
    assert report.to_json()["rows"] == report.rows and report.certificate is None
    again = evaluate(Cascade([person, person]), KIND, rows)
    assert [*again.rows] == ["person (1)", "person (2)", "review"]


def test_the_cpu_time_of_each_source_is_its_own(tmp_path: Path) -> None:
    def slow(inputs: list[Any], questions: Any) -> list[str]:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        return ["tool"] * len(inputs)

    report = evaluate(Cascade([animals, slow]), KIND, [("a cat", "animal"), ("a saw", "tool")])
    assert report.cpu_seconds["slow"] >= 0.05 > report.cpu_seconds["animals"]
    (table := tmp_path / "in.csv").write_text("body\na cat\na saw\n")
    cascade, output = Cascade([animals, slow]), tmp_path / "out.jsonl"
    result = decide_table(cascade, table, "body", KIND, output)
    assert result.cpu_seconds[2] >= 0.05 > result.cpu_seconds[1]
    assert decide_table(cascade, table, "body", KIND, output).cpu_seconds == {}


def test_an_input_that_a_source_cannot_read_is_skipped(tiny_model: Model) -> None:
    rows = [("a cat", "animal"), ("x " * 9000, "tool"), ("a saw", "tool")]
    skipped: list[int] = []
    cascade = Cascade([animals, tiny_model])
    report = evaluate(cascade, KIND, rows, on_skip=lambda index, _: skipped.append(index))
    assert skipped == [1] and report.questions[0].n == 2
    with pytest.raises(InvalidArgumentError, match="example 1: "):
        evaluate(cascade, KIND, rows)


def test_a_calibration_is_saved_and_checked(tmp_path: Path) -> None:
    cascade = Cascade([animals, person])
    inputs = [f"{name} {i}" for name in ("a cat", "a saw") for i in range(100)]
    fitted: Any = calibrate(cascade, KIND, inputs=inputs, target="agreement", at=0.9)
    assert fitted.questions[0].early == 0.5 and fitted.questions[0].n_wrong == 0
    assert "agreement is at least 90.0% with 90% confidence if a row ends at" in str(fitted)
    assert "(0 of 200 rows missed it). 50% of the rows ended before the last" in str(fitted)
    fitted.save(path := tmp_path / "c.json")
    assert CascadeCalibration.load(path) == fitted
    path.write_text(path.read_text().replace('"weights"', '"weight"'))
    with pytest.raises(InvalidArgumentError, match="is not a usable calibration of a cascade: "):
        cascade.decide("a cat", KIND, calibration=path)
    other = Choice("What is it?", ["animal", "tool"], "kind")
    with pytest.raises(InvalidArgumentError, match="for other questions"):
        cascade.decide("a cat", other, calibration=fitted)
    with pytest.raises(InvalidArgumentError, match="for 2 sources, got 1"):
        Cascade([animals]).decide("a cat", KIND, calibration=fitted)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target": "speed"}, "target must be"),
        ({"at": 1.5}, "at must be"),
        ({"target": "precision"}, "the target precision: expected one of .* got None"),
        ({"target": "recall", "option": "plant"}, "one of 'animal', 'tool', 'food', got 'plant'"),
        ({"option": "tool"}, "option needs the target"),
        ({"target": "accuracy", "at": 0.99}, "kind: no threshold .* rows"),
    ],
)
def test_wrong_requests_are_named(settings: dict[str, Any], reason: str) -> None:
    rows = [("a cat", "animal"), ("a saw", "tool")]
    with pytest.raises(InvalidArgumentError, match=reason):
        calibrate(Cascade([animals, person]), KIND, rows, **settings)


def test_wrong_sources_and_wrong_answers_of_functions_are_named() -> None:
    for sources, reason in (
        ([], "one or more sources"),
        (["x"], "each of sources must be a model"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            Cascade(sources)

    def few(inputs: list[Any], questions: Any) -> list[str]:
        return []

    def wrong(inputs: list[Any], questions: Any) -> list[str]:
        return ["plant"] * len(inputs)

    with pytest.raises(InvalidArgumentError, match="the function few: expected 2 answers.* got 0"):
        Cascade([few]).decide_many(["a", "b"], KIND)
    with pytest.raises(InvalidArgumentError, match="the function wrong: example 0, 'kind': expec"):
        Cascade([wrong]).decide("a", KIND)


def test_the_last_source_is_asked_only_about_rows_that_the_certificate_needs() -> None:
    asked: list[str] = []

    def dear(inputs: list[Any], questions: Any) -> list[str | None]:
        asked.extend(inputs)
        return person(inputs, questions)

    inputs = [f"{name} {i % 200}" for i in range(400) for name in ("a cat", "a saw")]
    cascade = Cascade([animals, dear])
    fitted = calibrate(cascade, KIND, inputs=inputs, at=0.9, adaptive=True)
    # Only cats end early. A text that occurs twice is asked once. Some saws show that no saw may.
    assert fitted.n_answers == len(asked) == len({*asked}) < 300
    assert sum("saw" in each for each in asked) < 100
    assert fitted.questions[0].early == pytest.approx(0.5, abs=0.1)
    assert f"The last source has answered {len(asked)} rows" in str(fitted)


@pytest.mark.parametrize(("target", "at"), [("recall", 0.8), ("precision", 0.7)])
def test_one_model_is_a_cascade_with_a_target_for_one_option(target: Any, at: float) -> None:
    """The option is right for a tenth of the rows. At most a tenth of the draws may fail."""
    rng, goal = np.random.default_rng(4), Goal(target, at, 2)
    everybody = Population(rng, 6000)
    everybody.logs = everybody.logs[1:]

    def stages(rows: Any) -> Stages:
        read = [[Reading((each,)) for each in everybody.logs[0, rows]]]
        targets, groups = everybody.targets[rows], everybody.groups[rows]
        return Stages(KIND, read, 0, targets, groups, [False])

    whole, n_found, n_failed = stages(np.arange(6000)), 0, 0
    for _ in range(40):
        try:
            found = stages(rng.integers(6000, size=600)).fit("kind", goal)
        except InvalidArgumentError:
            continue
        p = whole.probabilities(found.weights, found.constants)
        walked = Walk(p, everybody.targets, goal, [])
        n_found += 1
        n_failed += not kept(walked, found.threshold, found.abstains, at)
    assert n_found > 15 and n_failed <= 7


# ---- Distillation ---------------------------------------------------------------------------


def lessons(n: int) -> list[str]:
    texts = ("the dog sleeps", "my horse eats", "the hammer broke", "buy a new drill")
    return [f"{texts[i % 4]}, number {i}" for i in range(n)]


def teacher(inputs: list[Any], questions: Any) -> list[dict[str, Any]]:
    is_animal = ["dog" in each or "horse" in each for each in inputs]
    return [{"kind": "animal" if each else "tool", "big": each} for each in is_animal]


def test_the_last_source_teaches_the_first(tiny_model: Model, tmp_path: Path) -> None:
    questions = [
        Choice("What is it about?", ["tool", "animal"], "kind"),
        Predicate("It lives.", "big"),
    ]
    cascade, inputs = Cascade([tiny_model, teacher]), lessons(160)
    with pytest.raises(InvalidArgumentError, match="kind: no threshold keeps a target of 90.0%"):
        calibrate(cascade, questions, inputs=inputs, at=0.9)
    taught = calibrate(cascade, questions, inputs=inputs, at=0.9, teach=True)
    assert (taught.n_taught, taught.n_answers) == (80, 80)
    assert taught.questions[0].n == 80  # the rows that taught do not certify
    assert min(each.early for each in taught.questions) > 0.9
    taught.save(path := tmp_path / "taught.json")
    assert "80 more of its answers have taught the first source" in str(
        CascadeCalibration.load(path)
    )
    found = cascade.decide_many(["the dog barks", "a sharp drill"], questions, calibration=path)
    assert [each["kind"].value for each in found] == ["animal", "tool"]
    (table := tmp_path / "in.csv").write_text("body\n" + "\n".join(f'"{t}"' for t in inputs[:8]))
    result = decide_table(cascade, table, "body", questions, tmp_path / "o.csv", calibration=path)
    assert result.counts.answers["kind"] == {"animal": 4, "tool": 4}


def test_only_a_model_can_be_taught_and_only_by_another_source(tiny_model: Model) -> None:
    for sources in ([animals, person], [tiny_model]):
        with pytest.raises(InvalidArgumentError, match="teach needs a model as the first source"):
            calibrate(Cascade(sources), KIND, inputs=lessons(40), teach=True)
    for name in ("teach", "adaptive"):
        with pytest.raises(InvalidArgumentError, match=f"{name} needs a Cascade"):
            calibrate(tiny_model, KIND, [("a cat", "animal")], **{name: True})  # type: ignore
