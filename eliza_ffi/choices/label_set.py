"""Label sets, the tokens of a label, and the result of a choice."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from ..checks import (
    check_callable,
    check_ordered,
    check_several,
    check_text,
    check_unicode,
    short_repr,
    wrong,
)
from ..errors import InvalidArgumentError
from ..library.protocol import StreamStats
from .hierarchy import Hierarchy
from .token_tree import TokenTreePayload, build_token_tree_descriptor

T = TypeVar("T")

EXPECTED = "a list of strings, an enum class, bool or a Literal"
"""The accepted kinds of label sets, for error messages."""

ANCHOR = "\n"
"""A prefix that no tokenizer merges with the label after it."""


@dataclass(frozen=True)
class ChoiceResult(Generic[T]):
    """The label that the model chose, and its probability.

    >>> result = model.choose("A pet is a ", ["cat", "horse"], probabilities=True)
    >>> result.ranked()[0] == (result.value, result.probabilities["cat"])
    True
    >>> 0 < result.confidence < result.probability < 1
    True

    Attributes
    ----------
    value : T
        The value of the chosen label: a string, an enum member, a bool, or a value of the
        ``Literal``.
    index : int
        The position of the label in the given order, from 0.
    text : str
        The label as the model generated it.
    logprob : float
        The natural logarithm of the label's probability among all labels; nan if the library does
        not report it.
    tokens : tuple of int
        The tokens of the label; empty if the choice adds up all its spellings
        (``tokenization="any"`` and ``mode="best"``).
    forward_passes : int
        The number of forward passes after the prompt was decoded; -1 if the library does not count
        them.
    seconds : float
        Seconds from the tokenized prompt to the result, prefill included.
    probabilities : mapping from T to float, or None
        The probability of every value, in the given order; None without ``probabilities=True``. The
        keys are the labels if the values cannot be keys or if two values are equal.
    stats : StreamStats or None
        Forward passes, microseconds and tokens reused from the KV cache; None if the library does
        not count them.
    proven : bool
        Whether no other label can be more probable. False if ``mode="greedy"`` or ``mode="sample"``
        chose a label whose probability is less than one half, and the others are not known.
    reasoning : str or None
        What the model wrote before the choice; None without ``think=``.
    """

    value: T
    index: int
    text: str
    logprob: float
    tokens: tuple[int, ...]
    forward_passes: int
    seconds: float
    probabilities: Mapping[T, float] | None = None
    stats: StreamStats | None = None
    proven: bool = False
    reasoning: str | None = None

    @property
    def probability(self) -> float:
        """The label's probability among all labels, 0 to 1."""
        return math.exp(self.logprob)

    @property
    def confidence(self) -> float:
        """How far the highest probability is above chance: 0 (all labels equally likely) to 1.

        The formula is in :func:`~eliza_ffi.decisions.choice_confidence`.

        Raises
        ------
        InvalidArgumentError
            If the result has no `probabilities`.
        """
        highest = max(self._all_probabilities().values())
        chance = 1 / len(self._all_probabilities())
        return 1.0 if chance == 1.0 else max(0.0, (highest - chance) / (1.0 - chance))

    def ranked(self) -> list[tuple[T, float]]:
        """Return all values with their probabilities, in descending order of probability.

        Raises
        ------
        InvalidArgumentError
            If the result has no `probabilities`.
        """
        items = self._all_probabilities().items()
        return sorted(items, key=lambda item: item[1], reverse=True)

    def _all_probabilities(self) -> Mapping[T, float]:
        if self.probabilities is None:
            raise InvalidArgumentError(
                "the result has no probabilities: call choose() with probabilities=True"
            )
        return self.probabilities

    def __repr__(self) -> str:
        return f"ChoiceResult({short_repr(self.value)}, probability {self.probability:.3g})"


def tokenize_choice(
    choice: str,
    tokenize: Callable[[str], Sequence[int]],
    detokenize: Callable[[Sequence[int]], str],
) -> tuple[int, ...]:
    """Return the tokens that a label has after other text, such as a prompt.

    With most tokenizers, these are the tokens of the label on its own. SentencePiece tokenizers put
    a space before the first word of their input, so ``"RESPOND"`` would become ``" RESPOND"``. For
    these tokenizers, the label is tokenized after a line break, and the tokens of the line break
    are removed from the result.

    >>> model.detokenize(tokenize_choice("REPLY", model.tokenize, model.detokenize))
    'REPLY'

    Parameters
    ----------
    choice
        The label, a non-empty string.
    tokenize, detokenize
        The model's tokenizer and detokenizer, without special tokens.

    Raises
    ------
    InvalidArgumentError
        If no tokens spell the label exactly.
    """
    check_text("choice", choice)
    check_callable("tokenize", tokenize)
    check_callable("detokenize", detokenize)
    anchor = list(tokenize(ANCHOR))
    after_anchor = list(tokenize(ANCHOR + choice))
    candidates = [list(tokenize(choice))]
    if after_anchor[: len(anchor)] == anchor:
        candidates.append(after_anchor[len(anchor) :])
    for tokens in candidates:
        # `detokenize` drops a space at the beginning of its result. With the anchor before it, a
        # space at the beginning of the label is kept.
        if tokens and detokenize(anchor + tokens) == ANCHOR + choice:
            return tuple(tokens)
    raise InvalidArgumentError(
        f"the model's tokenizer cannot spell the label {choice!r} exactly; "
        f"the closest spelling is {detokenize(candidates[0])!r}"
    )


