"""The JSON format of payloads, and their errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.choices.token_tree import (
    TokenTreeDescriptor,
    TokenTreeLeaf,
    TokenTreePayload,
    build_token_tree_descriptor,
)
from eliza_ffi.errors import InvalidArgumentError, TokenTrieError

# Few tokens and short leaves make shared prefixes, leaves that begin with others, and duplicates
# frequent.
token_lists = st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple)
leaf_sets = st.lists(token_lists, min_size=1, max_size=12).map(
    lambda lists: [TokenTreeLeaf(f"leaf{i}", tokens) for i, tokens in enumerate(lists)]
)


def leaf(name: str, *tokens: int) -> TokenTreeLeaf:
    return TokenTreeLeaf(name, tokens)


def payload(*leaves: TokenTreeLeaf, path: str = "action") -> TokenTreePayload:
    return TokenTreePayload("m", (TokenTreeDescriptor(path, leaves),))


def test_json_has_the_same_bytes_as_json_stringify() -> None:
    text = payload(leaf("SEND_EMAIL", 1, 2), leaf('Grüße "x"\n', 30)).to_json()
    assert text == (
        '{"modelId":"m","descriptors":[{"path":"action","leaves":['
        '{"name":"SEND_EMAIL","tokens":[1,2]},{"name":"Grüße \\"x\\"\\n","tokens":[30]}]}]}'
    )


@given(leaf_sets, st.text(), st.text())
def test_json_round_trips(leaves: list[TokenTreeLeaf], model_id: str, path: str) -> None:
    written = TokenTreePayload(model_id, (TokenTreeDescriptor(path, tuple(leaves)),))
    read = TokenTreePayload.from_json(written.to_json())
    assert read == written
    assert read.to_json() == written.to_json()


def test_descriptor_leaves_are_sorted_and_duplicates_removed() -> None:
    tokens = {"B": [2], "A": [1], "AB": [1, 2]}
    one = build_token_tree_descriptor("action", ["B", "A", "AB", "A"], tokens.__getitem__)
    other = build_token_tree_descriptor("action", ["AB", "A", "B"], tokens.__getitem__)
    assert [item.name for item in one.leaves] == ["A", "AB", "B"]
    assert TokenTreePayload("m", (one,)).to_json() == TokenTreePayload("m", (other,)).to_json()


def test_names_are_sorted_by_utf16_code_units_as_in_javascript() -> None:
    # U+FF21 is a smaller code point than U+1F600, but larger than its leading surrogate.
    names = ["\uff21", "\U0001f600", "a"]
    descriptor = build_token_tree_descriptor("p", names, lambda name: [1])
    assert [item.name for item in descriptor.leaves] == ["a", "\U0001f600", "\uff21"]


@pytest.mark.parametrize(
    ("names", "tokenize", "message"),
    [
        ([], lambda name: [1], "expected at least one for the descriptor of path 'action', got no"),
        (["A", ""], lambda name: [1], "leaf '': name must be a non-empty string"),
        (["A"], lambda name: [], "leaf 'A': tokens must be a non-empty list"),
        (["A"], lambda name: [1, 2.5], r"leaf 'A': tokens\[1\] must be a whole number, got 2.5"),
        (["A"], lambda name: [True], r"leaf 'A': tokens\[0\] must be a whole number, got True"),
        (["A"], lambda name: [3, -1], r"leaf 'A': tokens\[1\] must be 0 to 2147483647, got -1"),
        (["A"], lambda name: [2**31], r"leaf 'A': tokens\[0\] must be 0 to 2147483647, got 21474"),
    ],
)
def test_errors_name_the_invalid_leaf(names: object, tokenize: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        build_token_tree_descriptor("action", names, tokenize)  # type: ignore[arg-type]


A = {"name": "A", "tokens": [1]}


def descriptors(*leaves: object) -> str:
    return json.dumps({"modelId": "m", "descriptors": [{"path": "p", "leaves": list(leaves)}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the payload is not JSON"),
        ("[]", "the payload must be an object, got \\[\\]"),
        ("{}", "modelId must be a string, got null"),
        ('{"modelId":"m"}', "descriptors must be a list, got null"),
        ('{"modelId":"m","descriptors":[7]}', r"descriptors\[0\] must be an object, got 7"),
        ('{"modelId":"m","descriptors":[{"path":1}]}', r"descriptors\[0\].path must be a string"),
        ('{"modelId":"m","descriptors":[{}]}', r"descriptors\[0\].leaves must be a list"),
        (descriptors("x"), r"descriptors\[0\].leaves\[0\] must be an object"),
        (descriptors({"tokens": [1]}), r"descriptors\[0\].leaves\[0\].name must be a non-empty"),
        (descriptors(A, {"name": "B", "tokens": []}), r"leaves\[1\].tokens must be a non-empty"),
        (descriptors({**A, "tokens": [1, "2"]}), r"leaves\[0\].tokens\[1\] must be a whole number"),
    ],
)
def test_errors_in_a_payload_name_the_position(text: str, message: str) -> None:
    with pytest.raises(TokenTrieError, match=message):
        TokenTreePayload.from_json(text)


def test_select_keeps_one_path_and_lists_all_paths_if_it_is_unknown() -> None:
    action = TokenTreeDescriptor("action", (leaf("A", 1),))
    both = TokenTreePayload("m", (action, TokenTreeDescriptor("x", (leaf("B", 2),))))
    assert [item.name for item in both.select("x").leaves()] == ["B"]
    with pytest.raises(TokenTrieError, match="with path 'y'; its paths are 'action', 'x'"):
        both.select("y")
