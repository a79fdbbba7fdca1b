"""From strings or an enum to token sequences, and from generated tokens back to the choice."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from ..errors import ContextFullError, InvalidArgumentError, NativeFault
from ..runner.arguments import FfiStreamingResult
from .token_tree import TokenTreePayload, build_token_tree_descriptor

__all__ = ["Choice", "ChoiceSet", "as_choice_set", "tokenize_choice"]

T = TypeVar("T")

ANCHOR = "\n"
"""A text in front of a choice that no tokenizer merges with what follows."""


@dataclass(frozen=True)
class Choice(Generic[T]):
    """What the model chose.

    Attributes
    ----------
    value : str or enum member
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
    probabilities : tuple of float or None
        The probability of every choice, in the order they were given; None unless asked for.
    """

    value: T
    index: int
    text: str
    logprob: float
    tokens: tuple[int, ...]
    forward_passes: int
    elapsed: float
    probabilities: tuple[float, ...] | None = None

    @property
    def probability(self) -> float:
        """The choice's probability among the choices, 0 to 1."""
        return math.exp(self.logprob)


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


class ChoiceSet(Generic[T]):
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
        if not texts:
            raise InvalidArgumentError("there is nothing to choose from: no choices were given")
        seen: dict[str, int] = {}
        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(f"choices[{i}] must be a non-empty string, not {text!r}")
            if text in seen:
                raise InvalidArgumentError(
                    f"choices[{i}] is {text!r}, the same as choices[{seen[text]}]"
                )
            seen[text] = i
        self.values = tuple(values)
        self.texts = tuple(texts)

    def payload(
        self,
        tokenize: Callable[[str], Sequence[int]],
        detokenize: Callable[[Sequence[int]], str],
        model_id: str = "",
        path: str = "choice",
    ) -> TokenTreePayload:
        """Return the payload that constrains a generation to these choices."""
        descriptor = build_token_tree_descriptor(
            path, self.texts, lambda text: tokenize_choice(text, tokenize, detokenize)
        )
        return TokenTreePayload(model_id, (descriptor,))

    def choice(
        self, result: FfiStreamingResult, payload: TokenTreePayload | None, elapsed: float
    ) -> Choice[T]:
        """Return which of the choices was generated.

        `payload` is what constrained it; None where text choices did.

        Raises
        ------
        ContextFullError
            If the context was full before the choice was made.
        InvalidArgumentError
            If `max_tokens` ended the generation before that.
        NativeFault
            If it was none of the choices.
        """
        # First, because what was cut off within one choice may spell another in full.
        if result.finish_reason == "context_full":
            raise ContextFullError(
                f"the context was full inside the choice, after {result.text!r}: "
                f"shorten the prompt or raise n_ctx"
            )
        if result.finish_reason == "length":
            room = "" if payload is None else f" or raise it to {_longest(payload)}"
            raise InvalidArgumentError(
                f"max_tokens ended the generation inside the choice, after {result.text!r}: "
                f"leave it at 0{room}"
            )
        name: str | None
        if payload is None:
            name = None if result.leaf is None else result.leaf.name
        else:
            of_tokens = {leaf.tokens: leaf.name for leaf in payload.leaves()}
            name = of_tokens.get(result.tokens)
        if name is None:
            raise NativeFault(
                f"the generation ended ({result.finish_reason}) on {result.text!r}, "
                f"which is none of the {len(self.texts)} choices"
            )
        index = self.texts.index(name)
        stats = result.stats
        return Choice(
            value=self.values[index],
            index=index,
            text=result.text,
            logprob=math.nan if result.leaf is None else result.leaf.logprob,
            tokens=result.tokens,
            forward_passes=-1 if stats is None else stats.passes_after_prompt,
            elapsed=elapsed,
            probabilities=self._probabilities(result, payload),
        )

    def _probabilities(
        self, result: FfiStreamingResult, payload: TokenTreePayload | None
    ) -> tuple[float, ...] | None:
        if result.leaf_logprobs is None or payload is None:
            return None
        names = [leaf.name for leaf in payload.leaves()]
        of_name = dict(zip(names, np.exp(result.leaf_logprobs).tolist(), strict=True))
        return tuple(of_name[text] for text in self.texts)


def _longest(payload: TokenTreePayload) -> str:
    return f"the longest choice's {max(len(leaf.tokens) for leaf in payload.leaves())} tokens"


E_ = TypeVar("E_", bound=enum.Enum)


def enum_choices(members: type[E_]) -> ChoiceSet[E_]:
    """Return the choices of an enum: a member is spelled by its value if that is a string, else
    by its name.
    """
    listed = list(members)
    texts = [member.value if isinstance(member.value, str) else member.name for member in listed]
    return ChoiceSet(listed, texts)


def string_choices(texts: Iterable[str]) -> ChoiceSet[str]:
    """Return the choices of some strings."""
    if isinstance(texts, str):
        raise InvalidArgumentError(f"choices must be several strings, not the one string {texts!r}")
    listed = list(texts)
    return ChoiceSet(listed, listed)


def as_choice_set(choices: type[enum.Enum] | Iterable[str] | None) -> ChoiceSet[Any]:
    """Return the choices of an enum class or of some strings."""
    if choices is None:
        raise InvalidArgumentError("there are no choices: pass strings or an enum class")
    if isinstance(choices, type) and issubclass(choices, enum.Enum):
        return enum_choices(choices)
    return string_choices(choices)
