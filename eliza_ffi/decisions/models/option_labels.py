"""The labels that models made for decisions answer with: texts that are one token each.

Which texts these are a model's type says; which of them are one token, its vocabulary.
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
"""From a plain text that goes on from another one to tokens."""

MAX_LABELS = 255


class OptionLabel(NamedTuple):
    """What stands for an option.

    Attributes
    ----------
    text : str
    tokens : tuple of int
        Those that are read; the likeliest counts.
    """

    text: str
    tokens: tuple[int, ...]


def letter_labels(tokens_of: TokensOf) -> list[OptionLabel]:
    """Return A to Z and a to z.

    Raises
    ------
    ModelError
        If one of them is not a single token.
    """
    labels = []
    for letter in string.ascii_letters[26:] + string.ascii_letters[:26]:
        tokens = tokens_of(letter)
        if len(tokens) != 1:
            raise ModelError(f"the label {letter!r} is {len(tokens)} tokens, and must be one")
        labels.append(OptionLabel(letter, tuple(tokens)))
    return labels


def code_labels(tokens_of: TokensOf) -> list[OptionLabel]:
    """Return those of A to Z and AA to ZZ that are one token, the first 255."""
    labels: list[OptionLabel] = []
    for code in (*string.ascii_uppercase, *_pairs()):
        tokens = tokens_of(code)
        if len(tokens) == 1:
            labels.append(OptionLabel(code, tuple(tokens)))
            if len(labels) == MAX_LABELS:
                break
    return labels


def typed_labels(tokens_of: TokensOf, question: SystemoneQuestion) -> list[OptionLabel]:
    """Return labels that depend on a question: yes and no, digits, or a code for each option.

    Raises
    ------
    ModelError
        If a label that has no substitute is not one token.
    InvalidArgumentError
        If there are not enough codes of one token.
    """
    if question.type == "choice":
        return _codes(tokens_of, [key for key, _ in question.options])
    labels = []
    for key, _ in question.options:
        spellings = YES_NO[key] if question.type == "noul" else (key,)
        tokens = _single(tokens_of, spellings)
        if not tokens:
            raise ModelError(f"the label {spellings[0]!r} is not one token")
        labels.append(OptionLabel(key, tuple(tokens)))
    return labels


YES_NO = {"true": ("yes", "Yes", "YES"), "false": ("no", "No", "NO")}


def _codes(tokens_of: TokensOf, keys: list[str]) -> list[OptionLabel]:
    """Return a code for each key: the first of those that suit it which is one token and free."""
    labels: list[OptionLabel] = []
    taken: set[int] = set()
    substitutes = _substitutes()  # what was refused once is refused again
    for suited in _suited(keys):
        for code in itertools.chain((suited,), substitutes):
            tokens = tokens_of(code)
            if len(tokens) == 1 and tokens[0] not in taken:
                taken.add(tokens[0])
                behind_space = [t for t in _single(tokens_of, (" " + code,)) if t != tokens[0]]
                labels.append(OptionLabel(code, (tokens[0], *behind_space)))
                break
        else:
            raise InvalidArgumentError(f"the model has too few labels for {len(keys)} options")
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
    """Return the tokens of those texts that are one, without repetition."""
    several = map(tokens_of, texts)
    return list(dict.fromkeys(tokens[0] for tokens in several if len(tokens) == 1))
