"""What can be chosen from, what stands for it in tokens, and what was chosen."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from ..checks import check_callable, check_several, check_text, short_repr, wrong
from ..errors import InvalidArgumentError
from ..library.protocol import StreamStats
from .token_tree import TokenTreePayload, build_token_tree_descriptor

__all__ = ["ChoiceResult", "LabelSet", "as_label_set", "tokenize_choice"]

T = TypeVar("T")

EXPECTED = "a list of strings, an enum class, a mapping from labels to values, bool or a Literal"
"""Everything that can be chosen from, for errors."""

ANCHOR = "\n"
"""A text in front of a choice that no tokenizer merges with what follows."""


@dataclass(frozen=True)
class ChoiceResult(Generic[T]):
    """What the model chose.

    Attributes
    ----------
    value : T
        A string, an enum's member, a bool, or what the label stands for.
    index : int
        Its place among the choices as they were given, from 0.
    text : str
        What was generated.
    logprob : float
        Natural logarithm of the choice's probability among the choices; nan if the library
        cannot say.
    tokens : tuple of int
    forward_passes : int
        Passes through the model beyond those of the prompt; -1 if the library does not count.
    elapsed : float
        Seconds from the prompt's tokens to the choice, prefill included.
    probabilities : mapping from T to float, or None
        The probability of every value, in the order they were given; None unless asked for. Where
        values cannot be keys, or two are equal, their labels are.
    stats : StreamStats or None
        What it took: passes, microseconds, tokens found in the KV cache; None where the library
        does not count.
    """

    value: T
    index: int
    text: str
    logprob: float
    tokens: tuple[int, ...]
    forward_passes: int
    elapsed: float
    probabilities: Mapping[T, float] | None = None
    stats: StreamStats | None = None

    @property
    def probability(self) -> float:
        """The choice's probability among the choices, 0 to 1."""
        return math.exp(self.logprob)

    @property
    def confidence(self) -> float:
        """How far the likeliest choice is above chance, 0 (all are as likely) to 1.

        With n choices (p - 1/n) / (1 - 1/n), p being the highest probability; 1 for a single one.

        Raises
        ------
        InvalidArgumentError
            If probabilities were not asked for.
        """
        highest = max(self._all_probabilities().values())
        chance = 1 / len(self._all_probabilities())
        return 1.0 if chance == 1.0 else max(0.0, (highest - chance) / (1.0 - chance))

    def ranked(self) -> list[tuple[T, float]]:
        """Return all values with their probabilities, the likeliest first.

        Raises
        ------
        InvalidArgumentError
            If probabilities were not asked for.
        """
        items = self._all_probabilities().items()
        return sorted(items, key=lambda item: item[1], reverse=True)

    def _all_probabilities(self) -> Mapping[T, float]:
        if self.probabilities is None:
            raise InvalidArgumentError(
                "the probabilities are not known: choose with probabilities=True"
            )
        return self.probabilities

    def __repr__(self) -> str:
        return f"ChoiceResult({short_repr(self.value)}, probability {self.probability:.3g})"


def tokenize_choice(
    choice: str,
    tokenize: Callable[[str], Sequence[int]],
    detokenize: Callable[[Sequence[int]], str],
) -> tuple[int, ...]:
    """Return the tokens of a choice as they stand in the middle of a text.

    Most tokenizers give them for the choice alone. SentencePiece models put a space in front of
    whatever a text begins with, which would make the choice ``" RESPOND"``; for those the choice is
    tokenized behind a line break, whose tokens are then taken off again.

    Parameters
    ----------
    choice
        A non-empty text.
    tokenize, detokenize
        The model's own, without special tokens.

    Raises
    ------
    InvalidArgumentError
        If no tokens spell exactly the choice.
    """
    check_text("choice", choice)
    check_callable("tokenize", tokenize)
    check_callable("detokenize", detokenize)
    anchor = list(tokenize(ANCHOR))
    behind_anchor = list(tokenize(ANCHOR + choice))
    candidates = [list(tokenize(choice))]
    if behind_anchor[: len(anchor)] == anchor:
        candidates.append(behind_anchor[len(anchor) :])
    for tokens in candidates:
        # Alone, a leading space is dropped by detokenize as well: only behind the anchor it shows.
        if tokens and detokenize(anchor + tokens) == ANCHOR + choice:
            return tuple(tokens)
    raise InvalidArgumentError(
        f"the model's tokenizer cannot spell the choice {choice!r} exactly; "
        f"the nearest it has is {detokenize(candidates[0])!r}"
    )


