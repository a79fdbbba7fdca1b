"""The two wire formats: reading, writing, and errors about malformed questions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions.answers import (
    ChoiceAnswer,
    Decision,
    DecisionUsage,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
    decisions_answer,
    systemone_answer,
)
from eliza_ffi.decisions.questions import (
    Choice,
    Level,
    MultiLabel,
    Option,
    Predicate,
    Question,
    Score,
)
from eliza_ffi.decisions.wire import as_questions, question_from, question_to
from eliza_ffi.errors import InvalidArgumentError

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip)
names = st.none() | texts
descriptions = st.none() | st.text(max_size=8)


def options(least: int, most: int = 6) -> st.SearchStrategy[list[Option]]:
    return st.lists(
        st.builds(Option, texts | st.booleans(), descriptions),
        min_size=least,
        max_size=most,
        unique_by=lambda option: (type(option.value), option.value),
    )


levels = st.lists(
    st.builds(Level, texts, descriptions),
    min_size=2,
    max_size=10,
    unique_by=lambda level: level.label,
)
choices = st.builds(Choice, texts, options(2), names, st.none() | texts.map("none: {}".format))
questions: st.SearchStrategy[Question] = st.one_of(
    st.builds(Predicate, texts, names, descriptions, descriptions),
    choices,
    st.builds(Score, texts, levels, names),
    st.builds(MultiLabel, texts, options(1), names),
)


@given(questions)
def test_a_question_survives_conversion_to_json_and_back(question: Question) -> None:
    written = question_to(question)
    assert question_from(json.loads(json.dumps(written))) == question
    assert question_from(question) is question
    assert as_questions([written]) == as_questions(iter([question])) == (question,)


def test_a_mapping_names_its_questions() -> None:
    ours = {"type": "noul", "instructions": "Ours?"}
    named = as_questions({"angry": Predicate("Angry?"), "team": ours})
    assert named == (Predicate("Angry?", "angry"), Predicate("Ours?", "team"))
    assert as_questions({"angry": Predicate("Angry?", "other")}) == (Predicate("Angry?", "angry"),)
    assert as_questions({7: Predicate("Angry?")}) == (Predicate("Angry?", "7"),)
    for one in (Predicate("Angry?"), {"type": "predicate", "instructions": "Angry?"}):
        assert as_questions(one) == (Predicate("Angry?"),)


def test_the_format_of_v1_decisions_is_read() -> None:
    parts = [{"type": "input_text", "text": "Angry?"}]
    options = [{"value": "true"}, {"value": True, "description": "yes"}]
    levels = [{"label": "low", "description": "calm"}, {"label": "high"}]
    read = question_from
    angry = {"type": "predicate", "name": "p", "instructions": parts}
    assert read(angry) == Predicate("Angry?", "p")
    which = {"type": "choice", "instructions": "Which?", "choices": options}
    assert read(which) == Choice("Which?", [Option("true"), Option(True, "yes")])
    how = {"type": "score", "instructions": "How?", "levels": levels}
    assert read(how) == Score("How?", [Level("low", "calm"), Level("high")])


def test_the_format_of_v1_systemone_is_read_and_kept_as_source() -> None:
    options = {"a": None, "b": "two", "c": {"min": 3}}
    written = {
        "p": {"type": "noul", "instructions": "Angry?", "criteria": {"true": "shouts"}},
        "q": {"type": "noul", "instructions": {"ask": "Late?"}},
        "c": {"type": "choice", "instructions": "Which?", "criteria": options},
        "s": {"type": "score", "instructions": "How?", "criteria": ["low", {"min": 5}]},
    }
    read = as_questions(written)
    assert read == (
        Predicate("Angry?", "p", if_true="shouts"),
        Predicate('{"ask": "Late?"}', "q"),
        Choice("Which?", [Option("a"), Option("b", "two"), Option("c", '{"min": 3}')], "c"),
        Score("How?", ["low", '{"min": 5}'], "s"),
    )
    for question, source in zip(read, written.values(), strict=True):
        assert question.source == source  # type: ignore[union-attr]
        (renamed,) = as_questions({"other": question})
        assert (renamed.name, renamed.source) == ("other", source)  # type: ignore[union-attr]
        assert question_from(question_to(question)) == question
    ours = as_questions([{"type": "predicate", "instructions": "Late?"}, Score("?", ["a", "b"])])
    assert [each.source for each in ours] == [None, None]  # type: ignore[union-attr]


def test_1_to_400_questions_are_accepted() -> None:
    many = [Predicate(f"{i}?") for i in range(401)]
    assert len(as_questions(many[:400])) == 400
    with pytest.raises(InvalidArgumentError, match="1 to 400 questions .* got 401"):
        as_questions(many)
    labels = MultiLabel("Is it about this?", [f"topic {i}" for i in range(201)])
    with pytest.raises(InvalidArgumentError, match="each label counts as one\\), got 402"):
        as_questions({"a": labels, "b": labels})
    for none in ([], {}, ()):
        with pytest.raises(InvalidArgumentError, match="1 to 400 questions .* got 0"):
            as_questions(none)


@pytest.mark.parametrize("given", ["noul", b"noul", 5, None])
def test_values_that_are_not_questions_are_rejected(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="questions must be a list of questions or a"):
        as_questions(given)


def test_duplicate_question_names_are_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="two questions have the name 'x'"):
        as_questions([Predicate("a", "x"), Predicate("b", "x")])
    with pytest.raises(InvalidArgumentError, match="two questions have the name '1'"):
        as_questions([Predicate("a", "1"), Predicate("b")])


ONE = {"instructions": "Which?"}
WRONG = [
    ({**ONE}, "type must be one of predicate, noul, choice, score, labels, got None"),
    ({**ONE, "type": "bool"}, "type must be .* got 'bool'"),
    ({**ONE, "type": ["noul"]}, "type must be .* got"),
    ({"type": "noul"}, "instructions are missing"),
    ({"type": "noul", "instructions": ""}, "the instructions are empty"),
    ({**ONE, "type": "noul", "criteria": ["a"]}, "criteria of a noul must be an object"),
    ({**ONE, "type": "noul", "criteria": {"maybe": "a"}}, "criteria of a noul .* true and false"),
    ({**ONE, "type": "noul", "levels": []}, "noul has no field 'levels'"),
    ({**ONE, "type": "predicate", "criteria": {}}, "predicate has no field 'criteria'"),
    ({**ONE, "type": "choice"}, "expected either choices or criteria, got neither"),
    ({**ONE, "type": "choice", "choices": [], "criteria": {}}, "or criteria, got both"),
    ({**ONE, "type": "choice", "choices": "ab"}, "choices must be a list of choices, got 'ab'"),
    ({**ONE, "type": "choice", "choices": [{"valu": "a"}]}, "'valu'; did you mean 'value'"),
    ({**ONE, "type": "choice", "choices": [{"value": "a", "x": 1}]}, "are description, value"),
    ({**ONE, "type": "choice", "choices": [{"value": 1}] * 2}, "a string or a bool, got 1"),
    ({**ONE, "type": "score"}, "either levels or criteria"),
    ({**ONE, "type": "score", "levels": {"a": 1, "b": 2}}, "levels of a score must be a list"),
    ({**ONE, "type": "labels"}, "labels must be a list of labels or a mapping"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_errors_name_the_question_and_the_malformed_field(
    wrong: dict[str, Any], message: str
) -> None:
    for called, read in (
        ("the question 'team'", lambda: as_questions({"fine": Predicate("x"), "team": wrong})),
        ("the question 'team'", lambda: question_from({**wrong, "name": "team"})),
        ("the question '1'", lambda: as_questions([Predicate("Fine?"), wrong])),
        ("the question", lambda: question_from(wrong)),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^{called}: (?!the ques).*{message}"):
            read()


def test_errors_about_non_questions_contain_name_or_place() -> None:
    with pytest.raises(InvalidArgumentError, match="^the question 'a' must be a question or a ma"):
        as_questions({"a": "Angry?"})
    with pytest.raises(InvalidArgumentError, match="^the question '1' must be a question or a ma"):
        as_questions([Predicate("Angry?"), "Late?"])
    with pytest.raises(InvalidArgumentError, match="^the question 5: the name .* got 5"):
        question_from({"type": "noul", "instructions": "x", "name": 5})


PREDICATE = PredicateAnswer(name="p", probability=0.75)
CHOICE = ChoiceAnswer(name="c", options=(("a", 0.25), (True, 0.5), ("b", 0.25)))
SCORE = ScoreAnswer(name="s", levels=(("low", 0.25), ("mid", 0.5), ("high", 0.25)))
CONFIDENCE = pytest.approx(0.25)


def test_answers_are_written_in_the_format_of_v1_decisions() -> None:
    assert decisions_answer(PREDICATE) == {"type": "predicate", "name": "p", "probability": 0.75}
    options = [{"value": value, "probability": p} for value, p in CHOICE.options]
    choice = {"type": "choice", "name": "c", "choice": True, "confidence": CONFIDENCE}
    assert decisions_answer(CHOICE) == {**choice, "probabilities": options}
    levels = [
        {"value": i, "label": label, "probability": p} for i, (label, p) in enumerate(SCORE.levels)
    ]
    score = {"type": "score", "name": "s", "score": 1.0, "confidence": CONFIDENCE}
    assert decisions_answer(SCORE) == {**score, "probabilities": levels}
    labels = MultiLabelAnswer(name="l", answers=(("x", PREDICATE), (False, PREDICATE)))
    written = {"type": "labels", "name": "l", "labels": ["x", False]}
    fit = [{"value": value, "probability": 0.75} for value in ("x", False)]
    assert decisions_answer(labels) == {**written, "probabilities": fit}
    assert decisions_answer(PredicateAnswer(probability=0.5))["name"] is None


def test_answers_are_written_in_the_format_of_v1_systemone() -> None:
    assert systemone_answer(PREDICATE) == {"type": "noul", "noul": 0.75}
    p = {"a": 0.25, "true": 0.5, "b": 0.25}
    choice = {"type": "choice", "choice": "true", "confidence": CONFIDENCE, "probabilities": p}
    assert systemone_answer(CHOICE) == choice
    levels, p = {"0": "low", "1": "mid", "2": "high"}, {"0": 0.25, "1": 0.5, "2": 0.25}
    score = {"type": "score", "score": 1.0, "confidence": CONFIDENCE}
    assert systemone_answer(SCORE) == {**score, "legend": levels, "probabilities": p}
    answer = ChoiceAnswer(options=(("true", 0.25), (True, 0.75)))
    assert systemone_answer(answer)["probabilities"] == {"true": 0.25, "true (bool)": 0.75}
    assert systemone_answer(answer)["choice"] == "true (bool)"
    with pytest.raises(InvalidArgumentError, match="does not support labels"):
        systemone_answer(MultiLabelAnswer(answers=(("x", PREDICATE),)))


def test_allowed_probability_and_abstention_are_added_to_answers() -> None:
    answer = PredicateAnswer(name="p", probability=0.5, allowed_probability=0.25, abstained=True)
    extras = {"allowed_probability": 0.25, "abstained": True}
    written = {"type": "predicate", "name": "p", "probability": 0.5}
    assert decisions_answer(answer) == {**written, **extras}
    assert systemone_answer(answer) == {"type": "noul", "noul": 0.5, **extras}


def test_the_json_of_a_decision_is_one_line_with_answers_and_usage() -> None:
    usage = DecisionUsage(input_tokens=10, cached_tokens=4, forward_passes=2, seconds=0.5)
    labels = MultiLabelAnswer(name="équipe\n", answers=(("x", PREDICATE),))
    answers = (PREDICATE, CHOICE, SCORE, labels)
    decision = Decision(answers, usage, calibrated=True)
    written = decision.to_dict()
    assert json.loads(decision.to_json()) == written
    assert "\n" not in decision.to_json() and "équipe" in decision.to_json()
    counts = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}}
    assert written.pop("usage") == {**counts, "forward_passes": 2, "seconds": 0.5}
    assert written == {"answers": [decisions_answer(each) for each in answers], "calibrated": True}
