"""The answers that are chosen between, as the trie and as the grammar have them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from eliza_ffi.choices.label_set import ANCHOR, string_choices
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.elizaos.rtkt import decode_rtkt
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model

__all__ = ["Alternatives", "gbnf_of"]

_nonces = itertools.count()


class Alternatives:
    """The answers of a benchmark, as the trie and as the grammar have them.

    Parameters
    ----------
    model
        Whose tokens the payload's are.
    payload
        The token sequences.

    Attributes
    ----------
    texts : tuple of str
        What the leaves spell, without duplicates.
    grammar : str
        The same strings in GBNF.

    Raises
    ------
    InvalidArgumentError
        If a leaf spells nothing, so that no grammar can have it.
    """

    def __init__(self, model: Model, payload: TokenTreePayload) -> None:
        self.payload = payload
        self.json = payload.to_json().encode("utf-8", "surrogatepass")
        anchor = model.tokenize(ANCHOR)
        spelled: dict[str, None] = {}
        for leaf in payload.leaves():
            # Behind an anchor, because the first space of a text may be dropped.
            text = model.detokenize([*anchor, *leaf.tokens]).removeprefix(ANCHOR)
            if not text:
                raise InvalidArgumentError(f"leaf {leaf.name!r} spells nothing")
            spelled[text] = None
        self.texts = tuple(spelled)
        self.grammar = gbnf_of(self.texts)
        ordered = sorted(self.texts)
        has_longer = (b.startswith(a) for a, b in itertools.pairwise([*ordered, ""]))
        self._final = {text for text, longer in zip(ordered, has_longer, strict=True) if not longer}

    @classmethod
    def of_texts(cls, model: Model, texts: Sequence[str]) -> Alternatives:
        """Return the alternatives of strings, tokenized by the model."""
        return cls(model, string_choices(texts).payload(model.tokenize, model.detokenize))

    @classmethod
    def of_payload(cls, model: Model, data: bytes) -> Alternatives:
        """Return those of a payload's bytes, JSON or ``RTKT``.

        Raises
        ------
        TokenTrieError
            If it is neither.
        """
        if not data.startswith(b"RTKT"):
            return cls(model, TokenTreePayload.from_json(data))
        tree = decode_rtkt(data)
        leaves = tuple(TokenTreeLeaf(str(i), tokens) for i, tokens in enumerate(tree.leaves))
        return cls(model, TokenTreePayload("", (TokenTreeDescriptor(tree.path, leaves),)))

    def ends_at(self, text: str) -> bool:
        """Return whether a text is an answer that no other answer goes on from."""
        return text in self._final

    def unseen_json(self) -> bytes:
        """Return the payload in bytes that no cache can know."""
        first, *rest = self.payload.descriptors
        renamed = replace(first, path=f"{first.path}#{next(_nonces)}")
        payload = TokenTreePayload(self.payload.model_id, (renamed, *rest))
        return payload.to_json().encode("utf-8", "surrogatepass")


def gbnf_of(texts: Sequence[str]) -> str:
    """Return a GBNF grammar whose strings are exactly `texts`."""
    return "root ::= " + " | ".join(f'"{_escaped(text)}"' for text in texts)


def _escaped(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        named.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x20 else char) for char in text
    )
