"""Questions: accepted forms, rejected values, and the error messages."""

from __future__ import annotations

import enum
import inspect
import json
import re
from typing import Any, Literal

import pytest
from checkout import ROOT

from eliza_ffi.decisions.answers import answer_of, decisions_answer, systemone_answer
from eliza_ffi.decisions.examples import read_examples
from eliza_ffi.decisions.prompts import ask
from eliza_ffi.decisions.questions import Choice, Level, MultiLabel, Option, Predicate, Score
from eliza_ffi.decisions.wire import question_from, question_to
from eliza_ffi.errors import InvalidArgumentError, NotTextError
from eliza_ffi.tables.columns import answer_parts
from eliza_ffi.tables.labels import right_answer

TEAMS = (Option("billing", "money"), Option("support"))
AB = ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [
        TEAMS,
        iter(TEAMS),
        [("billing", "money"), "support"],
        {"billing": "money", "support": None},
        (name for name in (Option("billing", "money"), "support")),
    ],
)
def test_options_can_be_passed_in_any_form(given: Any) -> None:
    assert Choice("Which team?", given) == Choice("Which team?", TEAMS)
    assert hash(Choice("Which team?", TEAMS)) == hash(Choice("Which team?", list(TEAMS)))
    (described, _) = Choice("Which?", {"a": {"min": [1, None]}, "b": None}).choices
    assert described.description == '{"min": [1, null]}'


def test_levels_and_labels_can_be_passed_in_the_same_forms() -> None:
    levels = (Level("calm"), Level("angry", "shouts"))
    assert Score("How?", ["calm", ("angry", "shouts")]).levels == levels
    assert Score("How?", {"calm": None, "angry": "shouts"}).levels == levels
    assert MultiLabel("About?", {"billing": "money", "support": None}).labels == TEAMS
    assert MultiLabel("About?", ["one"]).labels == (Option("one"),)
    labels = MultiLabel("Is it about this?", {"billing": "money", True: None})
    assert labels.predicates == (
        Predicate("Is it about this?\nbilling: money"),
        Predicate("Is it about this?\ntrue"),
    )


class Reply(enum.Enum):
    YES = "yes, please"
    NO = 0


class Word(str, enum.Enum):
    YES = "yes, please"
    NO = "no"


@pytest.mark.parametrize("kind", [Reply, Word])
def test_options_and_labels_can_be_an_enum(kind: type[enum.Enum]) -> None:
    """The prompt and files have the texts, as in `choose`; answers have the members."""
    question = Choice("Which?", kind, "reply")
    no = "NO" if kind is Reply else "no"
    assert question.values == tuple(kind) and question.texts == ("yes, please", no)
    assert f"- yes, please\n- {no}" in ask(question).text
    written = json.loads(json.dumps(question_to(question)))
    assert written["choices"] == [{"value": "yes, please"}, {"value": no}]
    again = question_from(written)
    assert again == question and hash(again) == hash(question)
    labels = MultiLabel("Is it this?", kind)
    assert labels.predicates[0].instructions == "Is it this?\nyes, please"
    described = Choice("Which?", {kind["NO"]: "a refusal", kind["YES"]: None})
    assert described.options[0] == Option(kind["NO"], "a refusal")
    targets = read_examples(
        [question, labels],
        [("a", {"reply": kind["NO"], "1": [kind["YES"]]}), ("b", {"reply": no, "1": [no]})],
    ).targets
    assert targets.tolist() == [[1, 0, 1], [1, 1, 0]]
    assert right_answer(question, no) is kind["NO"]
    answer: Any = answer_of(question, [0.2, 0.8])
    assert answer.choice is kind["NO"] and answer.probabilities[kind["YES"]] == 0.2
    for written in (decisions_answer(answer), systemone_answer(answer)):
        assert json.loads(json.dumps(written))["choice"] == no
    assert answer_parts(answer)[""] == no
    assert answer_parts(answer)["_probabilities"] == {"yes, please": 0.2, no: 0.8}
    with pytest.raises(InvalidArgumentError, match="'yes, please' is given twice"):
        Choice("Which?", [kind["YES"], "yes, please"])
    with pytest.raises(InvalidArgumentError, match="expected one of"):
        read_examples([question], [("a", Other.YES)])


class Other(enum.Enum):
    YES = "yes, please"
    EMPTY = ""


def test_options_levels_and_labels_can_be_a_literal() -> None:
    question = Choice("Which?", Literal["a", "b", True])
    assert question == Choice("Which?", ["a", "b", True])
    assert Score("How?", Literal["low", "high"]).values == ("low", "high")
    assert MultiLabel("Which?", Literal["a", "b"]) == MultiLabel("Which?", ["a", "b"])
    with pytest.raises(InvalidArgumentError, match="must be a string or a bool, got 1"):
        Choice("Which?", Literal[1, 2])
    with pytest.raises(InvalidArgumentError, match="the option must be a non-empty string"):
        Choice("Which?", Other)
    with pytest.raises(InvalidArgumentError, match="the level must be a string, got a Reply"):
        Score("How?", Reply)


def test_true_and_the_string_true_are_two_options() -> None:
    choice = Choice("Which?", [True, "true", False, "false"])
    assert [option.value for option in choice.options] == [True, "true", False, "false"]
    with pytest.raises(InvalidArgumentError, match="True is given twice"):
        Choice("Which?", [True, "true", True])


