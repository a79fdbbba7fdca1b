"""The binary tree payload. The native tests have the payloads that the library rejects."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_trie import TokenTrieNode, build_token_trie

from eliza_ffi.choices.token_tree import (
    TokenTreeDescriptor,
    TokenTreeLeaf,
    TokenTreePayload,
    build_token_tree_descriptor,
)
from eliza_ffi.elizaos import rtkt
from eliza_ffi.elizaos.rtkt import encode_descriptor, encode_rtkt
from eliza_ffi.errors import InvalidArgumentError, TokenTrieError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import STOP_AT_LEAF, StreamConfig
from eliza_ffi.model import Model

LARGEST = 2**31 - 1

# fmt: off
# The leaves [5], [5, 258] and [9] of the path "pä":
#
#     node 0 ── 5 ── node 1 (terminal) ── 258 ── node 2 (terminal)
#           └── 9 ── node 3 (terminal)
SMALL = bytes([
    0x52, 0x54, 0x4B, 0x54,    # magic "RTKT"
    0x01, 0x00, 0x00, 0x00,    # version 1
    0x03, 0x00, 0x00, 0x00,    # path_len 3
    0x70, 0xC3, 0xA4,          # path "pä"
    0x04, 0x00, 0x00, 0x00,    # n_nodes 4
    # node 0, the root
    0xFF, 0xFF, 0xFF, 0xFF,    # token_id -1
    0x00,                      # terminal 0
    0x02, 0x00, 0x00, 0x00,    # n_children 2
    0x01, 0x00, 0x00, 0x00,    # child_index[0] 1
    0x03, 0x00, 0x00, 0x00,    # child_index[1] 3
    # node 1
    0x05, 0x00, 0x00, 0x00,    # token_id 5
    0x01,                      # terminal 1
    0x01, 0x00, 0x00, 0x00,    # n_children 1
    0x02, 0x00, 0x00, 0x00,    # child_index[0] 2
    # node 2
    0x02, 0x01, 0x00, 0x00,    # token_id 258
    0x01,                      # terminal 1
    0x00, 0x00, 0x00, 0x00,    # n_children 0
    # node 3
    0x09, 0x00, 0x00, 0x00,    # token_id 9
    0x01,                      # terminal 1
    0x00, 0x00, 0x00, 0x00,    # n_children 0
])
# fmt: on
# Few different tokens and short leaves give many shared prefixes, nested leaves and duplicates.
tokens = st.one_of(st.integers(0, 4), st.sampled_from([255, 256, LARGEST]))
leaf_lists = st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=12)


def node(token: int, terminal: int, *children: int) -> bytes:
    return struct.pack(f"<iBI{len(children)}I", token, terminal, len(children), *children)


def tree(*nodes: bytes) -> bytes:
    """Return a payload with path ""."""
    return struct.pack("<4sIII", b"RTKT", 1, 0, len(nodes)) + b"".join(nodes)


def test_a_small_tree_is_encoded_as_documented() -> None:
    assert encode_rtkt("pä", [(5,), (5, 258), (9,)]) == SMALL


def test_leaf_order_duplicates_and_sequence_types_do_not_matter() -> None:
    assert encode_rtkt("pä", iter([[9], [5, 258], (9,), [5], (5, 258)])) == SMALL


def test_a_descriptor_is_encoded_without_its_names() -> None:
    leaves = (TokenTreeLeaf("B", (9,)), TokenTreeLeaf("A", (5,)), TokenTreeLeaf("AB", (5, 258)))
    assert encode_descriptor(TokenTreeDescriptor("pä", leaves)) == SMALL


@given(leaf_lists)
def test_nodes_match_the_python_trie_in_pre_order(leaves: list[list[int]]) -> None:
    nodes: list[bytes] = []

    def write(trie: TokenTrieNode, token: int) -> int:
        index = len(nodes)
        nodes.append(b"")
        children = [write(trie.children[below], below) for below in trie.allowed]
        nodes[index] = node(token, trie.is_terminal, *children)
        return index

    write(build_token_trie(TokenTreeLeaf("x", tuple(leaf)) for leaf in leaves), -1)
    assert encode_rtkt("", leaves) == tree(*nodes)


@pytest.mark.parametrize(
    ("path", "leaves", "said"),
    [
        ("action", [], "the tree of path 'action' has no leaves"),
        ("p", [[1], []], r"leaves\[1\]: expected one token or more, got none"),
        ("p", [[1], [2, -1]], r"leaves\[1\]\[1\] must be from 0 to 2147483647, got -1"),
        ("p", [[2**31]], r"leaves\[0\]\[0\] must be from 0 to 2147483647, got 2147483648"),
        ("p", [[1.0]], r"leaves\[0\]\[0\] must be a whole number, got 1.0"),
        ("\ud800", [[1]], r"path: expected .* UTF-8 .* got '\\ud800': .* surrogates not allowed"),
    ],
)
def test_invalid_paths_and_leaves_are_rejected(
    path: str, leaves: list[Sequence[int]], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        encode_rtkt(path, leaves)


def test_the_total_leaf_length_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtkt, "MAX_LEAF_TOKENS", 5)
    assert encode_rtkt("", [(1, 2), (1, 2, 3)])
    with pytest.raises(InvalidArgumentError, match="path '': expected at most 5 .*, got 6"):
        encode_rtkt("", [(1,), (1, 2), (1, 2, 3)])


def test_the_library_reads_encoded_payloads(library: Library) -> None:
    """A span gives the same tokens and scores from JSON and from ``RTKT``."""
    with Model(library=library) as model:
        names = ["REPLY", "SEND_EMAIL", "SEND_MESSAGE", "SEND"]
        descriptor = build_token_tree_descriptor("action", names, model.tokenize)
        payload = TokenTreePayload("", (descriptor,))
        binding, ctx = model.binding, model.session.ctx
        outcomes = []
        for wire in (payload.to_json(), encode_descriptor(descriptor)):
            stream = binding.open(ctx, StreamConfig())
            binding.prefill(stream, model.tokenize("What now? ", add_special=True))
            binding.set_token_trie(stream, wire, STOP_AT_LEAF)
            scores = binding.token_trie_scores(stream)
            tokens: list[int] = []
            done = False
            while not done:
                step = binding.next(stream)
                tokens += step.tokens
                done = step.done
            outcomes.append((tokens, sorted(scores.tolist())))
            binding.close(stream)
    assert outcomes[0] == outcomes[1]


def test_the_library_names_the_byte_at_which_a_tree_is_broken(library: Library) -> None:
    with Model(library=library) as model:
        stream = model.binding.open(model.session.ctx, StreamConfig())
        broken = encode_rtkt("action", [[5, 7], [8]])[:-1]
        with pytest.raises(TokenTrieError, match="malformed at byte"):
            model.binding.set_token_trie(stream, broken, 0)
        model.binding.close(stream)
