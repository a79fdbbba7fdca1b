"""What is asked of a tokenizer where control tokens and plain text must be told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

__all__ = ["ASCII_SPACE", "PRIVATE_USE", "Detokenize", "Tokenize", "Vocabulary"]

PRIVATE_USE = range(0xF0000, 0xFFFFE)
ASCII_SPACE = " \t\n\v\f\r"

Tokenize = Callable[[str, bool, bool], list[int]]
"""From a text, whether to add special tokens and whether to read them, to tokens."""

Detokenize = Callable[..., str]
"""From tokens to text, with a keyword ``unparse_special`` for spelling special tokens out."""


class Vocabulary:
    """A tokenizer, and which of its tokens are control tokens.

    Parameters
    ----------
    tokenize, detokenize
    """

    def __init__(self, tokenize: Tokenize, detokenize: Detokenize) -> None:
        self._tokenize = tokenize
        self._detokenize = detokenize
        self._known: dict[int, str] = {}
        self._taking_space: dict[int, tuple[bool, bool]] = {}

    def read(self, text: str) -> list[int]:
        """Return the tokens of a text whose control tokens are spelled out."""
        return self._tokenize(text, False, True)

    def controls(self, tokens: Sequence[int]) -> dict[int, str]:
        """Return the control tokens among some tokens, with their texts."""
        return {token: text for token in set(tokens) if (text := self._control(token))}

    def in_order(self, tokens: Sequence[int]) -> list[int]:
        """Return the control tokens as they come."""
        return [token for token in tokens if self._control(token)]

    def pieces(self, text: str, tokens: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """Cut a text at its control tokens: yield what stands before each, and the token.

        No plain piece has a control token's text in it, so each is where it is first found. Some
        tokens take the white space beside them with them, as those of the phi-3 family do.
        """
        takes_right = False
        for token in self.in_order(tokens):
            plain, _, text = text.partition(self._control(token))
            plain = plain.lstrip(ASCII_SPACE) if takes_right else plain
            takes_left, takes_right = self._takes_space(token)
            yield plain.rstrip(ASCII_SPACE) if takes_left else plain, [token]
        yield text.lstrip(ASCII_SPACE) if takes_right else text, []

    def _takes_space(self, token: int) -> tuple[bool, bool]:
        """Say whether a control token takes white space before it, and behind it."""
        if token not in self._taking_space:
            control = self._control(token)
            before, behind = self.read(f" {control}"), self.read(f"{control} ")
            self._taking_space[token] = (before == [token], behind == [token])
        return self._taking_space[token]

    def _control(self, token: int) -> str:
        """Return the text of a control token, and an empty one for others."""
        if token not in self._known:
            plain = self._detokenize([token], unparse_special=False)
            spelled = self._detokenize([token], unparse_special=True)
            self._known[token] = "" if plain else spelled
        return self._known[token]