def test_none_adds_an_option_whose_value_is_its_text() -> None:
    choice = Choice("Which?", ["a", "b"], none="neither")
    assert choice.options == (Option("a"), Option("b"), Option("neither"))
    assert choice.choices == (Option("a"), Option("b"))
    with pytest.raises(InvalidArgumentError, match="'neither' is given twice"):
        Choice("Which?", ["a", "neither"], none="neither")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("Is it true?", "Is it true?"),
        ([{"type": "input_text", "text": "Is it"}, {"text": "true?"}], "Is it\ntrue?"),
        ([{"text": "Is it true?"}, {"text": ""}], "Is it true?"),
        ({"ask": "true?", "für": 1}, '{"ask": "true?", "für": 1}'),
        (["Is it", "true?"], '["Is it", "true?"]'),
        ([{"text": 1}], '[{"text": 1}]'),
        (7, "7"),
    ],
)
def test_instructions_are_a_string_a_list_of_parts_or_json(given: Any, text: str) -> None:
    assert Predicate(given).instructions == text
    assert Choice(given, ["a", "b"]).instructions == text
    assert Score(given, ["a", "b"]).instructions == text
    assert MultiLabel(given, ["a"]).instructions == text


@pytest.mark.parametrize("kind", ["input_image", "image_url", "input_audio", "input_file"])
def test_media_parts_of_instructions_are_rejected(kind: str) -> None:
    parts = [{"type": "input_text", "text": "Is this it?"}, {"type": kind, kind: "data:..."}]
    with pytest.raises(NotTextError, match=f"'it'.* part of type '{kind}': only text"):
        Predicate(parts, "it")  # type: ignore[arg-type]


def test_the_numbers_of_options_levels_and_labels_are_limited() -> None:
    names = [f"option {i}" for i in range(256)]
    most = [f"option {i}" for i in range(100_000)]
    assert len(Choice("Which?", most).options) == 100_000
    assert len(MultiLabel("Which?", names[:-1]).predicates) == 255
    assert len(Score("How?", names[:10]).levels) == 10
    for refused, message in (
        (lambda: Choice("Which?", most, "q", none="no"), "'q'.*2 to 100000 options, got 100001"),
        (lambda: Choice("Which?", ["one"], "q"), "'q'.*2 to 100000 options, got 1"),
        (lambda: Choice("Which?", ["one"], "q", none="no"), "'q'.*2 to 100000 options, got 1"),
        (lambda: Choice("Which?", []), "2 to 100000 options, got 0"),
        (lambda: MultiLabel("Which?", [*most, "x"], "q"), "1 to 100000 labels, got 100001"),
        (lambda: MultiLabel("Which?", [], "q"), "'q'.*1 to 100000 labels, got 0"),
        (lambda: Score("How?", names[:11], "q"), "'q'.*2 to 10 levels, got 11"),
        (lambda: Score("How?", ["one"], "q"), "'q'.*2 to 10 levels, got 1"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            refused()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Predicate("", "q"), "'q': the instructions are empty"),
        (lambda: Predicate(" \n", "q"), "'q': the instructions are empty"),
        (lambda: Predicate({"x"}), "neither a string nor JSON"),  # type: ignore[arg-type]
        (lambda: Predicate("x", ""), "the name of a question must be a non-empty string, got ''"),
        (lambda: Predicate("x", 3), "the name of a question must be a non-empty string, got 3"),  # type: ignore[arg-type]
        (lambda: Predicate("x", "q", if_true=1), "'q': if_true must be a string or None, got 1"),  # type: ignore[arg-type]
        (lambda: Predicate("x", if_false=[]), "question: if_false must be .* got an empty list"),  # type: ignore[arg-type]
        (lambda: Choice("x", "abc"), "choices must be a list of choices, .*, got 'abc'"),
        (lambda: Choice("x", 5), "choices must be a list of choices, .*, got 5"),  # type: ignore[arg-type]
        (lambda: Choice("x", [1, 2]), "the option must be a string or a bool, got 1"),  # type: ignore[list-item]
        (lambda: Choice("x", ["a", " "]), "the option must be a non-empty string, got ' '"),
        (lambda: Choice("x", ["a", "a"], "q"), "'q': 'a' is given twice"),
        (lambda: Choice("x", AB, "q", none=True), "'q': none must be a string or None, got True"),  # type: ignore[arg-type]
        (lambda: Choice("x", AB, none=" "), "none must be a non-empty string or None, got ' '"),
        (lambda: Choice("x", AB, show_options="all"), "show_options must be True, False or"),
        (lambda: Choice("x", AB, top=0), "top must be a whole number of 1 or more, got 0"),
        (lambda: Option("a", 1), "a description must be a string or None, got 1"),  # type: ignore[arg-type]
        (lambda: Score("x", ["a", True]), "the level must be a string, got True"),  # type: ignore[list-item]
        (lambda: Score("x", ["a", "a"], "q"), "'q': 'a' is given twice"),
        (lambda: Score("x", b"ab"), "levels must be a list of levels, .*, got bytes"),  # type: ignore[arg-type]
        (lambda: MultiLabel("x", ["a", True, "a"]), "'a' is given twice"),
        (lambda: MultiLabel("x", "ab"), "labels must be a list of labels, .*, got 'ab'"),
    ],
)
def test_errors_describe_the_malformed_field(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize("kind", [Predicate, Choice, Score, MultiLabel])
def test_the_page_shows_the_arguments_in_their_order(kind: type) -> None:
    page = (ROOT / "docs" / "reference" / "decisions.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"^\| `{kind.__name__}\(([\w, ]+)\)`", page, flags=re.MULTILINE)
    internal = ("source", "label")  # set by the package
    arguments = [name for name in inspect.signature(kind).parameters if name not in internal]
    assert shown.split(", ") == arguments == [*inspect.signature(kind).parameters][: len(arguments)]
