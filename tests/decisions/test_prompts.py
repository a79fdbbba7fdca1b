"""The words that a question is put in: to the letter, in every order."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions.asking import MAX_ORDERS, How, orders_of
from eliza_ffi.decisions.prompts import ask, input_text
from eliza_ffi.decisions.questions import Choice, Predicate, Score
from eliza_ffi.errors import InvalidArgumentError

TEAM = Choice("Which team?", {"billing": "money", "support": None}, none="none of these")
ANGER = Score(" How angry is the writer?\n", ["calm", ("annoyed", "complains\n once"), "furious"])


def test_a_predicate_is_answered_with_yes_or_no() -> None:
    asked = ask(Predicate("The writer is angry.", if_true="swears", if_false="thanks us"))
    assert asked.text == (
        "The writer is angry.\nAnswer with one of:\n- yes: swears\n- no: thanks us"
    )


def test_a_choice_lists_its_options_with_their_descriptions() -> None:
    assert ask(TEAM).text == (
        "Which team?\nAnswer with one of:\n- billing: money\n- support\n- none of these"
    )


def test_a_score_lists_its_levels_on_a_line_each() -> None:
    assert ask(ANGER).text == (
        "How angry is the writer?\nAnswer with one of these levels, lowest first:\n"
        "- calm\n- annoyed: complains once\n- furious"
    )


def test_levels_listed_from_the_top_are_said_to_be() -> None:
    assert ask(ANGER, order=(2, 1, 0)).text == (
        "How angry is the writer?\nAnswer with one of these levels, highest first:\n"
        "- furious\n- annoyed: complains once\n- calm"
    )
    assert ask(ANGER, "letters", (2, 1, 0)).text.splitlines()[1] == (
        "Answer with the letter of one of these levels, highest first:"
    )


def test_levels_in_no_order_are_not_said_to_be_in_one() -> None:
    assert ask(ANGER, order=(1, 0, 2)).text.splitlines()[1] == "Answer with one of these levels:"


def test_letters_go_by_the_place_and_not_by_the_option() -> None:
    assert ask(TEAM, "letters").text == (
        "Which team?\nAnswer with the letter of one of:\n"
        "A. billing: money\nB. support\nC. none of these"
    )
    asked = ask(TEAM, "letters", (2, 0, 1))
    assert asked.text.splitlines()[2:] == ["A. none of these", "B. billing: money", "C. support"]
    assert [option.label for option in asked.options] == ["A", "B", "C"]


def test_options_that_are_letters_get_letters_like_others() -> None:
    grades = Choice("Which grade?", ["A", "C", "B"])
    assert ask(grades, "letters").text == (
        "Which grade?\nAnswer with the letter of one of:\nA. A\nB. C\nC. B"
    )


@pytest.mark.parametrize(("n", "last"), [(26, "Z"), (27, "BA"), (255, "JU")])
def test_no_letter_label_begins_another_one(n: int, last: str) -> None:
    asked = ask(Choice("Which?", [f"option {i}" for i in range(n)]), "letters")
    labels = [option.label for option in asked.options]
    assert labels[-1] == last
    assert len(set(labels)) == n
    assert len({len(label) for label in labels}) == 1


def test_a_bool_is_told_from_its_name() -> None:
    def shown(*values: str | bool) -> list[str]:
        return [option.text for option in ask(Choice("Which?", values)).options]

    assert shown(True, False) == ["true", "false"]
    assert shown(True, "true", "no") == ["true (bool)", "true", "no"]


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (1, 2, 3), ()])
def test_what_is_no_order_of_the_options_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="each index from 0 to 2 once"):
        ask(TEAM, order=order)


def test_labels_are_texts_or_letters() -> None:
    with pytest.raises(InvalidArgumentError, match="'digits'"):
        ask(TEAM, "digits")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="'digits'"):
        How("digits")  # type: ignore[arg-type]


# ---- orders ------------------------------------------------------------------------------------


@given(st.integers(2, 12))
def test_over_all_orders_each_option_stands_at_each_place_equally_often(n: int) -> None:
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


def test_a_score_is_asked_upward_and_downward_and_in_no_other_order() -> None:
    assert orders_of(ANGER, MAX_ORDERS) == [(0, 1, 2), (2, 1, 0)]


@pytest.mark.parametrize("orders", [0, -1, 65, 2.5, "2"])
def test_orders_are_1_to_64(orders: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="orders must be a whole number from 1 to 64"):
        How(orders=orders)


# ---- inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("  as it is\n", "  as it is\n"),
        ({"order": 7, "für": [None]}, '{"order": 7, "für": [null]}'),
        ([1, "two"], '[1, "two"]'),
        ([], "[]"),
        ([None], "[null]"),
        ([{"role": "user"}], '[{"role": "user"}]'),
        (
            [
                {"role": "user", "content": "Hi!"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
                {"role": "assistant", "content": None},
                {"role": "user", "content": {"order": 7}},
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"order": 8}]},
            ],
            'user: Hi!\nassistant: Hello.\nassistant: I will not.\nassistant: \nuser: {"order": 7}'
            '\nuser: a\n{"order": 8}',
        ),
        (
            (
                {"type": "function_call", "name": "find", "arguments": '{"q": 1}'},
                {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
                {"type": "custom_tool_call", "name": "run", "input": "ls"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "a file"}],
                },
            ),
            'function call find: {"q": 1}\nfunction call output c1: nothing\n'
            "custom tool call run: ls\ncustom tool call output c2: a file",
        ),
    ],
)
def test_an_input_is_a_text_a_conversation_or_json(given: Any, text: str) -> None:
    assert input_text(given) == text


@pytest.mark.parametrize("kind", ["input_image", "image_url", "input_audio", "input_file"])
def test_what_is_no_text_in_a_conversation_is_refused(kind: str) -> None:
    part = {"type": kind, kind: "data:..."}
    message = {"role": "user", "content": [{"type": "input_text", "text": "this"}, part]}
    for value in ([message], {"messages": [message]}, [part], ({"content": [part]},)):
        with pytest.raises(InvalidArgumentError, match=f"part of type '{kind}': only text is read"):
            input_text(value)


def test_json_that_speaks_of_files_is_an_input() -> None:
    for value in ({"type": "image"}, [{"type": "file", "name": "a"}], {"messages": "input_image"}):
        assert input_text(value) == json.dumps(value)


@pytest.mark.parametrize("given", [b"bytes", {"a": {1, 2}}, float("inf"), object()])
def test_what_is_neither_a_text_nor_json_is_no_input(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="neither a string nor JSON"):
        input_text(given)


def test_no_input_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="input must be a string, a list of messages or JSON, got None"
    ):
        input_text(None)


def test_what_an_assistant_calls_is_part_of_a_conversation() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "pay"}]}
    assert input_text([call]) == 'assistant: [{"name": "pay"}]'


def test_strange_kinds_of_items_are_json() -> None:
    assert input_text([{"type": ["x"]}]) == '[{"type": ["x"]}]'


def test_an_option_of_several_lines_is_one_line_of_the_list() -> None:
    asked = ask(Choice("Which?", ["a\n- c", "b"]))
    assert asked.text.splitlines()[2:] == ["- a - c", "- b"]
    assert asked.options[0].label == "a\n- c"
