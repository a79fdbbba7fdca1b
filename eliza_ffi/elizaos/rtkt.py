"""Read and write the binary ``RTKT`` payload: the choices of one span as a tree of tokens.

All numbers are little-endian, without padding::

    u32  magic                     0x544B5452, the bytes "RTKT"
    u32  version                   1
    u32  path_len                  in bytes
    u8   path[path_len]            UTF-8, no NUL at the end
    u32  n_nodes                   at least 2: the root and one more
    then n_nodes times, in DFS pre-order: the root first, children by ascending token id
        i32  token_id              -1 for the root, otherwise 0 to 2**31 - 1
        u8   terminal              1 if a choice ends at this node, otherwise 0; 0 for the root
        u32  n_children            0 only if a choice ends at this node
        u32  child_index[n_children]   each greater than the node's own index

Each tree has exactly one encoding. :func:`encode_rtkt` therefore reproduces, byte for byte, every
payload that :func:`decode_rtkt` accepts.

The format does not contain the names of the leaves, their original order, duplicates (leaves with
the same tokens become one leaf) or the model. If you need the names, keep the
:class:`~eliza_ffi.choices.TokenTreeDescriptor` and look up the tokens in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..checks import check_kind, check_several, check_text
from ..choices.token_tree import LARGEST_TOKEN, TokenTreeDescriptor
from ..errors import InvalidArgumentError, TokenTrieError

MAGIC = 0x544B5452
VERSION = 1
ROOT_TOKEN = -1

MOST_LEAF_TOKENS = 2**24
"""Maximum number of tokens in all distinct leaves of a tree together.

