"""Choices among more options than a prompt lists: the most probable ones are searched."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import InvalidArgumentError, Model, cli
from eliza_ffi.decisions import Choice, Decision, Predicate, as_questions, question_to
from eliza_ffi.decisions.answers import ChoiceAnswer

WORDS = (
    ["red", "blue", "green", "small", "large", "old", "new", "warm", "cold", "soft"],
    ["steel", "paper", "glass", "stone", "silk", "wooden", "golden", "copper"],
    ["chair", "table", "lamp", "shirt", "phone", "bottle", "spoon", "mirror", "clock"],
)
OPTIONS = [" ".join(words) for words in itertools.product(*WORDS)]
ASKED = "Which product is this about?"
INPUT = "I need something to sit on."


@pytest.fixture(scope="module")
def model(exact_model: Model) -> Model:
    return exact_model


def answer_in(decision: Decision) -> ChoiceAnswer:
    (answer,) = decision.answers
    assert isinstance(answer, ChoiceAnswer)
    return answer


def test_the_answer_has_the_most_probable_options_of_all(model: Model) -> None:
    answer = answer_in(model.decide(INPUT, [Choice(ASKED, OPTIONS, top=7)]))
    (prompt,) = model.decision_prompts(INPUT, [Choice(ASKED, OPTIONS)])
    every = model.choose(prompt, OPTIONS, probabilities=True).ranked()
    assert [option for option, _ in answer.options] == [option for option, _ in every[:7]]
    assert answer.distribution == pytest.approx([p for _, p in every[:7]], rel=0.01)
    assert answer.rest == pytest.approx(1 - sum(answer.distribution), abs=1e-6)
    assert answer.choice == every[0][0]
    assert answer.n_options == len(OPTIONS)
    assert answer.confidence == pytest.approx(
        (every[0][1] - 1 / len(OPTIONS)) / (1 - 1 / len(OPTIONS)), rel=0.01
    )


def test_scores_of_all_options_give_the_same_answer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Choice(ASKED, OPTIONS, top=4)
    searched = model.decide(INPUT, [question])
    monkeypatch.setattr(model.binding, "rank", None)  # it takes another way
    scored = model.decide(INPUT, [question], allowed_probability=True)
    for (a, p), (b, q) in zip(answer_in(searched).options, answer_in(scored).options, strict=True):
        assert a == b
        assert p == pytest.approx(q, rel=0.01)
    assert answer_in(scored).rest == pytest.approx(answer_in(searched).rest, abs=0.01)


def test_other_questions_are_answered_as_alone(model: Model) -> None:
    few = Choice("Is it urgent?", ["yes", "no"], "urgent")
    both = model.decide(INPUT, [Choice(ASKED, OPTIONS, "product"), few, Predicate("It sits.")])
    alone = model.decide(INPUT, [few, Predicate("It sits.")])
    assert both["urgent"].probability == pytest.approx(alone["urgent"].probability, rel=0.02)
    assert both["2"].probability == pytest.approx(alone["1"].probability, rel=0.02)


def test_the_prompt_lists_options_only_if_there_are_few_or_if_asked(model: Model) -> None:
    def prompt(question: Choice) -> str:
        return model.decision_prompts(INPUT, [question])[0]

    assert OPTIONS[3] not in prompt(Choice(ASKED, OPTIONS[:300]))
    assert OPTIONS[3] in prompt(Choice(ASKED, OPTIONS[:255]))
    assert OPTIONS[3] not in prompt(Choice(ASKED, OPTIONS[:20], show_options=False))
    assert f"- {OPTIONS[3]}" in prompt(Choice(ASKED, OPTIONS[:300], show_options=True))


@pytest.mark.parametrize("settings", [{"scoring": "full"}, {"orders": 2}])
def test_settings_that_need_all_scores_still_answer(model: Model, settings: dict[str, Any]) -> None:
    answer = answer_in(model.decide(INPUT, [Choice(ASKED, OPTIONS[:300])], **settings))
    assert len(answer.options) == 5
    assert answer.distribution == tuple(sorted(answer.distribution, reverse=True))
    with pytest.raises(InvalidArgumentError, match="pass show_options=True"):
        model.decide(INPUT, [Choice(ASKED, OPTIONS)], answer_style="letters")


def test_questions_and_answers_with_many_options_have_json(model: Model) -> None:
    question = Choice(ASKED, OPTIONS, "product", show_options=False, top=9)
    (read,) = as_questions([question_to(question)])
    assert read == question
    found = model.decide_many([INPUT, "A lamp."], [question], min_probability=0.999)
    assert [answer_in(each).abstained for each in found] == [True, True]
    assert found[0].to_dict()["answers"][0]["n_options"] == len(OPTIONS)


def test_bools_and_none_are_options_too(model: Model) -> None:
    question = Choice(ASKED, [True, "true", *OPTIONS], none="none of these", top=len(OPTIONS) + 3)
    answer = answer_in(model.decide(INPUT, [question]))
    assert set(answer.probabilities) == {True, "true", "none of these", *OPTIONS}
    assert sum(answer.distribution) == pytest.approx(1, abs=1e-6)


def test_a_table_has_a_column_with_the_most_probable_options(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\nI need a chair\nA lamp please\n")
    questions = [question_to(Choice(ASKED, OPTIONS, "product"))]
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    output = tmp_path / "out.jsonl"
    command = ["decide", str(tmp_path / "in.csv"), "--column", "text"]
    command += ["--questions", str(tmp_path / "questions.json")]
    assert cli.main([*command, "--output", str(output), "--top", "6"]) == 0
    for line in output.read_text().splitlines():
        row = json.loads(line)
        assert len(row["product_top"]) == 6
        assert row["product_top"][0] == [row["product"], row["product_probability"]]
