"""Calibrations with heads and certified thresholds, with the embedded model."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from command import runner

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.wire import question_to
from eliza_ffi.errors import InvalidArgumentError, NotSupportedError
from eliza_ffi.evidence import Calibration
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.question_plan import QuestionPlan, WantedHidden, score_run
from eliza_ffi.evidence.scoring import QuestionScores
from eliza_ffi.learning import calibrate, evaluate, fitting
from eliza_ffi.learning.thresholds import certify
from eliza_ffi.session.task import Task

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


def test_a_head_alone_scores_no_options(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = tiny_model.session.binding
    calls: list[str] = []
    decision = binding.decision

    def noted(config: Any, tokens: Any, endings: Any = (), **more: Any) -> Any:
        calls.extend("scored" for _ in endings)
        return decision(config, tokens, endings, **more)

    monkeypatch.setattr(binding, "decision", noted)
    monkeypatch.setattr(binding, "rank", lambda *_, **__: calls.append("rank"))
    calibration = calibrate(tiny_model, KIND, SEEN, method="head")
    decision = tiny_model.decide(UNSEEN[0][0], KIND, calibration=calibration)
    assert calls == []
    assert decision.usage.forward_passes == 1


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_head_reads_only_the_input_again(
    tiny_model: Model, pooling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean needs no token after the input. The last token needs only itself again."""
    groups = [(Feature(pooling, 1), Feature(pooling, 3))]
    monkeypatch.setattr(fitting, "candidate_features", lambda n_layers: groups)
    calibration = calibrate(tiny_model, KIND, SEEN, method="head", prompt_order="question-first")
    (question,) = calibration.questions
    n_layers = tiny_model.session.hidden_shape[0]
    text = UNSEEN[0][0]
    whole, first, again = (
        tiny_model.decide(text, KIND, prompt_order="question-first", calibration=each).usage
        for each in (None, calibration, calibration)
    )
    n_input = len(tiny_model.tokenize(text))
    if pooling == "mean":
        assert question.cost < 3 / n_layers
        assert n_input <= again.input_tokens - again.cached_tokens <= n_input + 2
        assert again.input_tokens < whole.input_tokens
    else:
        assert question.cost == pytest.approx(3 / n_layers)
        assert again.cached_tokens == again.input_tokens - 1
        assert again.input_tokens == whole.input_tokens
    assert first.input_tokens == again.input_tokens


@pytest.mark.parametrize("order", ["question-first", "input-first"])
def test_features_are_means_of_hidden_states(tiny_model: Model, order: Any) -> None:
    session, text = tiny_model.session, "The horse likes the ladder."
    how = PromptSettings(order=order)
    features = (Feature("last", 2), Feature("mean", 3), Feature("mean", 1))
    plan = QuestionPlan(session, [KIND], how, hidden=WantedHidden((features,), (False,)))
    request = plan.about(session, text)
    (scores,) = request.scores(Task(session, score_run(session, request.args)).run())
    assert scores.hidden is not None
    tokens = list(request.args.prompts[0].tokens)
    states = tiny_model.hidden_states(tokens, layers=[1, 2, 3], n_rows=len(tokens))
    texts = [session.detokenize([each]) for each in tokens]
    begin = next(i for i in range(len(tokens)) if "".join(texts[i:]).startswith("The horse"))
    while "".join(texts[begin + 1 :]).startswith("The horse"):
        begin += 1
    end = next(i for i in range(begin, len(tokens) + 1) if "ladder." in "".join(texts[begin:i]))
    expected = [states[1, -1], states[2, begin:end].mean(0), states[0, begin:end].mean(0)]
    assert np.allclose(scores.hidden, expected, atol=1e-4)


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
        few = {"1": i % 2 == 0} if i < 12 else {}  # nothing to learn
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


