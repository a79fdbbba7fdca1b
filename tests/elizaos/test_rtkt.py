"""The binary tree payload: encoding, decoding, and rejected input."""

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
from eliza_ffi.elizaos.rtkt import RtktTree, decode_rtkt, encode_descriptor, encode_rtkt
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
# The positions at which some other byte value also gives a valid payload: the path, the lowest byte
# of token 5 (a change of a higher byte makes it larger than its sibling 9), the terminal byte of
# node 1, and the tokens 258 and 9.
FREE_BYTES = {*range(12, 15), 36, 40, *range(49, 53), *range(58, 62)}
SMALL_TREE = RtktTree("pä", ((5,), (5, 258), (9,)))

# Few different tokens and short leaves give many shared prefixes, nested leaves and duplicates.
tokens = st.one_of(st.integers(0, 4), st.sampled_from([255, 256, LARGEST]))
leaf_lists = st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=12)


def node(token: int, terminal: int, *children: int) -> bytes:
    return struct.pack(f"<iBI{len(children)}I", token, terminal, len(children), *children)


def tree(*nodes: bytes, n_nodes: int | None = None) -> bytes:
    """Return a payload with path "". Its first node is at byte 16."""
    count = len(nodes) if n_nodes is None else n_nodes
    return struct.pack("<4sIII", b"RTKT", 1, 0, count) + b"".join(nodes)


def test_a_small_tree_is_encoded_as_documented() -> None:
    assert encode_rtkt("pä", [(5,), (5, 258), (9,)]) == SMALL


def test_the_documented_bytes_are_decoded() -> None:
    assert decode_rtkt(SMALL) == SMALL_TREE


def test_leaf_order_duplicates_and_sequence_types_do_not_matter() -> None:
    assert encode_rtkt("pä", iter([[9], [5, 258], (9,), [5], (5, 258)])) == SMALL


def test_a_descriptor_is_encoded_without_its_names() -> None:
    leaves = (TokenTreeLeaf("B", (9,)), TokenTreeLeaf("A", (5,)), TokenTreeLeaf("AB", (5, 258)))
    assert encode_descriptor(TokenTreeDescriptor("pä", leaves)) == SMALL


@pytest.mark.slow
@given(st.text(), leaf_lists)
def test_decoding_inverts_encoding(path: str, leaves: list[list[int]]) -> None:
    written = encode_rtkt(path, leaves)
    read = decode_rtkt(written)
    assert read == RtktTree(path, tuple(sorted({tuple(leaf) for leaf in leaves})))
    assert encode_rtkt(read.path, read.leaves) == written


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


@pytest.mark.slow
def test_a_chain_of_100_000_tokens_is_encoded_and_decoded() -> None:
    leaves = (tuple(range(50_000)), tuple(range(100_000)))
    assert decode_rtkt(encode_rtkt("deep", leaves)).leaves == leaves


@pytest.mark.slow
def test_a_root_with_100_000_children_is_encoded_and_decoded() -> None:
    leaves = tuple((token,) for token in range(100_000))
    assert decode_rtkt(encode_rtkt("wide", leaves)).leaves == leaves


@pytest.mark.parametrize("size", range(len(SMALL)))
def test_every_truncated_payload_is_rejected(size: int) -> None:
    with pytest.raises(TokenTrieError, match="malformed at byte"):
        decode_rtkt(SMALL[:size])


@pytest.mark.slow
@given(leaf_lists, st.data())
def test_truncations_of_random_payloads_are_rejected(
    leaves: list[list[int]], data: st.DataObject
) -> None:
    written = encode_rtkt("path", leaves)
    with pytest.raises(TokenTrieError, match="malformed at byte"):
        decode_rtkt(written[: data.draw(st.integers(0, len(written) - 1))])


def is_rejected(data: bytes) -> bool:
    """Return whether a payload is rejected; check that an accepted one is canonical."""
    try:
        read = decode_rtkt(data)
    except TokenTrieError:
        return True
    assert encode_rtkt(read.path, read.leaves) == data
    return False


@pytest.mark.parametrize("at", range(len(SMALL)))
def test_a_changed_byte_is_rejected_except_at_known_positions(at: int) -> None:
    others = [value for value in range(256) if value != SMALL[at]]
    rejected = [is_rejected(SMALL[:at] + bytes([v]) + SMALL[at + 1 :]) for v in others]
    assert all(rejected) == (at not in FREE_BYTES)


