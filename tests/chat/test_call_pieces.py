"""Arguments of tool calls as pieces of JSON."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from real_templates import real_formats, template_names

from eliza_ffi.chat.call_format import CallFormat, Hole, Members, fill_pieces, write_arguments
from eliza_ffi.chat.call_reader import CallPieces

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "count": {"type": "integer"},
        "sure": {"type": "boolean"},
        "note": {"type": "string"},
        "either": {"type": ["number", "string"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "last": {"type": "string"},
    },
}
LONG = {"city": "Rome, the old city", "count": 12, "note": 'line\n"quoted"', "sure": True}


def pieces_of(
    format: CallFormat, arguments: dict[str, Any], seed: int, before: str = ""
) -> list[str]:
    """Return the pieces of a call that is written in random parts."""
    if isinstance(format.arguments, Members) and format.arguments.sort:
        arguments = dict(sorted(arguments.items()))
    after = fill_pieces(
        format.call[format.call.index(Hole.ARGUMENTS) + 1 :],
        {Hole.NAME: "f", Hole.ID: "abcdefgh1", Hole.INDEX: "0"},
    )
    text = before + write_arguments(format, arguments) + after
    reader = CallPieces(format, SCHEMA, before, after)
    draw = random.Random(seed)
    pieces = []
    while text:
        n = draw.randint(1, 4)
        pieces.append(reader.push(text[:n]))
        text = text[n:]
    pieces.append(reader.finish(arguments))
    assert reader.text == "".join(pieces)
    return [piece for piece in pieces if piece]


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "city": st.sampled_from(["", "Rome", "<", "a, b", "</", "x: y", "}", '"', "\\", "é\n"]),
        "count": st.integers(-999, 99999),
        "sure": st.booleans(),
        "note": st.sampled_from(["", "<p", "l'été", "1", "true"]),
        "either": st.sampled_from([1, 2.5, "word"]),
        "list": st.lists(st.integers(0, 99), max_size=3),
        "last": st.sampled_from(["", "end", "[1]"]),
    },
)


def closing(format: CallFormat, key: str) -> str | None:
    """Return the text that a string without quotes cannot contain, because it ends the string."""
    if not isinstance(format.arguments, Members):
        return None
    of_type = format.arguments.of_type
    # A format that can quote strings quotes each string that would otherwise end too early.
    member = of_type.get("quoted", of_type["string"])
    return member.closing(key) if member.value == "raw" else None


@settings(max_examples=15, deadline=None)
@given(VALUES, st.integers(0, 99))
@pytest.mark.parametrize("name", template_names())
def test_the_pieces_of_every_format_are_the_arguments(
    name: str, arguments: dict[str, Any], seed: int
) -> None:
    format = real_formats()[name]
    texts = [(key, each) for key, each in arguments.items() if isinstance(each, str)]
    ends = [(closing(format, key), each) for key, each in texts]
    assume(not any(end is not None and end in each for end, each in ends))
    pieces = pieces_of(format, arguments, seed, before="fixed ")
    assert json.loads("".join(pieces)) == arguments
    with pytest.raises(ValueError, match="delimiter|Expecting|Unterminated"):
        json.loads("".join(pieces)[:-1])
    assert pieces[-1].endswith("}")


@pytest.mark.parametrize("name", template_names())
def test_a_long_string_comes_in_pieces(name: str) -> None:
    format = real_formats()[name]
    pieces = pieces_of(format, LONG, 1)
    texts = ["".join(pieces[: i + 1]) for i in range(len(pieces))]
    begun = next(i for i, text in enumerate(texts) if "Rom" in text)
    ended = next(i for i, text in enumerate(texts) if 'old city"' in text)
    assert ended > begun + 3
