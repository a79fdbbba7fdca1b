"""Tokenized label sets: prepared explicitly, or cached for repeated calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from ..checks import check_kind
from ..errors import InvalidArgumentError
from ..library.protocol import PreparedChoices
from .label_set import LabelSet

T = TypeVar("T")

MAX_SETS = 128
"""The maximum number of cached label sets."""

MAX_CHOICES = 1_000_000
"""The maximum number of labels in all cached label sets together."""


class PreparedLabels(LabelSet[T]):
    """A label set that has already been tokenized for one model.

    :meth:`~eliza_ffi.model.Model.prepare_labels` creates it. During its lifetime, the library uses
    200 to 350 bytes of memory for each label.

    >>> labels = model.prepare_labels(["pet > cat", "pet > dog"])
    >>> labels.index_of("pet > dog"), labels.keys[1], labels.hierarchy(" > ").depth
    (1, 'pet > dog', 2)

    Parameters
    ----------
    choices
        The labels.
    cache
        The model's cache.
    """

    def __init__(self, choices: LabelSet[T], cache: ChoiceCache) -> None:
        check_kind("choices", choices, LabelSet, "a LabelSet")
        check_kind(
            "cache", cache, ChoiceCache, "a model's ChoiceCache", "use Model.prepare_labels()"
        )
        super().__init__(choices.values, choices.texts)
        self._tokens = {"": cache.prepare(choices, "")}
        self._made_by = weakref.ref(cache)

    def tokens_for(self, cache: ChoiceCache, lead: str = "") -> PreparedChoices:
        """Return the tokenized labels, with `lead` before each; the tokens are kept for reuse."""
        if self._made_by() is not cache:
            raise InvalidArgumentError(
                "the labels were prepared for another model; prepare them with this model"
            )
        if lead not in self._tokens:
            self._tokens[lead] = cache.prepare(self, lead)
        return self._tokens[lead]

    def __repr__(self) -> str:
        return f"PreparedLabels({len(self.texts)} labels)"


class ChoiceCache:
    """The most recently used label sets of one model, tokenized. The cache is thread-safe."""

    def __init__(self, prepare: Callable[[LabelSet[Any], str], PreparedChoices]) -> None:
        self.prepare = prepare
        self._of_texts: dict[tuple[tuple[str, ...], str], PreparedChoices] = {}
        self._lock = threading.Lock()

    def tokens_of(self, choices: LabelSet[Any], lead: str = "") -> PreparedChoices:
        """Return the tokens of a label set, from the cache if possible, with `lead`, such as a
        space, before each label."""
        if isinstance(choices, PreparedLabels):
            return choices.tokens_for(self, lead)
        key = choices.texts, lead
        with self._lock:
            tokens = self._of_texts.pop(key, None)
            if tokens is not None:
                # Insert the set at the end, so that the least recently used set is the first.
                self._of_texts[key] = tokens
                return tokens
        tokens = self.prepare(choices, lead)
        with self._lock:
            self._of_texts[key] = tokens
            n_choices = sum(len(texts) for texts, _ in self._of_texts)
            while len(self._of_texts) > (1 if n_choices > MAX_CHOICES else MAX_SETS):
                oldest = next(iter(self._of_texts))
                n_choices -= len(oldest[0])
                del self._of_texts[oldest]
        return tokens

    def has(self, choices: LabelSet[Any]) -> bool:
        return isinstance(choices, PreparedLabels) or (choices.texts, "") in self._of_texts

    def clear(self) -> None:
        """Empty the cache. `PreparedLabels` keep their tokens."""
        with self._lock:
            self._of_texts.clear()
