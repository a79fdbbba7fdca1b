"""Write the binary ``RTKT`` payload: the choices of one span as a tree of tokens, in the format
that ``eliza_inference.h`` describes.

The format does not contain the names of the leaves, their original order, duplicates (leaves with
the same tokens become one leaf) or the model. If you need the names, keep the
:class:`~eliza_ffi.choices.TokenTreeDescriptor` and look up the tokens in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from os.path import commonprefix

from ..checks import check_kind, check_several, check_text
from ..choices.token_tree import LARGEST_TOKEN, TokenTreeDescriptor
from ..errors import InvalidArgumentError

MAGIC = 0x544B5452
VERSION = 1
ROOT_TOKEN = -1

MAX_LEAF_TOKENS = 2**24
"""Maximum number of tokens in all distinct leaves of a tree together.

A leaf that is a prefix of another leaf adds almost nothing to the payload, but must be written out
when the library reads it. Without a limit, a payload of 1 MB could expand to 25 GB of leaves.
"""

_U32 = struct.Struct("<I")
_NODE = struct.Struct("<iBI")


def encode_rtkt(path: str, leaves: Iterable[Sequence[int]]) -> bytes:
    """Encode choices as an ``RTKT`` payload.

    >>> encode_rtkt("action", [[1, 2], [3]])[:4]
    b'RTKT'

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
    if total > MAX_LEAF_TOKENS:
        raise InvalidArgumentError(
            f"leaves of path {path!r}: expected at most {MAX_LEAF_TOKENS} tokens in total, "
            f"got {total}"
        )
    head = struct.pack("<III", MAGIC, VERSION, len(path_bytes))
    return b"".join([head, path_bytes, *_encoded_nodes(distinct)])


def encode_descriptor(descriptor: TokenTreeDescriptor) -> bytes:
    """Encode the leaves of a descriptor, without their names, as an ``RTKT`` payload.

    >>> from eliza_ffi.choices import build_token_tree_descriptor
    >>> encode_descriptor(build_token_tree_descriptor("action", ["STOP"], model.tokenize))[:4]
    b'RTKT'

    Raises
    ------
    InvalidArgumentError
        As :func:`encode_rtkt`.
    """
    check_kind("descriptor", descriptor, TokenTreeDescriptor, "a TokenTreeDescriptor")
    return encode_rtkt(descriptor.path, (leaf.tokens for leaf in descriptor.leaves))


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
    """Return n_nodes and the encoded nodes. The leaves are distinct and sorted, which visits the
    nodes in pre-order."""
    tokens = [ROOT_TOKEN]
    terminal = [False]
    children: list[list[int]] = [[]]
    path = [0]  # the nodes from the root to the last node
    previous: tuple[int, ...] = ()
    for leaf in leaves:
        shared = len(commonprefix([previous, leaf]))
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