def test_tokens_that_prompts_of_heads_have_in_common_count_once(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = [(Feature("last", 2), Feature("last", 4))]
    monkeypatch.setattr(fitting, "candidate_features", lambda n_layers: last)
    order: Any = {"prompt_order": "input-first"}
    heads = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", **order)
    text = "The horse likes the ladder. " * 20
    scored = tiny_model.decide(text, TOPICS, **order).usage
    usage = tiny_model.decide(text, TOPICS, calibration=heads).usage
    assert usage.input_tokens == scored.input_tokens
    assert 0.7 * usage.input_tokens < usage.cached_tokens < usage.input_tokens


@pytest.mark.parametrize("poolings", [["mean"], ["mean", "last"]])
def test_several_questions_share_one_read_of_the_input(
    tiny_model: Model, poolings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the input first, the mean states are the same for all questions."""
    features = tuple(Feature(each, layer) for layer in (1, 3) for each in poolings)
    more = (*features, Feature("mean", 4))
    session, how = tiny_model.session, PromptSettings(order="input-first")
    calls: list[int] = []
    decision = session.binding.decision

    def counted(config: Any, tokens: Any, *others: Any, **more: Any) -> Any:
        calls.append(len(tokens))
        return decision(config, tokens, *others, **more)

    monkeypatch.setattr(session.binding, "decision", counted)

    def states(*questions: Any) -> list[Any]:
        wanted = WantedHidden((features, more)[-len(questions) :], (False,) * len(questions))
        plan = QuestionPlan(session, questions, how, hidden=wanted)
        request = plan.about(session, "The horse likes the ladder.")
        found = request.scores(Task(session, score_run(session, request.args)).run())
        return [each.hidden for each in found]

    expected = [states(KIND)[0][: len(features)], states(ALIVE)[0]]
    assert len(calls) == 2
    calls.clear()
    found = states(KIND, ALIVE)
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, atol=1e-4)
    n_last = 2 * (len(poolings) - 1)
    assert len(calls) == 1 + n_last  # one for the input, and one for each last token


def test_a_head_and_the_scores_of_the_options_can_be_combined(
    tiny_model: Model, tmp_path: Path
) -> None:
    calibration = calibrate(tiny_model, KIND, SEEN, method="head+weights", orders=2)
    (question,) = calibration.questions
    calibration.save(tmp_path / "c.json")
    assert question.head is not None and question.weights is not None
    (weight,) = question.weights
    assert question.cost == 1.0
    alone = replace(question, method="head", weights=None)
    own = {"prior": "none", "orders": 2, **calibration_settings(calibration)}
    for text, _ in UNSEEN[:6]:
        p = tiny_model.decide(text, KIND, calibration=tmp_path / "c.json")["kind"].distribution
        of_head = tiny_model.decide(
            text, KIND, calibration=replace(calibration, questions=(alone,))
        )["kind"]
        of_scores = tiny_model.decide(text, KIND, **own)["kind"]
        product = np.array(of_head.distribution) * np.array(of_scores.distribution) ** weight
        assert p == pytest.approx(product / product.sum(), abs=ROUNDING)
    report = evaluate(tiny_model, KIND, UNSEEN, calibration=calibration)
    assert report.questions[0].flips is not None


def test_each_label_has_a_head(tiny_model: Model, tmp_path: Path) -> None:
    calibration = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", scoring="full")
    assert [each.method for each in calibration.questions] == ["head", "head"]
    assert not calibration.needs_whole_rows
    assert calibrate(tiny_model, KIND, SEEN, method="temperature", scoring="full").needs_whole_rows
    found = tiny_model.decide_many([text for text, _ in SEEN], TOPICS, calibration=calibration)
    right = [each["topics"].value == (kind,) for each, (_, kind) in zip(found, SEEN, strict=True)]
    assert np.mean(right) > 0.9
    assert found[0]["topics"].certified is None
    with_risk = calibrate(tiny_model, TOPICS, TOPIC_ROWS, method="head", risk=0.001)
    decision = tiny_model.decide("A cow!", TOPICS, calibration=with_risk, abstain="risk")
    (answer,) = decision.to_dict()["answers"]
    assert (answer["labels"], answer["abstained"], answer["certified"]) == (["animal"], True, False)
    assert decision["topics"].value is None
    assert [each.value for _, each in decision["topics"].answers] == [None, None]
    with_risk.save(tmp_path / "topics.json")
    assert Calibration.load(tmp_path / "topics.json").labels == with_risk.labels
    assert [(each.first, each.n) for each in with_risk.labels] == [(0, 2)]


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
        assert answer.prediction_set == tuple(v for v in p if p[v] >= sets.threshold)
        careful = tiny_model.decide(text, KIND, calibration=fitted, abstain="risk")["kind"]
        assert careful.abstained == (not answer.certified)
    assert question.head is not None
    n_features = len(question.head.features)
    for hidden, got in ((None, "none"), (np.zeros((1, 2), np.float32), r"shape \[1, 2\]")):
        with pytest.raises(InvalidArgumentError, match=rf"shape \[{n_features}, 128\], got {got}"):
            question.apply(QuestionScores((), hidden=hidden), "constrained")


def test_copies_of_an_input_certify_nothing_and_improve_no_loss(tiny_model: Model) -> None:
    """The answers are random, so a head can only know the copies of what it was fitted on."""
    kinds = np.random.default_rng(3).choice(["animal", "tool"], len(SEEN)).tolist()
    examples = [(text, kind) for (text, _), kind in zip(SEEN, kinds, strict=True)]
    (question,) = calibrate(tiny_model, KIND, examples * 3, method="head", risk=0.3).questions
    assert question.n_examples == 3 * len(SEEN) // 2
    assert question.threshold is not None and question.threshold.n == 3 * len(SEEN) // 2
    assert question.threshold.threshold is None
    assert question.nll["head"] > 0.6  # a coin has 0.69


def test_labels_that_are_probably_wrong_are_listed_first(tiny_model: Model, tmp_path: Path) -> None:
    other = {"animal": "tool", "tool": "animal"}
    flipped = {3, 28, 50}
    examples = [
        (text, other[kind] if i in flipped else kind) for i, (text, kind) in enumerate(SEEN)
    ]
    calibration = calibrate(tiny_model, KIND, examples, method="head")
    listed = calibration.suspicious_labels
    assert {each.row for each in listed[:3]} == flipped
    assert len(listed) < len(SEEN) / 5
    for each in listed:
        assert (each.input, each.given) == examples[each.row]
        assert each.expected == other[str(each.given)]
        assert each.probability < 0.5
    calibration.save(tmp_path / "c.json")
    loaded = Calibration.load(tmp_path / "c.json")
    assert loaded.digest == calibration.digest and loaded.suspicious_labels == ()


THREE = Choice("What is it about?", ["animal", "tool", "weather"], name="kind")


def test_an_option_without_an_example_keeps_the_probability_of_the_model(
    tiny_model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = [text for text, _ in UNSEEN[:6]]
    for method in ("auto", "head+weights"):
        calibration = calibrate(tiny_model, THREE, SEEN, method=method)
        (question,) = calibration.questions
        assert question.method == "head+weights"
        ((option, factor),) = question.unseen
        assert option == 2 and 0 < factor <= 1
        calibration.save(tmp_path / "c.json")
        for text in inputs:
            own = tiny_model.decide(text, THREE, prior="none", **calibration_settings(calibration))
            found = tiny_model.decide(text, THREE, calibration=tmp_path / "c.json")["kind"]
            rare = factor * dict(own["kind"].options)["weather"]
            expected = rare / (rare + 1 - rare / factor)
            assert dict(found.options)["weather"] == pytest.approx(expected, abs=ROUNDING)
            assert sum(found.distribution) == pytest.approx(1)
    assert caplog.messages == []


def test_a_head_alone_warns_of_options_without_an_example(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    calibrate(tiny_model, THREE, SEEN, method="head")
    (message,) = caplog.messages
    assert "kind: the rows of the fit have no example of 'weather'" in message
    caplog.clear()
    animals = [(text, kind) for text, kind in SEEN if kind == "animal"]
    constant = calibrate(tiny_model, THREE, animals, method="head")
    answer = tiny_model.decide("A saw!", THREE, calibration=constant)["kind"]
    assert answer.choice == "animal" and answer.probability > 0.9
    assert "no example of 'tool', 'weather'" in caplog.messages[0]


def calibration_settings(calibration: Calibration) -> dict[str, Any]:
    settings = calibration.prompt_arguments()
    return {name: settings[name] for name in ("answer_style", "prompt_order", "prompt_format")}


def test_an_input_with_an_image_is_skipped(tiny_model: Model) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    skipped: list[int] = []
    calibrate(tiny_model, KIND, [*SEEN, (image, "tool")], on_skip=lambda i, _: skipped.append(i))
    assert skipped == [len(SEEN)]


def test_without_a_certified_threshold_every_answer_abstains(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    calibration = calibrate(tiny_model, KIND, SEEN, risk=0.01)  # 30 rows cannot certify 1 %
    (question,) = calibration.questions
    assert question.threshold is not None and question.threshold.threshold is None
    assert str(question.threshold).startswith("No threshold was found")
    answer = tiny_model.decide("A cow!", KIND, calibration=calibration, abstain="risk")["kind"]
    assert answer.abstained and answer.certified is False
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        caplog.clear()
        tiny_model.decide_many(["A cow!"], KIND, calibration=calibration, abstain="risk")
    expected = "certified no threshold for 'kind', so that with abstain=\"risk\" all of these"
    assert [expected in each for each in caplog.messages] == [True]


def test_a_table_without_a_certified_answer_is_rejected_before_the_first_row(
    tiny_model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = [(text, {"kind": kind, "alive": kind == "animal"}) for text, kind in SEEN]
    Path("rows.csv").write_text("text\nA cow!\nA saw!\n")
    for name, asked, risk in (("one", [KIND], 0.001), ("two", [KIND, ALIVE], 0.4)):
        fitted = calibrate(tiny_model, asked, examples if name == "two" else SEEN, risk=risk)
        first = replace(fitted.questions[0], threshold=certify([], [], risk=0.4))
        replace(fitted, questions=(first, *fitted.questions[1:])).save(f"{name}.json")
        Path(f"{name}-questions.json").write_text(json.dumps(list(map(question_to, asked))))
        run = runner(capsys, "--questions", f"{name}-questions.json", "--threads", "1")
        table = ("decide", "rows.csv", "--column", "text", "--calibration", f"{name}.json")
        done = run(*table, "--abstain", "risk", "--output", f"{name}.csv", code=int(name == "one"))
        assert "certified no threshold for 'kind', so that" in done.err
        assert Path(f"{name}.csv").exists() == (name == "two")
    cells = Path("two.csv").read_text().splitlines()[1].split(",")
    assert cells[2] == ""


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
        ({"rows": SEEN[:6], "method": "head"}, "at least 10 examples of 'kind', got 6"),
        ({"rows": SEEN[:15], "method": "head", "risk": 0.1}, "at least 20 .* 'kind', half of"),
        *(({"risk": risk}, "risk must be") for risk in (0, 1, "x")),
        ({"confidence": 1}, "confidence must be"),
        ({"target": "agreement"}, 'the target "agreement" needs a Cascade'),
    ],
)
def test_wrong_requests_are_named(tiny_model: Model, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        calibrate(tiny_model, KIND, **{"rows": SEEN, **settings})
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
    sizes = [len(decision["size"].prediction_set) for decision in decisions]
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
    fitted_as = ("--calibration", "kind.json")
    run("decide", "rows.csv", "--column", "text", *fitted_as, "--output", "decided.csv")
    names = Path("decided.csv").read_text().splitlines()[0]
    assert "kind_certified,kind_prediction_set,kind_unfamiliar" in names


@pytest.mark.parametrize("more", [(), (Feature("mean", 1),), (Feature("mean", 4),)])
@pytest.mark.parametrize("order", ["question-first", "input-first"])
def test_a_head_beside_scores_reads_nothing_again(
    tiny_model: Model, more: Any, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The passes that score the options return the states, too."""
    groups = [(Feature("last", 2), Feature("last", 4), *more)]
    monkeypatch.setattr(fitting, "candidate_features", lambda n_layers: groups)
    calibration = calibrate(tiny_model, KIND, SEEN, method="head+weights", prompt_order=order)
    (question,) = calibration.questions
    assert question.weights is not None and any(question.weights)
    text = UNSEEN[0][0]
    alone, both = (
        tiny_model.decide(text, KIND, prompt_order=order, calibration=each).usage
        for each in (None, calibration)
    )
    assert both.input_tokens == alone.input_tokens
    assert both.forward_passes == alone.forward_passes
