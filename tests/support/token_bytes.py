"""Read the bytes of all tokens of a real vocabulary, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from make_test_models import read_tokenizer, vocabulary_file

NORMAL_TOKEN, USER_DEFINED_TOKEN, BYTE_TOKEN = 1, 4, 6  # llama.cpp's token types


@dataclass(frozen=True)
class TokenBytes:
    """A vocabulary.

    `texts` are the texts of the tokens by their ids, as in llama.cpp; those of control and unused
    tokens are empty. `names` have the names of these tokens, which other libraries require, and
    `control` are their ids.
    """

    texts: tuple[bytes, ...]
    names: tuple[bytes, ...]
    control: tuple[int, ...]
    eos: int

    @classmethod
    def read(cls, vocabulary: str) -> TokenBytes:
        """Read a vocabulary, given by its name or by the path of a GGUF file."""
        return cls.from_file(vocabulary_file(vocabulary))

    @classmethod
    def from_file(cls, file: Path) -> TokenBytes:
        """Read the vocabulary of a GGUF file."""
        entries = {
            key.removeprefix("tokenizer.ggml."): entry.value
            for key, entry in read_tokenizer(file).items()
        }
        spell = _byte_level if entries["model"] == b"gpt2" else _word_piece
        tokens, types = entries["tokens"], entries["token_type"]
        texts = []
        for token, kind in zip(tokens, types, strict=True):
            if kind == NORMAL_TOKEN:
                texts.append(spell(token))
            elif kind == BYTE_TOKEN:
                texts.append(bytes([int(token[3:5], 16)]))
            else:
                texts.append(token if kind == USER_DEFINED_TOKEN else b"")
        eos = int(entries["eos_token_id"])
        texts[eos] = b""
        return cls(
            texts=tuple(texts),
            names=tuple(text or name for text, name in zip(texts, tokens, strict=True)),
            control=tuple(token for token, text in enumerate(texts) if not text),
            eos=eos,
        )


def _word_piece(token: bytes) -> bytes:
    """Undo SentencePiece's mark for a space."""
    return token.replace("▁".encode(), b" ")


def _byte_level(token: bytes) -> bytes:
    """Undo GPT-2's mapping of bytes to printable characters."""
    return bytes(_BYTE_OF_CHAR.get(char, ord("?")) for char in token.decode("utf-8", "replace"))


def _gpt2_bytes() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTE_OF_CHAR = _gpt2_bytes()


class GreedySpeller:
    """Tokenizes bytes with the longest matching token at each place."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._token_of = {text: token for token, text in enumerate(tokens) if text}
        self._longest = max(map(len, self._token_of))

    def spell(self, text: bytes) -> list[int]:
        spelled: list[int] = []
        at = 0
        while at < len(text):
            for end in range(min(len(text), at + self._longest), at, -1):
                token = self._token_of.get(text[at:end])
                if token is not None:
                    spelled.append(token)
                    at = end
                    break
            else:
                raise ValueError(f"no token begins with byte {at} of {text!r}")
        return spelled
