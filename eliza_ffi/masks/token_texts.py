"""What every token of a vocabulary spells, as libraries that compute masks need to know it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ElizaError

__all__ = ["TokenSpeller", "TokenTexts"]

BATCH = 4096
"""Tokens whose texts are asked for at once."""

END_NAMES = frozenset(
    (
        *("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>"),
        *("<|end|>", "<|return|>", "<|call|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>"),
        *("<end_of_turn>", "<turn|>", "<end_of_utterance>", "<EOT>", "_<EOT>", "</s>", "<eos>"),
        *("[EOS]", "[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    )
)
"""Names of control tokens that end a turn or a text, whatever the model's file calls EOS."""

CLEANED = (b"?", b"!", b".", b",", b"'s", b"'m", b"'re", b"'ve")
"""Some tokenizers drop a space before these where they join tokens."""


class TokenSpeller:
    """A model's tokenizer, which other libraries may hold for longer than the model is open.

    Parameters
    ----------
    tokenize
        From a text to its tokens; control tokens are not read.
    detokenize
        From tokens, and whether to spell control tokens by their names, to bytes.
    """

    def __init__(
        self,
        tokenize: Callable[[str], list[int]],
        detokenize: Callable[[Sequence[int], bool], bytes],
    ) -> None:
        self._tokenize = tokenize
        self._detokenize = detokenize
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
        if self._anchor is None:
            self._anchor = self._read("\n")
        behind = self._read("\n" + text)
        if behind[: len(self._anchor)] == self._anchor:
            return behind[len(self._anchor) :]
        return self._read(text)

    def spell(self, tokens: Sequence[int], named: bool) -> bytes:
        """Return the bytes of tokens, with control tokens by their names or left out."""
        with self._lock:
            self._check()
            return self._detokenize(tokens, named)

    def _read(self, text: str) -> list[int]:
        with self._lock:
            self._check()
            return self._tokenize(text)

    def _check(self) -> None:
        if self._is_closed:
            raise ElizaError("the model is closed")


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
    def read(cls, speller: TokenSpeller, model: Mapping[str, Any]) -> TokenTexts:
        """Read a model's vocabulary.

        Parameters
        ----------
        speller
        model
            What :meth:`~eliza_ffi.model.Model.describe` says of the model.
        """
        reader = _VocabularyReader(
            speller, int(model["n_vocab"]), [model["bos_token"], model["eos_token"]]
        )
        spelled = reader.spelled()
        control = reader.control(spelled)
        texts = [reader.mended(text) for text in spelled]
        for token, text in enumerate(texts):
            if not text:  # never to be chosen, and other libraries want a name
                control.append(token)
                texts[token] = b"<unused %d>" % token
        named = {name.encode() for name in END_NAMES}
        eos = str(model["eos_token"]).encode()
        ends = [token for token in control if texts[token] == eos]
        ends += [token for token in control if texts[token] in named and texts[token] != eos]
        return cls(tuple(texts), tuple(sorted(control)), tuple(ends), speller)

    @property
    def n_vocab(self) -> int:
        """How many tokens there are."""
        return len(self.texts)

    @property
    def n_words(self) -> int:
        """How many words of 32 bits a mask has."""
        return (self.n_vocab + 31) // 32


class _VocabularyReader:
    """Asks for the texts of many tokens at once, with marks between them to tell them apart."""

    def __init__(self, speller: TokenSpeller, n_vocab: int, names: Iterable[str]) -> None:
        self._speller = speller
        self._n_vocab = n_vocab
        # Behind a token of plain text: the very first loses a space with some tokenizers.
        self._plain = speller.tokenize("x")[-1:]
        self._behind = len(speller.spell(self._plain, True))
        self._mark, self._mark_text = self._find_mark(names)
        space = speller.tokenize(" ")
        # Behind a space it shows which spaces a tokenizer would have dropped.
        self._space = space if self._drops_spaces() and len(space) == 1 else []

    def _find_mark(self, names: Iterable[str]) -> tuple[int, bytes]:
        """Return a control token and its name, which no other token's text has in it."""
        wanted = {name.encode() for name in names if name}
        # Control tokens mostly come first or last.
        n = self._n_vocab
        places = [*range(min(n, 1024)), *range(max(n - 4096, 1024), n)]
        for token in places:
            name = self._one(token)
            if name in wanted and len(name) > 2 and name[:1] not in b"?!.,' ":
                return token, name
        return -1, b""

    def _drops_spaces(self) -> bool:
        tokens = self._speller.tokenize("x ?")
        return b" ?" not in self._speller.spell([*self._plain, *tokens], True)

    def spelled(self) -> list[bytes]:
        """Return the text of each token, behind a space if there is one."""
        texts: list[bytes] = []
        for begin in range(0, self._n_vocab, BATCH):
            texts += self._split(range(begin, min(begin + BATCH, self._n_vocab)))
        return texts

    def control(self, spelled: Sequence[bytes]) -> list[int]:
        """Return the tokens that are spelled only by their names, ascending."""
        found: list[int] = []
        waiting = [
            range(begin, min(begin + BATCH, self._n_vocab))
            for begin in range(0, self._n_vocab, BATCH)
        ][::-1]
        mark = self._speller.spell([*self._plain, *self._plain], True)[self._behind :]
        while waiting:
            tokens = waiting.pop()
            row = [*self._plain]
            for token in tokens:
                row += [*self._plain, *self._space, token]
            told = self._speller.spell(row, False)[self._behind :]
            if told == b"".join(mark + spelled[token] for token in tokens):
                continue  # all of them are plain text
            if len(tokens) == 1:
                found += tokens
                continue
            half = len(tokens) // 2
            waiting += [tokens[half:], tokens[:half]]
        return found

    def mended(self, spelled: bytes) -> bytes:
        """Return a token's own text, from its text behind a space."""
        if not self._space or spelled.lstrip(b" ").startswith(CLEANED):
            return spelled  # the space that was in front has been dropped
        return spelled[1:]

    def _split(self, tokens: range) -> list[bytes]:
        if len(tokens) == 1 or self._mark < 0:
            return [self._one(token, self._space) for token in tokens]
        row = [*self._plain]
        for token in tokens:
            row += [self._mark, *self._space, token]
        texts = self._speller.spell(row, True).split(self._mark_text)[1:]
        if len(texts) == len(tokens):
            return texts
        half = len(tokens) // 2  # the mark itself is among them
        return self._split(tokens[:half]) + self._split(tokens[half:])

    def _one(self, token: int, before: Sequence[int] = ()) -> bytes:
        return self._speller.spell([*self._plain, *before, token], True)[self._behind :]