@pytest.mark.slow
@given(leaf_lists, st.data())
def test_corrupted_payloads_are_rejected_or_canonical(
    leaves: list[list[int]], data: st.DataObject
) -> None:
    corrupted = bytearray(encode_rtkt("p", leaves))
    for _ in range(data.draw(st.integers(1, 3))):
        corrupted[data.draw(st.integers(0, len(corrupted) - 1))] = data.draw(st.integers(0, 255))
    is_rejected(bytes(corrupted))


small_numbers = st.integers(-2, 4)
raw_nodes = st.builds(
    lambda token, terminal, children: node(token, terminal, *children),
    small_numbers,
    st.integers(0, 2),
    st.lists(st.integers(0, 4), max_size=3),
)


@given(st.lists(raw_nodes, max_size=4))
def test_random_nodes_are_rejected_or_canonical(nodes: list[bytes]) -> None:
    is_rejected(tree(node(-1, 0, 1), *nodes))


@pytest.mark.parametrize(
    ("data", "at", "said"),
    [
        (b"", 0, "truncated: magic needs 4 bytes, 0 remain"),
        (b'{"modelId":"m"}', 0, "magic: expected 0x544B5452, got 0x6F6D227B"),
        (b"TKTR" + SMALL[4:], 0, "magic: expected 0x544B5452, got 0x52544B54"),
        (b"RTKT\x01\x00", 4, "truncated: version needs 4 bytes, 2 remain"),
        (b"RTKT" + b"\x02\0\0\0", 4, "version: expected 1, got 2"),
        (SMALL[:8] + b"\xff" * 4, 12, "truncated: path needs 4294967295 bytes, 0 remain"),
        (SMALL[:13] + b"\x28" + SMALL[14:], 14, "path is not UTF-8: invalid start byte"),
        # An encoded surrogate and an overlong NUL: neither is valid UTF-8.
        (SMALL[:12] + b"\xed\xa0\x80" + SMALL[15:], 12, "path is not UTF-8: invalid"),
        (SMALL[:12] + b"\xc0\x80p" + SMALL[15:], 12, "path is not UTF-8: invalid start byte"),
        (tree(), 12, "n_nodes: expected 1 or more, got 0"),
        (
            tree(node(-1, 0, 1), node(7, 1), n_nodes=2**32 - 1),
            12,
            "n_nodes: expected at most 2, for which the remaining 22 bytes have room, "
            "got 4294967295",
        ),
        (tree(node(-1, 0, 1), node(7, 1)) + b"\0", 38, "1 bytes after the last node"),
        (tree(node(-1, 0, 1), node(7, 1), node(8, 1), n_nodes=2), 38, "9 bytes after the last"),
        (
            tree(node(-1, 0, 1), node(7, 1, 2), node(8, 1))[:-5],
            42,
            "truncated: node 2 needs 9 bytes, 4 remain",
        ),
        (
            tree(node(-1, 0, 1), node(7, 1)[:5] + b"\xff" * 4),
            38,
            "truncated: node 1: child_index needs 17179869180 bytes, 0 remain",
        ),
        # The root.
        (tree(node(7, 0, 1), node(7, 1)), 16, "node 0: token_id of the root is 7, not -1"),
        (tree(node(-2, 0, 1), node(7, 1)), 16, "node 0: token_id of the root is -2, not -1"),
        (tree(node(-1, 0)), 20, "node 0 has no children and is not terminal"),
        (tree(node(-1, 1)), 20, "node 0: the root is terminal, so a leaf has no tokens"),
        (tree(node(-1, 1, 1), node(7, 1)), 20, "node 0: the root is terminal"),
        # The other nodes.
        (tree(node(-1, 0, 1), node(-1, 1)), 29, "node 1: token_id is -1, below 0"),
        (tree(node(-1, 0, 1), node(-(2**31), 1)), 29, "node 1: token_id is -2147483648, below"),
        (tree(node(-1, 0, 1), node(7, 0)), 33, "node 1 has no children and is not terminal"),
        (tree(node(-1, 0, 1), node(7, 2)), 33, "node 1: terminal is 2, not 0 or 1"),
        (
            tree(node(-1, 0, 1, 2), node(7, 1), node(5, 1)),
            42,
            "node 2: token_id is 5, but must be greater than 7, its previous sibling's",
        ),
        (
            tree(node(-1, 0, 1, 2), node(7, 1), node(7, 1)),
            42,
            "node 2: token_id is 7, but must be greater than 7, its previous sibling's",
        ),
        # child_index.
        (
            tree(node(-1, 0, 0), node(7, 1)),
            25,
            "node 0: child_index[0] is 0, not greater than the node's own index",
        ),
        (
            tree(node(-1, 0, 1), node(7, 1, 2), node(8, 1, 1)),
            51,
            "node 2: child_index[0] is 1, not greater than the node's own index",
        ),
        (
            tree(node(-1, 0, 1, 2), node(7, 1)),
            29,
            "node 0: child_index[1] is 2, but n_nodes is 2",
        ),
        (
            tree(node(-1, 0, 1, 2), node(7, 1, 2), node(8, 1)),
            42,
            "node 1: child_index[0] is 2, which is already a child of node 0",
        ),
        (
            tree(node(-1, 0, 1, 1), node(7, 1)),
            29,
            "node 0: child_index[1] is 1, which is already a child of node 0",
        ),
        (
            tree(node(-1, 0, 1), node(7, 1), node(8, 1)),
            38,
            "node 2 is unreachable: no earlier node has it as a child",
        ),
        (
            tree(node(-1, 0, 2), node(7, 1), node(8, 1)),
            29,
            "node 1 is unreachable: no earlier node has it as a child",
        ),
        (
            tree(node(-1, 0, 2, 1), node(7, 1), node(8, 1)),
            33,
            "node 1 is out of DFS pre-order: expected node 2",
        ),
        # Breadth-first order: the child of node 1 comes after node 2.
        (
            tree(node(-1, 0, 1, 2), node(5, 0, 3), node(9, 1), node(6, 1)),
            46,
            "node 2 is out of DFS pre-order: expected node 3",
        ),
    ],
)
def test_the_error_for_a_malformed_payload_names_the_byte(data: bytes, at: int, said: str) -> None:
    with pytest.raises(TokenTrieError) as caught:
        decode_rtkt(data)
    assert str(caught.value).startswith(f"the RTKT payload is malformed at byte {at}: {said}")


