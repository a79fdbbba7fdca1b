"""The passages of inputs, and the inputs without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions.passages import MAX_PASSAGES, cuts, sentences
from eliza_ffi.decisions.prompts import input_text

TALK = [
    {"role": "user", "content": "Hi there. My parcel is lost!"},
    {"role": "assistant", "content": "Which one?"},
    {"role": "user", "content": None, "tool_calls": [{"id": "1"}]},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("  It costs 3.5 dollars... Really ", ["It costs 3.5 dollars...", "Really"]),
        ("Mr. J. Smith left. (He was late.) OK", ["Mr. J. Smith left.", "(He was late.)", "OK"]),
        ("He said no. then he left, e.g. home.", ["He said no. then he left, e.g. home."]),
        ("Dear all,\n\n- one\n- two\n", ["Dear all,", "- one", "- two"]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("no full stop", ["no full stop"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_sentences_end_at_stops_and_line_breaks(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in sentences(text)] == expected


@given(st.text("ab.!?\n \u3002"))
def test_sentences_contain_every_character_but_spaces(text: str) -> None:
    kept = "".join(text[start:end] for start, end in sentences(text))
    assert "".join(kept.split()) == "".join(text.split())


def test_a_passage_is_a_sentence_of_a_text() -> None:
    found = cuts("One. Two!\nThree")
    assert [each.text for each in found] == ["One.", "Two!", "Three"]
    assert [each.rest for each in found] == ["Two!\nThree", "One. Three", "One. Two!"]


def test_a_passage_of_a_conversation_is_a_sentence_or_a_whole_message() -> None:
    found = cuts(TALK)
    call = 'user: [{"id": "1"}]'
    assert [each.text for each in found] == [
        *("Hi there.", "My parcel is lost!", "assistant: Which one?", call)
    ]
    assert [each.rest for each in found] == [
        f"user: My parcel is lost!\nassistant: Which one?\n{call}",
        f"user: Hi there.\nassistant: Which one?\n{call}",
        f"user: Hi there. My parcel is lost!\n{call}",
        "user: Hi there. My parcel is lost!\nassistant: Which one?",
    ]


def test_a_passage_of_json_is_a_field_or_a_sentence_of_its_string() -> None:
    given = {"id": 7, "mail": 'Say "hi".\n\nBye. Bye', "tags": ["a", "b"]}
    found = cuts(given)
    texts = ['"id": 7', 'Say \\"hi\\".', "Bye.", "Bye", '"tags": ["a", "b"]']
    assert [each.text for each in found] == texts
    rests = [json.loads(each.rest) for each in found]
    assert rests == [
        {"mail": given["mail"], "tags": ["a", "b"]},
        {**given, "mail": "Bye. Bye"},
        {**given, "mail": 'Say "hi".\n\nBye'},
        {**given, "mail": 'Say "hi".\n\nBye.'},
        {"id": 7, "mail": given["mail"]},
    ]
    assert [each.rest for each in cuts(("x", 1))] == ["[1]", '["x"]']


@pytest.mark.parametrize("given", ["", "one", {"mail": "one"}, {}, [], 7, [TALK[1]]])
def test_an_input_with_one_passage_has_none_to_leave_out(given: Any) -> None:
    assert cuts(given) == []


def test_neighbours_are_joined_beyond_the_limit() -> None:
    text = " ".join(f"Sentence {i}." for i in range(500))
    found = cuts(text)
    assert len(found) == MAX_PASSAGES
    assert " ".join(each.text for each in found) == text
    assert {len(sentences(each.text)) for each in found} == {15, 16}
    assert found[1].rest == f"{found[0].text} {text[found[2].start :]}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("aB.\n\"' \u3002", max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=4),
)


@given(JSON.filter(lambda each: each is not None), st.integers(1, 4))
def test_places_are_in_the_text_that_the_model_reads(given: Any, at_most: int) -> None:
    text = input_text(given)
    for each in cuts(given, at_most):
        assert text[each.start : each.end] == each.text
        assert each.rest != text
