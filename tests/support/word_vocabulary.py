"""A vocabulary of words, for tests without a model."""

from __future__ import annotations

from collections.abc import Sequence


class Words:
    """A vocabulary with one token for each word, and for each character of any other text."""

    def __init__(self, words: Sequence[str], controls: Sequence[str] = ()) -> None:
        self.ids = {word: 0x200000 + i for i, word in enumerate((*words, *controls))}
        self.controls = frozenset(controls)
        self.texts = {token: word for word, token in self.ids.items()}
        self.by_first: dict[str, list[str]] = {}
        for word in self.ids:
            self.by_first.setdefault(word[0], []).append(word)

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        assert not add_special  # decision templates write BOS themselves
        tokens = []
        while text:
            beginning_alike = (
                word
                for word in self.by_first.get(text[0], ())
                if text.startswith(word) and (parse_special or word not in self.controls)
            )
            found = max(beginning_alike, key=len, default=text[0])
            tokens.append(self.ids[found] if found in self.ids else ord(found))
            text = text[len(found) :]
        return tokens

    def detokenize(self, tokens: Sequence[int], unparse_special: bool = False) -> str:
        texts = [self.texts[token] if token in self.texts else chr(token) for token in tokens]
        return "".join(text for text in texts if unparse_special or text not in self.controls)

    def single(self, text: str) -> list[int]:
        return self.tokenize(text)
