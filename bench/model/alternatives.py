"""The labels of a benchmark, as a token trie and as a grammar."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from eliza_ffi.choices.label_set import ANCHOR, as_label_set
from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model


class Alternatives:
    """The labels of a benchmark, as a token trie and as a grammar.

    Raises
    ------
    InvalidArgumentError
        If the text of a leaf is empty, because a grammar cannot contain it.
    """

    def __init__(
        self,
        model: Model,  # the model that tokenized the payload
        payload: TokenTreePayload,  # the token sequences
    ) -> None:
        self.payload = payload
        self.json = payload.to_json().encode("utf-8", "surrogatepass")  # the payload as JSON
        anchor = model.tokenize(ANCHOR)
        spelled: dict[str, None] = {}
        for leaf in payload.leaves():
            # The anchor comes first because detokenizing may drop the first space of a string.
            text = model.detokenize([*anchor, *leaf.tokens]).removeprefix(ANCHOR)
            if not text:
                raise InvalidArgumentError(f"leaf {leaf.name!r}: its tokens have no text")
            spelled[text] = None
        self.texts = tuple(spelled)  # the strings of the leaves, without duplicates
        self.grammar = gbnf_of(self.texts)  # a GBNF grammar of the same strings
        ordered = sorted(self.texts)
        has_longer = (b.startswith(a) for a, b in itertools.pairwise([*ordered, ""]))
        self._final = {text for text, longer in zip(ordered, has_longer, strict=True) if not longer}

    @classmethod
    def of_texts(cls, model: Model, texts: Sequence[str]) -> Alternatives:
        """Return the alternatives for some strings, tokenized by the model."""
        return cls(model, as_label_set(texts).payload(model.tokenize, model.detokenize))

    @classmethod
    def of_payload(cls, model: Model, data: bytes) -> Alternatives:
        """Return the alternatives in a JSON payload; raise TokenTrieError if it is malformed."""
        return cls(model, TokenTreePayload.from_json(data))

    def ends_at(self, text: str) -> bool:
        """Return whether `text` is a label that no other label continues."""
        return text in self._final


def gbnf_of(texts: Sequence[str]) -> str:
    """Return a GBNF grammar that accepts exactly the strings in `texts`."""
    return "root ::= " + " | ".join(f'"{_escaped(text)}"' for text in texts)


def _escaped(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        named.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x20 else char) for char in text
    )