class LabelSet(Generic[T]):
    """The labels to choose from, and the value of each label.

    Parameters
    ----------
    values
        The values that results contain, in the caller's order.
    texts
        The labels that the model generates, one for each value.

    Raises
    ------
    InvalidArgumentError
        If there are no labels, if a label is empty, or if two labels are the same.
    """

    def __init__(self, values: Sequence[T], texts: Sequence[str]) -> None:
        if not isinstance(values, tuple):
            values = tuple(check_several("values", values, "a list"))
        if not isinstance(texts, tuple):
            texts = tuple(check_several("texts", texts, "a list of strings"))
        if not texts:
            raise InvalidArgumentError("there is nothing to choose from: no labels were given")
        if len(values) != len(texts):
            raise InvalidArgumentError(
                f"expected one value for each of the {len(texts)} labels, got {len(values)} values"
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
        if not "".join(texts).isascii():
            for i, text in enumerate(texts):
                check_unicode(text, f"labels[{i}]")
        self.values = values
        self.texts = texts
        self._index_of = seen
        self._hierarchy: Hierarchy | None = None

    def index_of(self, text: str) -> int | None:
        """Return the position of a label, from 0; None if `text` is not a label of this set."""
        return self._index_of.get(check_text("text", text))

    def hierarchy(self, separator: str) -> Hierarchy:
        """Return the levels of labels such as ``Electronics > Audio``, which are kept for reuse."""
        hierarchy = self._hierarchy
        check_text("separator", separator)
        if hierarchy is None or hierarchy.separator != separator:
            self._hierarchy = hierarchy = Hierarchy(self.texts, separator)
        return hierarchy

    @property
    def keys(self) -> tuple[Any, ...]:
        """The values if they are hashable and distinct; the labels otherwise."""
        try:
            return self.values if len(set(self.values)) == len(self.values) else self.texts
        except TypeError:  # a value is not hashable
            return self.texts

    def payload(
        self,
        tokenize: Callable[[str], Sequence[int]],
        detokenize: Callable[[Sequence[int]], str],
        model_id: str = "",
        path: str = "choice",
        lead: str = "",
    ) -> TokenTreePayload:
        """Return the payload that constrains a generation to these labels.

        `lead` is text before each label that has no tokens in the prompt, such as a space.
        """
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        check_text("lead", lead)
        descriptor = build_token_tree_descriptor(
            path, self.texts, lambda text: tokenize_choice(lead + text, tokenize, detokenize)
        )
        return TokenTreePayload(model_id, (descriptor,))


def as_label_set(choices: Any) -> LabelSet[Any]:
    """Convert any accepted kind of label set to a `LabelSet`.

    >>> as_label_set(bool).texts
    ('true', 'false')

    Parameters
    ----------
    choices
        Distinct non-empty strings, an enum class, ``bool``, a ``Literal[...]`` of strings, ints,
        bools and enum members, or a `LabelSet`. The label of an enum's member is its value if the
        value is a string, and its name otherwise. A mapping is rejected: everywhere else it has
        descriptions, which the model would not see here.

    Raises
    ------
    InvalidArgumentError
        If `choices` is of another kind, or has no labels.
    """
    if isinstance(choices, LabelSet):
        return choices
    if isinstance(choices, Mapping):
        raise wrong(
            "labels",
            EXPECTED,
            choices,
            "the model reads only your prompt and the labels: write descriptions into the prompt, "
            "or use decide() with a Choice, which shows them",
        )
    if choices is bool:
        values: Sequence[Any] = (True, False)
    elif isinstance(choices, type) and issubclass(choices, enum.Enum):
        values = list(choices)
    elif get_origin(choices) is Literal:
        values = get_args(choices)
    else:
        listed = tuple(check_ordered("labels", choices, EXPECTED))
        return LabelSet(listed, listed)
    return LabelSet(values, [label_text(value) for value in values])


def label_text(value: Any) -> str:
    """Return the text of an enum's member, a bool, an int or a string as a label."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidArgumentError(
        f"a Literal must consist of strings, ints, bools and enum members, got {value!r}"
    )
