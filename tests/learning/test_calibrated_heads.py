"""Calibrations with heads and certified thresholds, with the embedded model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from command import runner

from eliza_ffi import Model
from eliza_ffi.decisions import (
    Calibration,
    Choice,
    MultiLabel,
    Predicate,
    Score,
    calibrate,
    evaluate,
)
from eliza_ffi.decisions.scoring import QuestionScores
from eliza_ffi.decisions.wire import question_to
from eliza_ffi.errors import InvalidArgumentError, NotSupportedError

NAMES = {
    "animal": ["cat", "dog", "horse", "cow", "bird", "fish", "sheep", "mouse"],
    "tool": ["hammer", "saw", "drill", "nail", "screw", "ladder", "brush", "rope"],
}
FRAMES = ["I saw a {}.", "The {} is old.", "She likes this {} a lot.", "Where is my {}?", "A {}!"]
KIND = Choice("What is it about?", {"animal": "it is alive", "tool": "for work"}, name="kind")
ALIVE = Predicate("It is alive.", name="alive")
SIZE = Score("How large is it?", ["small", "medium", "large"], name="size")


def rows(names: slice) -> list[tuple[str, str]]:
    pairs = [(name, kind) for kind in NAMES for name in NAMES[kind][names]]
    return [(frame.format(name), kind) for frame in FRAMES for name, kind in pairs]


ROUNDING = 0.03
"""How much a probability may change if other requests share the forward pass: the embedded model's
weights have few bits."""

SEEN, UNSEEN = rows(slice(6)), rows(slice(6, None))

TOPICS = MultiLabel("What is it about?", ["animal", "tool"], name="topics")
TOPIC_ROWS = [(text, [kind]) for text, kind in SEEN]


@pytest.fixture(scope="module")
def fitted(tiny_model: Model) -> Calibration:
    return calibrate(tiny_model, KIND, SEEN, method="head", risk=0.3)


def test_auto_selects_a_head_and_reports_all_methods(tiny_model: Model) -> None:
    (question,) = calibrate(tiny_model, KIND, SEEN, method="auto").questions
    assert question.method.startswith("head")
    assert question.n_examples == len(SEEN)
    assert question.nll["head"] < question.nll["temperature"] < question.nll["none"]
    assert not any("unconditional" in method for method in question.nll)


def test_a_head_alone_scores_no_options(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = tiny_model.session.binding
    calls: list[str] = []
    for name in ("score_endings", "rank"):
        monkeypatch.setattr(binding, name, lambda *_, name=name, **__: calls.append(name))
    calibration = calibrate(tiny_model, KIND, SEEN, method="head")
    decision = tiny_model.decide(UNSEEN[0][0], KIND, calibration=calibration)
    assert calls == []
    assert decision.usage.forward_passes == 1
    again = tiny_model.decide(UNSEEN[0][0], KIND, calibration=calibration)
    assert again.usage.cached_tokens == again.usage.input_tokens - 1


def test_all_ways_to_decide_give_the_same_probabilities(
    tiny_model: Model, fitted: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "kind.json"
    fitted.save(path)
    inputs = [text for text, _ in UNSEEN]
    alone = [tiny_model.decide(each, KIND, calibration=fitted)["kind"] for each in inputs]
    together = tiny_model.decide_many(inputs, KIND, calibration=path)
    for one, many in zip(alone, together, strict=True):
        assert one.distribution == pytest.approx(many["kind"].distribution, abs=ROUNDING)
    report = evaluate(tiny_model, KIND, UNSEEN, calibration=path)
    (kind,) = report.questions
    assert kind.probabilities == pytest.approx([each.probability for each in alone], abs=ROUNDING)
    (question,) = fitted.questions
    assert question.threshold is not None and question.threshold.threshold is not None
    assert kind.certified is not None and kind.sets is not None
    certified = kind.probabilities >= question.threshold.threshold
    assert kind.certified.coverage == pytest.approx(certified.mean())
    assert kind.certified.accuracy == (kind.right[certified].mean() if certified.any() else None)
    assert 0 <= kind.sets.coverage <= 1 and 0 <= kind.sets.size <= 2
    assert "of the answers are certified (with a probability of at least" in report.text()
    assert report.overall.flips is None  # a head sees no order of the options


def test_questions_with_and_without_heads_are_answered_together(tiny_model: Model) -> None:
    alive = Predicate("It is alive.")

    def answers(kind: str, i: int) -> dict[str, Any]:
        few = {"1": kind == "animal"} if i < 12 else {}
        sizes = {"size": ["small", "large"][i % 2]} if i < 20 else {}  # no example is "medium"
        return {"0": kind == "animal", **few, **sizes}

    examples = [(text, answers(kind, i)) for i, (text, kind) in enumerate(SEEN)]
    asked = [alive, alive, SIZE]
    both = calibrate(tiny_model, asked, examples)
    assert [each.head is not None for each in both.questions] == [True, False, False]
    decision = tiny_model.decide(UNSEEN[0][0], asked, calibration=both)
    p, other, size = decision.answers
    assert sum(size.distribution) == pytest.approx(1)
    assert abs(p.probability - other.probability) > ROUNDING
    turned = replace(both, questions=both.questions[::-1])
    _, *found = tiny_model.decide(UNSEEN[0][0], asked[::-1], calibration=turned).answers
    expected = [other.probability, p.probability]
    assert [each.probability for each in found] == pytest.approx(expected, abs=ROUNDING)


def test_tokens_that_prompts_of_heads_have_in_common_count_once(tiny_model: Model) -> None:
    order: Any = {"prompt_order": "input-first"}
    heads = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", **order)
    text = "The horse likes the ladder. " * 20
    scored = tiny_model.decide(text, TOPICS, **order).usage
    usage = tiny_model.decide(text, TOPICS, calibration=heads).usage
    assert usage.input_tokens == scored.input_tokens
    assert 0.7 * usage.input_tokens < usage.cached_tokens < usage.input_tokens


def test_a_head_and_the_scores_of_the_options_can_be_combined(
    tiny_model: Model, tmp_path: Path
) -> None:
    calibration = calibrate(tiny_model, KIND, SEEN, method="head+batch+temperature", orders=2)
    (question,) = calibration.questions
    calibration.save(tmp_path / "c.json")
    assert question.head is not None and question.baseline is not None
    alone = replace(question, method="head", baseline=None, temperature=1.0)
    scored = replace(question, method="batch", head=None, temperature=1.0)
    for text, _ in UNSEEN[:6]:
        p = tiny_model.decide(text, KIND, calibration=tmp_path / "c.json")["kind"].distribution
        of_head, of_scores = (
            tiny_model.decide(text, KIND, calibration=replace(calibration, questions=(each,)))
            for each in (alone, scored)
        )
        product = np.array(of_head["kind"].distribution) * np.sqrt(of_scores["kind"].distribution)
        expected = product ** (1 / question.temperature)
        assert p == pytest.approx(expected / expected.sum(), abs=ROUNDING)
    report = evaluate(tiny_model, KIND, UNSEEN, calibration=calibration)
    assert report.questions[0].flips is not None


def test_each_label_has_a_head(tiny_model: Model) -> None:
    calibration = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", rule="full")
    assert [each.method for each in calibration.questions] == ["head", "head"]
    assert not calibration.needs_whole_rows
    assert calibrate(tiny_model, KIND, SEEN, method="temperature", rule="full").needs_whole_rows
    found = tiny_model.decide_many([text for text, _ in SEEN], TOPICS, calibration=calibration)
    right = [each["topics"].value == (kind,) for each, (_, kind) in zip(found, SEEN, strict=True)]
    assert np.mean(right) > 0.9
    assert found[0]["topics"].certified is None
    with_risk = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", risk=0.001)
    decision = tiny_model.decide("A cow!", TOPICS, calibration=with_risk, abstain="risk")
    (answer,) = decision.to_dict()["answers"]
    assert (answer["labels"], answer["abstained"], answer["certified"]) == ([], True, False)


def test_half_of_the_examples_certifies_answers(tiny_model: Model, fitted: Calibration) -> None:
    (question,) = fitted.questions
    assert question.n_examples == len(SEEN) // 2
    threshold, sets = question.threshold, question.sets
    assert threshold is not None and threshold.threshold is not None and sets is not None
    assert threshold.n == sets.n == len(SEEN) - len(SEEN) // 2
    assert (threshold.risk, sets.alpha) == (0.3, 0.3)
    for text, _ in UNSEEN:
        answer = tiny_model.decide(text, KIND, calibration=fitted)["kind"]
        assert answer.certified == (answer.probability >= threshold.threshold)
        p = dict(answer.options)
        assert answer.set == tuple(v for v in p if p[v] >= sets.threshold)
        careful = tiny_model.decide(text, KIND, calibration=fitted, abstain="risk")["kind"]
        assert careful.abstained == (not answer.certified)
    for hidden, got in ((None, "none"), (np.zeros((1, 2), np.float32), r"shape \[1, 2\]")):
        with pytest.raises(InvalidArgumentError, match=rf"shape \[4, 128\], got {got}"):
            question.apply(QuestionScores((), hidden=hidden), "constrained")


def test_copies_of_an_input_certify_nothing_and_improve_no_loss(tiny_model: Model) -> None:
    """The answers are random, so a head can only know the copies of what it was fitted on."""
    kinds = np.random.default_rng(3).choice(["animal", "tool"], len(SEEN)).tolist()
    examples = [(text, kind) for (text, _), kind in zip(SEEN, kinds, strict=True)]
    (question,) = calibrate(tiny_model, KIND, examples * 3, method="head", risk=0.3).questions
    assert question.n_examples == 3 * (len(SEEN) // 2)
    assert question.threshold is not None and question.threshold.n == len(SEEN) // 2
    assert question.threshold.threshold is None
    assert question.nll["head"] > 0.6  # a coin has 0.69


def test_an_input_with_an_image_is_skipped(tiny_model: Model) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    skipped: list[int] = []
    calibrate(tiny_model, KIND, [*SEEN, (image, "tool")], on_skip=lambda i, _: skipped.append(i))
    assert skipped == [len(SEEN)]


def test_without_a_certified_threshold_every_answer_abstains(tiny_model: Model) -> None:
    calibration = calibrate(tiny_model, KIND, SEEN, risk=0.01)  # 30 rows cannot certify 1 %
    (question,) = calibration.questions
    assert question.threshold is not None and question.threshold.threshold is None
    assert str(question.threshold).startswith("No threshold was found")
    answer = tiny_model.decide("A cow!", KIND, calibration=calibration, abstain="risk")["kind"]
    assert answer.abstained and answer.certified is False


def test_useless_labels_give_their_frequencies(tiny_model: Model) -> None:
    kinds = ["animal"] * 45 + ["tool"] * 15
    shuffled = np.random.default_rng(3).permutation(60)
    examples = [(SEEN[i][0], kinds[place]) for place, i in enumerate(shuffled.tolist())]
    (question,) = calibrate(tiny_model, KIND, examples, method="auto").questions
    best = min(question.nll.values())
    assert question.nll[question.method] <= question.nll["frequencies"]
    assert question.nll["frequencies"] == pytest.approx(best, abs=0.05)
    constant = calibrate(tiny_model, KIND, examples, method="frequencies")
    answer = tiny_model.decide("Anything.", KIND, calibration=constant)["kind"]
    assert dict(answer.options)["animal"] == pytest.approx(46 / 62)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"examples": SEEN[:6], "method": "head"}, "an example of each option .* none of 'tool'"),
        ({"examples": SEEN[:15], "method": "head", "risk": 0.1}, "at least 20 .* 'kind', half of"),
        *(({"risk": risk}, "risk must be") for risk in (0, 1, "x")),
        ({"confidence": 1}, "confidence must be"),
        ({"max_flips": 1.0}, "max_flips must be above 0 and below 1"),
    ],
)
def test_wrong_requests_are_named(tiny_model: Model, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        calibrate(tiny_model, KIND, **{"examples": SEEN, **settings})
    with pytest.raises(InvalidArgumentError, match="a calibration with a certified threshold"):
        tiny_model.decide("A cow!", KIND, abstain="risk")
    with pytest.raises(InvalidArgumentError, match="abstain must be"):
        tiny_model.decide("A cow!", KIND, abstain="maybe")


def test_auto_tries_no_head_without_hidden_states(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsupported = Mock(side_effect=NotSupportedError("no hidden states"))
    monkeypatch.setattr(Model, "hidden_states", unsupported)
    (question,) = calibrate(tiny_model, KIND, SEEN, method="auto").questions
    assert "head" not in question.nll


def test_only_labelled_rows_certify(tiny_model: Model) -> None:
    unlabelled = [(text, {}) for text, _ in UNSEEN]
    labelled = [(text, {"kind": kind}) for text, kind in SEEN]
    calibration = calibrate(tiny_model, KIND, [*labelled, *unlabelled], method="batch", risk=0.4)
    (question,) = calibration.questions
    assert question.threshold is not None
    assert 0 < question.threshold.n < (len(SEEN) + len(UNSEEN)) // 2
    with pytest.raises(InvalidArgumentError, match="at least 20 examples of 'alive'"):
        calibrate(tiny_model, [KIND, ALIVE], labelled, method="none", risk=0.2)


def test_evaluate_reports_the_sets_of_scores_that_decide_returns(tiny_model: Model) -> None:
    size = Score("How large is it?", ["no", "maybe", "yes"], "size")
    examples = [(text, {"size": "yes"}) for text, _ in SEEN]
    calibration = calibrate(tiny_model, size, examples, method="none", risk=0.3)
    report = evaluate(tiny_model, size, examples, calibration=calibration).questions[0].sets
    decisions = tiny_model.decide_many([text for text, _ in SEEN], size, calibration=calibration)
    sizes = [len(decision["size"].set) for decision in decisions]
    assert report is not None and report.size == pytest.approx(np.mean(sizes), abs=0.1)
    assert 3 in sizes  # "maybe" is improbable, but lies between two others


def test_the_command_line_shows_what_is_certified(
    fitted: Calibration,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    fitted.save("kind.json")
    Path("questions.json").write_text(json.dumps([question_to(KIND)]))
    Path("rows.csv").write_text("text\nA cow!\nA saw!\n")
    run = runner(capsys, "--questions", "questions.json", "--threads", "1")
    assert "certified" in run("decide", "--input", "A cow!", "--calibration", "kind.json").out
    for option in ("--calibration", "--prior"):
        out = f"{option[2:]}.csv"
        run("decide", "rows.csv", "--column", "text", option, "kind.json", "--output", out)
        assert "kind_certified,kind_set" in Path(out).read_text().splitlines()[0]
