"""The labels that decision models answer with.

Each label is one token. The type of the model determines the possible labels, and the vocabulary
determines which of them are one token.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ...errors import InvalidArgumentError, ModelError
from .systemone import SystemoneQuestion

__all__ = ["OptionLabel", "TokensOf", "code_labels", "letter_labels", "typed_labels"]

TokensOf: TypeAlias = Callable[[str], list[int]]
"""Tokenizes plain text that continues other text."""

MAX_LABELS = 255


class OptionLabel(NamedTuple):
    """Hold the label of an option.

    Attributes
    ----------
    text : str
    tokens : tuple of int
        The tokens whose logits are read. The highest of these logits is the label's score.
    """

    text: str
    tokens: tuple[int, ...]


def letter_labels(tokens_of: TokensOf) -> list[OptionLabel]:
    """Return the labels A to Z and a to z.

    Raises
    ------
    ModelError
        If one of the letters is not a single token.
    """
    labels = []
    for letter in string.ascii_letters[26:] + string.ascii_letters[:26]:
        tokens = tokens_of(letter)
        if len(tokens) != 1:
            raise ModelError(f"the label {letter!r} must be one token, got {len(tokens)}")
        labels.append(OptionLabel(letter, tuple(tokens)))
    return labels


def code_labels(tokens_of: TokensOf) -> list[OptionLabel]:
    """Return the labels A to Z and AA to ZZ that are one token, at most 255."""
    labels: list[OptionLabel] = []
    for code in (*string.ascii_uppercase, *_pairs()):
        tokens = tokens_of(code)
        if len(tokens) == 1:
            labels.append(OptionLabel(code, tuple(tokens)))
            if len(labels) == MAX_LABELS:
                break
    return labels


def typed_labels(tokens_of: TokensOf, question: SystemoneQuestion) -> list[OptionLabel]:
    """Return the labels for a type of question.

    They are yes and no for a noul, digits for a score, and a code for each option of a choice.

    Raises
    ------
    ModelError
        If no spelling of yes, of no, or of a digit is one token.
    InvalidArgumentError
        If the vocabulary has too few codes of one token.
    """
    if question.type == "choice":
        return _codes(tokens_of, [key for key, _ in question.options])
    labels = []
    for key, _ in question.options:
        spellings = YES_NO[key] if question.type == "noul" else (key,)
        tokens = _single(tokens_of, spellings)
        if not tokens:
            raise ModelError(
                f"the label {spellings[0]!r} must be one token; none of its spellings is"
            )
        labels.append(OptionLabel(key, tuple(tokens)))
    return labels


YES_NO = {"true": ("yes", "Yes", "YES"), "false": ("no", "No", "NO")}


def _codes(tokens_of: TokensOf, keys: list[str]) -> list[OptionLabel]:
    """Return a code for each key: the preferred code, or else the first free substitute.

    Each code must be one token.
    """
    labels: list[OptionLabel] = []
    taken: set[int] = set()
    # All keys share this iterator. A substitute that is rejected for one key, because it is taken
    # or not one token, need not be tried for another key.
    substitutes = _substitutes()
    for suited in _suited(keys):
        for code in itertools.chain((suited,), substitutes):
            tokens = tokens_of(code)
            if len(tokens) == 1 and tokens[0] not in taken:
                taken.add(tokens[0])
                after_space = [t for t in _single(tokens_of, (" " + code,)) if t != tokens[0]]
                labels.append(OptionLabel(code, (tokens[0], *after_space)))
                break
        else:
            raise InvalidArgumentError(f"the vocabulary has too few labels for {len(keys)} options")
    return labels


def _suited(keys: list[str]) -> Iterable[str]:
    if all(len(key) == 1 and key in string.ascii_letters for key in keys):
        return keys
    if len(keys) <= len(string.ascii_uppercase):
        return string.ascii_uppercase[: len(keys)]
    return (f"{i:02}" for i in range(len(keys)))


def _substitutes() -> Iterator[str]:
    yield from string.ascii_uppercase
    yield from (f"{i:02}" for i in range(100))
    yield from string.ascii_lowercase
    yield from (f"#{i}" for i in range(200))
    yield from _pairs()


def _pairs() -> Iterator[str]:
    return (a + b for a in string.ascii_uppercase for b in string.ascii_uppercase)


def _single(tokens_of: TokensOf, texts: Iterable[str]) -> list[int]:
    """Return the tokens of all strings that are one token, without duplicates."""
    several = map(tokens_of, texts)
    return list(dict.fromkeys(tokens[0] for tokens in several if len(tokens) == 1))
