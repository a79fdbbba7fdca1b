"""The bytes that each token of a vocabulary spells, for libraries that compute token masks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .._lazy import lazy_property
from ..errors import ElizaError


class TokenSpeller:
    """A model's tokenizer that other libraries may keep after the model is closed. `tokenize` must
    not recognize control tokens."""

    def __init__(self, tokenize: Callable[[str], list[int]]) -> None:
        self._tokenize = tokenize
        self._lock = threading.Lock()
        self._is_closed = False
        self._anchor: list[int] | None = None

    def close(self) -> None:
        """Stop using the model. Waits until a running call has returned."""
        with self._lock:
            self._is_closed = True

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of `text` as a continuation of preceding text."""
        if self._anchor is None:
            self._anchor = self._read("\n")
        return continued_tokens(self._read, text, self._anchor)

    def _read(self, text: str) -> list[int]:
        with self._lock:
            if self._is_closed:
                raise ElizaError("the model is closed")
            return self._tokenize(text)


def continued_tokens(
    tokenize: Callable[[str], list[int]], text: str, line_break: list[int] | None = None
) -> list[int]:
    """Return the tokens of a text as a continuation of preceding text. It is tokenized after a line
    break, because some tokenizers insert a space at the beginning of their input."""
    line_break = tokenize("\n") if line_break is None else line_break
    tokens = tokenize("\n" + text)
    is_whole = tokens[: len(line_break)] == line_break
    return tokens[len(line_break) :] if is_whole else tokenize(text)


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """A vocabulary."""

    texts: tuple[bytes, ...]  # the bytes that each token spells; for a control token, its name
    control: tuple[int, ...]  # the control tokens, which never represent text, in ascending order
    ends: tuple[int, ...]  # the tokens that end a generation, the model's EOS first
    speller: TokenSpeller

    @classmethod
    def of(
        cls,
        texts: Sequence[bytes],
        control: Iterable[int],
        ends: Iterable[int],
        eos: str,
        speller: TokenSpeller,
    ) -> TokenTexts:
        """Create a vocabulary from the model's lists, which may be in any order.

        Tokens with empty bytes become control tokens. `eos` is the name of the model's EOS token.
        """
        named = list(texts)
        unused = [token for token, text in enumerate(named) if not text]
        for token in unused:  # never allowed in an answer, but other libraries require a name
            named[token] = b"<unused %d>" % token
        name = eos.encode("utf-8", "surrogatepass")
        first = sorted(ends, key=lambda token: named[token] != name)
        return cls(tuple(named), tuple(sorted({*control, *unused})), tuple(first), speller)

    @lazy_property
    def token_of(self) -> dict[bytes, int]:
        """For each byte that a token spells alone, the first such token."""
        control = self.controls
        found: dict[bytes, int] = {}
        for token, text in enumerate(self.texts):
            if len(text) == 1 and token not in control:
                found.setdefault(text, token)
        return found

    @lazy_property
    def controls(self) -> frozenset[int]:
        """The tokens in `control`, for fast membership tests."""
        return frozenset(self.control)

    @lazy_property
    def n_vocab(self) -> int:
        """The number of tokens."""
        return len(self.texts)

    @lazy_property
    def n_words(self) -> int:
        """The number of 32-bit words in a token mask."""
        return (self.n_vocab + 31) // 32