@pytest.mark.parametrize(
    ("path", "leaves", "said"),
    [
        ("action", [], "the tree of path 'action' has no leaves"),
        ("p", [[1], []], r"leaves\[1\]: expected one token or more, got none"),
        ("p", [[1], [2, -1]], r"leaves\[1\]\[1\] must be from 0 to 2147483647, got -1"),
        ("p", [[2**31]], r"leaves\[0\]\[0\] must be from 0 to 2147483647, got 2147483648"),
        ("p", [[1.0]], r"leaves\[0\]\[0\] must be a whole number, got 1.0"),
        ("p", [[True]], r"leaves\[0\]\[0\] must be a whole number, got True"),
        ("p", ["ab"], r"leaves\[0\] must be a list of tokens, got 'ab'"),
        ("\ud800", [[1]], r"path: expected .* UTF-8 .* got '\\ud800': .* surrogates not allowed"),
    ],
)
def test_invalid_paths_and_leaves_are_rejected(
    path: str, leaves: list[Sequence[int]], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        encode_rtkt(path, leaves)


def test_encoder_and_decoder_limit_the_total_leaf_length(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = [(1,), (1, 2), (1, 2, 3)]
    monkeypatch.setattr(rtkt, "MOST_LEAF_TOKENS", 6)
    written = encode_rtkt("", leaves)
    assert decode_rtkt(written).leaves == tuple(leaves)

    monkeypatch.setattr(rtkt, "MOST_LEAF_TOKENS", 5)
    with pytest.raises(InvalidArgumentError, match="path '': expected at most 5 .*, got 6"):
        encode_rtkt("", leaves)
    with pytest.raises(TokenTrieError, match="byte 55: node 3: .* 6 tokens, more than 5"):
        decode_rtkt(written)


def test_a_small_payload_cannot_expand_to_gigabytes_of_leaves() -> None:
    depth = 100_000
    chain = [node(1, 1, index + 1) for index in range(1, depth)]
    with pytest.raises(TokenTrieError, match="the leaves so far have 16782321 tokens, more than"):
        decode_rtkt(tree(node(-1, 0, 1), *chain, node(1, 1)))


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
