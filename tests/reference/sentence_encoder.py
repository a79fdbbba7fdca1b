"""The reference implementation of a BERT sentence encoder: WordPiece, the layers, and the mean."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

__all__ = ["SentenceEncoder"]

Floats = NDArray[np.float64]

# The Gauss error function of each element of an array.
erf = np.vectorize(math.erf, otypes=[np.float64])


class SentenceEncoder:
    """The tokenizer and the weights of a GGUF file of the architecture ``bert``."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.facts: dict[str, Any] = {key: f.contents() for key, f in reader.fields.items()}
        pieces = self.facts["tokenizer.ggml.tokens"]
        self.ids: Mapping[str, int] = {piece: i for i, piece in enumerate(pieces)}
        # GGUF files have the size of the rows first, numpy has it last.
        self.weights = {t.name: np.asarray(t.data, np.float64) for t in reader.tensors}

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text between the tokens ``[CLS]`` and ``[SEP]``."""
        tokens = [token for word in words(text) for token in self.tokens_of_word(word)]
        return [self.ids["[CLS]"], *tokens, self.ids["[SEP]"]]

    def tokens_of_word(self, word: str) -> list[int]:
        """Split a word into the longest pieces, from left to right (WordPiece)."""
        tokens, rest = [], "\u2581" + word  # which begins the first piece of a word
        while rest:
            n = next((n for n in range(len(rest), 0, -1) if rest[:n] in self.ids), 0)
            if n == 0:
                return [self.ids["[UNK]"]]
            tokens.append(self.ids[rest[:n]])
            rest = rest[n:]
        return tokens

    def embed(self, text: str) -> Floats:
        """Return the mean of the last layer's outputs, with norm 1."""
        tokens = self.tokenize(text)
        x = self.weights["token_embd.weight"][tokens]
        x = x + self.weights["token_types.weight"][0]
        x = x + self.weights["position_embd.weight"][: len(tokens)]
        x = self.normalized("token_embd_norm", x)
        for layer in range(self.facts["bert.block_count"]):
            block = f"blk.{layer}"
            x = self.normalized(f"{block}.attn_output_norm", x + self.attention(block, x))
            y = self.linear(f"{block}.ffn_up", x)
            y = self.linear(f"{block}.ffn_down", y * (1 + erf(y / math.sqrt(2))) / 2)  # GELU
            x = self.normalized(f"{block}.layer_output_norm", x + y)
        mean: Floats = x.mean(axis=0)
        mean /= np.linalg.norm(mean)
        return mean

    def attention(self, block: str, x: Floats) -> Floats:
        heads = np.split(np.arange(x.shape[1]), self.facts["bert.attention.head_count"])
        q, k, v = (self.linear(f"{block}.attn_{name}", x) for name in "qkv")
        out = np.empty_like(x)
        for head in heads:
            scores = q[:, head] @ k[:, head].T / math.sqrt(len(head))
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, head]
        return self.linear(f"{block}.attn_output", out)

    def linear(self, name: str, x: Floats) -> Floats:
        product: Floats = x @ self.weights[f"{name}.weight"].T
        return product + self.weights[f"{name}.bias"]

    def normalized(self, name: str, x: Floats) -> Floats:
        """Apply layer normalization to each row."""
        centred = x - x.mean(axis=1, keepdims=True)
        epsilon = self.facts["bert.attention.layer_norm_epsilon"]
        scaled: Floats = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def words(text: str) -> Iterator[str]:
    """Return the words of a text, in lower case and without accents (an uncased BERT).

    Every punctuation mark, ASCII symbol and Chinese character is a word of its own.
    """
    word = ""
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        if char.isspace():
            yield from filter(None, [word])
            word = ""
        elif category[0] == "P" or (category[0] == "S" and char.isascii()) or is_chinese(char):
            yield from filter(None, [word, char])
            word = ""
        elif category not in ("Cc", "Cf", "Mn") and char != "\ufffd":
            word += char
    yield from filter(None, [word])


def is_chinese(char: str) -> bool:
    """Return whether a character is a CJK ideograph of the first blocks of Unicode."""
    return "\u3400" <= char <= "\u4dbf" or "\u4e00" <= char <= "\u9fff"