class LabelSet(Generic[T]):
    """The choices of one decision.

    Parameters
    ----------
    values
        What is given back, in the caller's order.
    texts
        What the model spells, one for each value.

    Raises
    ------
    InvalidArgumentError
        If there are none, one is empty, or two are the same.
    """

    def __init__(self, values: Sequence[T], texts: Sequence[str]) -> None:
        values = tuple(check_several("values", values, "a list"))
        texts = tuple(check_several("texts", texts, "a list of strings"))
        if not texts:
            raise InvalidArgumentError("there is nothing to choose from: no labels were given")
        if len(values) != len(texts):
            raise InvalidArgumentError(
                f"values must be as many as texts, {len(texts)}, got {len(values)}"
            )
        seen: dict[str, int] = {}
        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise wrong(f"labels[{i}]", "a non-empty string", text)
            if text in seen:
                raise InvalidArgumentError(
                    f"labels[{i}] is {text!r}, the same as labels[{seen[text]}]"
                )
            seen[text] = i
        self.values = values
        self.texts = texts
        self._place_of = seen

    def place_of(self, text: str) -> int | None:
        """Return the place of a text among the choices, from 0; None if it is none of them."""
        return self._place_of.get(check_text("text", text))

    @property
    def keys(self) -> tuple[Any, ...]:
        """What tells the choices apart: the values, or their texts where values cannot."""
        try:
            return self.values if len(set(self.values)) == len(self.values) else self.texts
        except TypeError:  # one cannot be hashed
            return self.texts

    def payload(
        self,
        tokenize: Callable[[str], Sequence[int]],
        detokenize: Callable[[Sequence[int]], str],
        model_id: str = "",
        path: str = "choice",
    ) -> TokenTreePayload:
        """Return the payload that constrains a generation to these choices."""
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        descriptor = build_token_tree_descriptor(
            path, self.texts, lambda text: tokenize_choice(text, tokenize, detokenize)
        )
        return TokenTreePayload(model_id, (descriptor,))


E_ = TypeVar("E_", bound=enum.Enum)


def enum_choices(members: type[E_]) -> LabelSet[E_]:
    """Return the choices of an enum: a member is spelled by its value if that is a string, else
    by its name.
    """
    listed = list(members)
    return LabelSet(listed, [_text_of_member(member) for member in listed])


def _text_of_member(member: enum.Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name


def string_choices(texts: Iterable[str]) -> LabelSet[str]:
    """Return the choices of some strings."""
    listed = list(check_several("labels", texts, EXPECTED))
    return LabelSet(listed, listed)


def mapped_choices(of_label: Mapping[str, T]) -> LabelSet[T]:
    """Return the choices of labels that stand for values."""
    return LabelSet(list(of_label.values()), list(of_label))


def bool_choices() -> LabelSet[bool]:
    """Return the choice between ``true`` and ``false``."""
    return LabelSet([True, False], ["true", "false"])


def literal_choices(literal: Any) -> LabelSet[Any]:
    """Return the choices of a ``Literal[...]``: its strings, its enum members, or both bools."""
    values = get_args(literal)
    texts = [_text_of_literal(value) for value in values]
    return LabelSet(values, texts)


def _text_of_literal(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return _text_of_member(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidArgumentError(f"a Literal with {value!r} in it cannot be chosen from")


def as_label_set(choices: Any) -> LabelSet[Any]:
    """Return the choices of whatever may be given as choices.

    Parameters
    ----------
    choices
        Distinct non-empty strings; an enum class; a mapping from labels to values; ``bool``; a
        ``Literal[...]``; a `LabelSet`.

    Raises
    ------
    InvalidArgumentError
        If it is none of these, or there is nothing in it.
    """
    if isinstance(choices, LabelSet):
        return choices
    if choices is bool:
        return bool_choices()
    if isinstance(choices, type) and issubclass(choices, enum.Enum):
        return enum_choices(choices)
    if get_origin(choices) is Literal:
        return literal_choices(choices)
    if isinstance(choices, Mapping):
        return mapped_choices(choices)
    return string_choices(choices)
