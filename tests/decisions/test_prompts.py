"""The exact text of questions, in every order of the options."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions.prompt_settings import MAX_ORDERS
from eliza_ffi.decisions.prompts import RenderedQuestion, ShownOption, ask, input_text
from eliza_ffi.decisions.questions import Choice, Predicate, Score
from eliza_ffi.errors import InvalidArgumentError, NotTextError
from eliza_ffi.evidence.question_plan import orders_of

TEAM = Choice("Which team?", {"billing": "money", "support": None}, none="none of these")
ANGER = Score(" How angry is the writer?\n", ["calm", ("annoyed", "complains\n once"), "furious"])


ANGRY = Predicate("The writer is angry.", if_true="swears", if_false="thanks us")
GRADES = Choice("Which grade?", ["A", "C", "B"])
MULTILINE = Choice("Which?", ["a\n- c", "b"])

OF = "Answer with one of"
LETTER_OF = "Answer with the letter of one of"
LEVELS = f"{OF} these levels"
BACK = (2, 1, 0)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (ask(ANGRY), f"{OF}:\n- yes: swears\n- no: thanks us"),
        (ask(TEAM), f"{OF}:\n- billing: money\n- support\n- none of these"),
        (ask(TEAM, "letters"), f"{LETTER_OF}:\nA. billing: money\nB. support\nC. none of these"),
        (
            ask(TEAM, "letters", BACK),
            f"{LETTER_OF}:\nA. none of these\nB. support\nC. billing: money",
        ),
        (ask(GRADES, "letters"), f"{LETTER_OF}:\nA. A\nB. C\nC. B"),
        (ask(MULTILINE), f"{OF}:\n- a - c\n- b"),
        (ask(ANGER), f"{LEVELS}, lowest first:\n- calm\n- annoyed: complains once\n- furious"),
        (
            ask(ANGER, order=BACK),
            f"{LEVELS}, highest first:\n- furious\n- annoyed: complains once\n- calm",
        ),
        (ask(ANGER, order=(1, 0, 2)), f"{LEVELS}:\n- annoyed: complains once\n- calm\n- furious"),
        (
            ask(ANGER, "letters", BACK),
            f"{LETTER_OF} these levels, highest first:\n"
            "A. furious\nB. annoyed: complains once\nC. calm",
        ),
    ],
)
def test_the_prompt_lists_the_options_after_the_question(
    asked: RenderedQuestion, text: str
) -> None:
    assert asked.text == f"{asked.question.instructions.strip()}\n{text}"


def test_labels_are_the_texts_of_the_options_or_letters() -> None:
    assert [option.label for option in ask(MULTILINE).options] == ["a\n- c", "b"]
    assert [option.label for option in ask(TEAM, "letters", (2, 0, 1)).options] == ["A", "B", "C"]


@pytest.mark.parametrize(("n", "last"), [(26, "Z"), (27, "BA"), (255, "JU")])
def test_all_letter_labels_have_the_same_length(n: int, last: str) -> None:
    asked = ask(Choice("Which?", [f"option {i}" for i in range(n)]), "letters")
    labels = [option.label for option in asked.options]
    assert labels[-1] == last
    assert len(set(labels)) == n
    assert len({len(label) for label in labels}) == 1


def test_a_bool_differs_from_the_string_with_its_name() -> None:
    def shown(*values: str | bool) -> list[str]:
        return [option.text for option in ask(Choice("Which?", values)).options]

    assert shown(True, False) == ["true", "false"]
    assert shown(True, "true", "no") == ["true (bool)", "true", "no"]


def test_wrong_orders_are_rejected() -> None:
    for order in ((0, 1), (0, 1, 1), (1, 2, 3), ()):
        with pytest.raises(InvalidArgumentError, match="each index from 0 to 2 once"):
            ask(TEAM, order=order)


@given(st.integers(2, 12))
def test_each_option_is_at_each_position_equally_often(n: int) -> None:
    question = Choice("Which?", [f"option {i}" for i in range(n)])
    orders = orders_of(question, MAX_ORDERS)
    assert len(orders) == len(set(orders)) == (2 if n == 2 else 2 * n)
    for place in range(n):
        counts = Counter(order[place] for order in orders)
        assert set(counts) == set(range(n))
        assert len(set(counts.values())) == 1


def test_the_first_orders_are_as_given_and_reversed() -> None:
    question = Choice("Which?", ["a", "b", "c"])
    assert orders_of(question, 1) == [(0, 1, 2)]
    assert orders_of(question, 2) == [(0, 1, 2), (2, 1, 0)]
    assert orders_of(question, 4) == [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)]
    assert orders_of(Predicate("True?"), 9) == [(0, 1), (1, 0)]
    assert orders_of(ANGER, MAX_ORDERS) == [(0, 1, 2), (2, 1, 0)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("  not stripped\n", "  not stripped\n"),
        ({"order": 7, "für": [None]}, '{"order": 7, "für": [null]}'),
        ([1, "two"], '[1, "two"]'),
        ([], "[]"),
        ([None], "[null]"),
        ([{"role": "user"}], '[{"role": "user"}]'),
        ([{"type": ["x"]}], '[{"type": ["x"]}]'),
    ],
)
def test_strings_and_json_become_text(given: Any, text: str) -> None:
    assert input_text(given) == text


def part(text: str, kind: str = "input_text") -> dict[str, str]:
    return {"type": kind, "text": text}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"role": "user", "content": "Hi!"}, "user: Hi!"),
        ({"role": "assistant", "content": [part("Hello.", "output_text")]}, "assistant: Hello."),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}, "user: No."),
        ({"role": "assistant", "content": None}, "assistant: "),
        ({"role": "user", "content": {"order": 7}}, 'user: {"order": 7}'),
        ({"role": "user", "content": [part("a"), {"order": 8}]}, 'user: a\n{"order": 8}'),
        ({"role": "user", "content": None, "tool_calls": [{"n": 1}]}, 'user: [{"n": 1}]'),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "function call f: {}"),
        (
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            "function call output c: x",
        ),
        ({"type": "custom_tool_call", "name": "run", "input": "ls"}, "custom tool call run: ls"),
        (
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [part("a file")]},
            "custom tool call output c2: a file",
        ),
    ],
)
def test_the_items_of_a_conversation_become_lines(item: dict[str, Any], text: str) -> None:
    hello = {"role": "user", "content": "Hello."}
    assert input_text([hello, item]) == f"user: Hello.\n{text}"
    assert input_text((item, hello)) == f"{text}\nuser: Hello."


@pytest.mark.parametrize("kind", ["input_image", "image_url", "input_audio", "input_file"])
def test_media_in_a_conversation_is_rejected(kind: str) -> None:
    part = {"type": kind, kind: "data:..."}
    message = {"role": "user", "content": [{"type": "input_text", "text": "this"}, part]}
    for value in ([message], {"messages": [message]}, [part], ({"content": [part]},)):
        with pytest.raises(NotTextError, match=f"part of type '{kind}': only text"):
            input_text(value)


def test_json_that_mentions_files_is_accepted() -> None:
    for value in ({"type": "image"}, [{"type": "file", "name": "a"}], {"messages": "input_image"}):
        assert input_text(value) == json.dumps(value)


def test_inputs_that_are_not_json_are_rejected() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (b"bytes", {"a": {1, 2}}, float("nan"), float("inf"), object(), endless):
        with pytest.raises(InvalidArgumentError, match="neither a string nor JSON"):
            input_text(value)
    with pytest.raises(InvalidArgumentError, match="input must be a string, a list .* got None"):
        input_text(None)


@pytest.mark.parametrize(
    ("label", "description", "shown"),
    [
        ("Q1_TM", "a bill, an invoice or a refund", ("bill", "an invoice or a refund")),
        ("Q1_TM", "the writer liked it", ("liked", "the writer liked it")),
        ("Q1_TM", "of it: a parcel", ("parcel", "a parcel")),
        ("billing", "a bill, an invoice", ("billing", "a bill, an invoice")),
    ],
)
def test_a_word_of_the_description_takes_the_place_of_a_code(
    label: str, description: str, shown: tuple[str, str]
) -> None:
    option = ShownOption(label, label, description).in_words
    assert (option.label, option.description) == shown
    assert option.text == option.label