A leaf that is a prefix of another leaf adds almost nothing to the payload, but must be written out
when the payload is decoded. Without a limit, a payload of 1 MB could expand to 25 GB of leaves.
"""

_U32 = struct.Struct("<I")
_NODE = struct.Struct("<iBI")
_NO_NODE = -1


@dataclass(frozen=True)
class RtktTree:
    """The contents of an ``RTKT`` payload.

    Attributes
    ----------
    path : str
        The span that the choices belong to: ``"action"``, ``"parameters.status"``, ...
    leaves : tuple of tuple of int
        The tokens of every distinct choice, in DFS order, which is the sort order of the tuples.
    """

    path: str
    leaves: tuple[tuple[int, ...], ...]


def encode_rtkt(path: str, leaves: Iterable[Sequence[int]]) -> bytes:
    """Encode choices as an ``RTKT`` payload.

    Parameters
    ----------
    path
        The span that the choices belong to; may be empty.
    leaves
        The tokens of each choice, in any order. A choice may be a prefix of another. Duplicates are
        removed.

    Raises
    ------
    InvalidArgumentError
        If the path has a lone surrogate, there are no leaves, a leaf has no tokens, a token is not
        an int from 0 to 2**31 - 1, or the distinct leaves have more than 2**24 tokens in total.
    """
    try:
        path_bytes = check_text("path", path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"path: expected a string that UTF-8 can encode, got {path!r}: {error}"
        ) from None
    listed = check_several("leaves", leaves, "a list with the tokens of each choice")
    distinct = sorted({_checked_leaf(i, leaf) for i, leaf in enumerate(listed)})
    if not distinct:
        raise InvalidArgumentError(f"the tree of path {path!r} has no leaves")
    total = sum(map(len, distinct))
    if total > MOST_LEAF_TOKENS:
        raise InvalidArgumentError(
            f"leaves of path {path!r}: expected at most {MOST_LEAF_TOKENS} tokens in total, "
            f"got {total}"
        )
    return b"".join(
        [
            _U32.pack(MAGIC),
            _U32.pack(VERSION),
            _U32.pack(len(path_bytes)),
            path_bytes,
            *_encoded_nodes(distinct),
        ]
    )


def encode_descriptor(descriptor: TokenTreeDescriptor) -> bytes:
    """Encode the leaves of a descriptor, without their names, as an ``RTKT`` payload.

    Raises
    ------
    InvalidArgumentError
        As :func:`encode_rtkt`.
    """
    check_kind("descriptor", descriptor, TokenTreeDescriptor, "a TokenTreeDescriptor")
    return encode_rtkt(descriptor.path, (leaf.tokens for leaf in descriptor.leaves))


def decode_rtkt(data: bytes) -> RtktTree:
    """Decode an ``RTKT`` payload.

    Raises
    ------
    TokenTrieError
        If the bytes are not exactly one tree in the layout above, or its leaves have more than
        2**24 tokens in total. The message gives the byte offset, the node and the problem.
    """
    reader = _Reader(check_kind("data", data, (bytes, bytearray), "bytes"))
    magic = reader.u32("magic")
    if magic != MAGIC:
        raise _malformed(0, f"magic: expected 0x{MAGIC:08X}, got 0x{magic:08X}")
    version = reader.u32("version")
    if version != VERSION:
        raise _malformed(4, f"version: expected {VERSION}, got {version}")
    path = _read_path(reader)
    leaves = _read_leaves(reader)
    if reader.remaining:
        raise _malformed(reader.offset, f"{reader.remaining} bytes after the last node")
    return RtktTree(path, leaves)


def _checked_leaf(i: int, leaf: Sequence[int]) -> tuple[int, ...]:
    tokens = tuple(check_several(f"leaves[{i}]", leaf, "a list of tokens"))
    if not tokens:
        raise InvalidArgumentError(f"leaves[{i}]: expected one token or more, got none")
    for j, token in enumerate(tokens):
        if not isinstance(token, int) or isinstance(token, bool):
            raise InvalidArgumentError(f"leaves[{i}][{j}] must be a whole number, got {token!r}")
        if not 0 <= token <= LARGEST_TOKEN:
            raise InvalidArgumentError(
                f"leaves[{i}][{j}] must be from 0 to {LARGEST_TOKEN}, got {token}"
            )
    return tokens


def _encoded_nodes(leaves: Iterable[tuple[int, ...]]) -> list[bytes]:
    """Return n_nodes and the encoded nodes.

    The leaves must be distinct and sorted, because this order visits the nodes in pre-order.
    """
    tokens = [ROOT_TOKEN]
    terminal = [False]
    children: list[list[int]] = [[]]
    path = [0]  # the nodes from the root to the last node
    previous: tuple[int, ...] = ()
    for leaf in leaves:
        shared = _shared_length(previous, leaf)
        del path[shared + 1 :]
        for token in leaf[shared:]:
            index = len(tokens)
            children[path[-1]].append(index)
            path.append(index)
            tokens.append(token)
            terminal.append(False)
            children.append([])
        terminal[-1] = True
        previous = leaf
    encoded = [_U32.pack(len(tokens))]
    for token, ends, below in zip(tokens, terminal, children, strict=True):
        encoded.append(_NODE.pack(token, ends, len(below)))
        encoded.append(struct.pack(f"<{len(below)}I", *below))
    return encoded


def _shared_length(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _read_path(reader: _Reader) -> str:
    length = reader.u32("path_len")
    at = reader.offset
    path = reader.take(length, "path")
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(at + error.start, f"path is not UTF-8: {error.reason}") from None


def _read_leaves(reader: _Reader) -> tuple[tuple[int, ...], ...]:
    n_nodes = _read_n_nodes(reader)
    parent = [_NO_NODE] * n_nodes
    depth = [0] * n_nodes
    last_token = [ROOT_TOKEN] * n_nodes  # for each node, the token of its child that was read last
    pending = [0]  # a stack of nodes listed as children and not yet read; the next one is on top
    path: list[int] = []  # the tokens from the root to the current node
    leaves: list[tuple[int, ...]] = []
    total = 0
    for index in range(n_nodes):
        at = reader.offset
        token, terminal, n_children = _NODE.unpack(reader.take(_NODE.size, f"node {index}"))
        problem = _ending_problem(index, terminal, n_children)
        if problem:
            raise _malformed(at + 4, f"node {index}{problem}")
        above = parent[index]
        sibling = last_token[above] if index else ROOT_TOKEN
        problem = _order_problem(index, above, pending) or _token_problem(index, token, sibling)
        if problem:
            raise _malformed(at, f"node {index}{problem}")

        if index:
            last_token[above] = token
            depth[index] = depth[above] + 1
            del path[depth[above] :]
            path.append(token)
        if terminal:
            total += len(path)
            if total > MOST_LEAF_TOKENS:
                limit = f"the leaves so far have {total} tokens, more than {MOST_LEAF_TOKENS}"
                raise _malformed(at, f"node {index}: {limit}")
            leaves.append(tuple(path))

        pending.pop()
        pending.extend(reversed(_read_children(reader, index, n_children, parent)))
    return tuple(leaves)


def _order_problem(index: int, above: int, pending: list[int]) -> str | None:
    if index and above == _NO_NODE:
        return " is unreachable: no earlier node has it as a child"
    if pending[-1] != index:
        return f" is out of DFS pre-order: expected node {pending[-1]}"
    return None


def _token_problem(index: int, token: int, sibling: int) -> str | None:
    if index == 0:
        return f": token_id of the root is {token}, not -1" if token != ROOT_TOKEN else None
    if token < 0:
        return f": token_id is {token}, below 0"
    if token <= sibling:
        return f": token_id is {token}, but must be greater than {sibling}, its previous sibling's"
    return None


def _ending_problem(index: int, terminal: int, n_children: int) -> str | None:
    if terminal not in (0, 1):
        return f": terminal is {terminal}, not 0 or 1"
    if terminal and index == 0:
        return ": the root is terminal, so a leaf has no tokens"
    if not terminal and not n_children:
        return " has no children and is not terminal"
    return None


def _read_n_nodes(reader: _Reader) -> int:
    at = reader.offset
    n_nodes = reader.u32("n_nodes")
    if n_nodes == 0:
        raise _malformed(at, "n_nodes: expected 1 or more, got 0")
    most = reader.remaining // _NODE.size
    if n_nodes > most:
        raise _malformed(
            at,
            f"n_nodes: expected at most {most}, for which the remaining {reader.remaining} bytes "
            f"have room, got {n_nodes}",
        )
    return n_nodes


def _read_children(
    reader: _Reader, index: int, n_children: int, parent: list[int]
) -> tuple[int, ...]:
    """Read child_index of a node, and record the node as the parent of its children."""
    at = reader.offset
    where = f"node {index}: child_index"
    size = n_children * _U32.size
    children = struct.unpack(f"<{n_children}I", reader.take(size, where))
    for i, child in enumerate(children):
        problem = None
        if child <= index:
            problem = "not greater than the node's own index"
        elif child >= len(parent):
            problem = f"but n_nodes is {len(parent)}"
        elif parent[child] != _NO_NODE:
            problem = f"which is already a child of node {parent[child]}"
        if problem:
            raise _malformed(at + i * _U32.size, f"{where}[{i}] is {child}, {problem}")
        parent[child] = index
    return children


class _Reader:
    """Reads bytes in order, and counts how many were read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self.offset

    def take(self, size: int, what: str) -> bytes:
        if size > self.remaining:
            raise _malformed(
                self.offset, f"truncated: {what} needs {size} bytes, {self.remaining} remain"
            )
        start = self.offset
        self.offset += size
        return self._data[start : self.offset]

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(_U32.size, what))[0])


def _malformed(offset: int, what: str) -> TokenTrieError:
    return TokenTrieError(f"the RTKT payload is malformed at byte {offset}: {what}")
