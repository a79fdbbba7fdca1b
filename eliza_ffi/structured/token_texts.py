"""What every token of a vocabulary spells, as libraries that compute masks need to know it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..checks import check_callable, check_each, check_kind, check_several, check_text, check_whole
from ..errors import ElizaError

__all__ = ["TokenSpeller", "TokenTexts"]


class TokenSpeller:
    """A model's tokenizer, which other libraries may hold for longer than the model is open.

    Parameters
    ----------
    tokenize
        From a text to its tokens; control tokens are not read.
    """

    def __init__(self, tokenize: Callable[[str], list[int]]) -> None:
        self._tokenize = check_callable("tokenize", tokenize)
        self._lock = threading.Lock()
        self._is_closed = False
        self._anchor: list[int] | None = None

    def close(self) -> None:
        """Ask the model nothing any more. Waits for a call that is running."""
        with self._lock:
            self._is_closed = True

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text that goes on from another.

        Some tokenizers put a space in front of what a text begins with: it is read behind a line
        break, which is then taken off.
        """
        check_text("text", text)
        if self._anchor is None:
            self._anchor = self._read("\n")
        behind = self._read("\n" + text)
        if behind[: len(self._anchor)] == self._anchor:
            return behind[len(self._anchor) :]
        return self._read(text)

    def _read(self, text: str) -> list[int]:
        with self._lock:
            if self._is_closed:
                raise ElizaError("the model is closed")
            return self._tokenize(text)


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """A vocabulary.

    Attributes
    ----------
    texts : tuple of bytes
        What each token spells; of a control token, its name.
    control : tuple of int
        The control tokens, which are no part of a text, ascending.
    ends : tuple of int
        Those that end a generation; the model's EOS is the first.
    speller : TokenSpeller
    """

    texts: tuple[bytes, ...]
    control: tuple[int, ...]
    ends: tuple[int, ...]
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
        """Return a vocabulary.

        Parameters
        ----------
        texts, control, ends
            As the attributes, in any order; a text may be empty.
        eos
            The name of the model's token that ends a text.
        speller
        """
        check_kind("speller", speller, TokenSpeller, "a TokenSpeller")
        named = list(check_each("texts", texts, bytes, "bytes"))
        tokens = range(len(named))
        known = {
            name: [
                check_whole(name, token, 0, len(named) - 1)
                for token in check_several(name, each, "a list of tokens")
            ]
            for name, each in (("control", control), ("ends", ends))
        }
        unused = [token for token in tokens if not named[token]]
        for token in unused:  # never to be chosen, and other libraries want a name
            named[token] = b"<unused %d>" % token
        name = check_text("eos", eos).encode("utf-8", "surrogatepass")
        first = sorted(known["ends"], key=lambda token: named[token] != name)
        return cls(tuple(named), tuple(sorted({*known["control"], *unused})), tuple(first), speller)

    @functools.cached_property
    def token_of(self) -> dict[bytes, int]:
        """The token of each single byte that has one."""
        control = set(self.control)
        found: dict[bytes, int] = {}
        for token, text in enumerate(self.texts):
            if len(text) == 1 and token not in control:
                found.setdefault(text, token)
        return found

    @property
    def n_vocab(self) -> int:
        """How many tokens there are."""
        return len(self.texts)

    @property
    def n_words(self) -> int:
        """How many words of 32 bits a mask has."""
        return (self.n_vocab + 31) // 32
