"""Choices as a model's tokens: prepared by hand, or kept while the same ones keep coming."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ..checks import check_callable, check_kind
from ..errors import InvalidArgumentError
from ..library.protocol import PreparedChoices
from .label_set import LabelSet
from .token_tree import TokenTreePayload

__all__ = ["ChoiceCache", "ChoiceTokens", "PreparedLabels"]

T = TypeVar("T")

SETS_KEPT = 128
CHOICES_KEPT = 1_000_000
"""At most so many sets, and so many choices in them together."""

ChoiceTokens: TypeAlias = "PreparedChoices | TokenTreePayload"
"""In the library, or on the way to one that cannot keep them."""


class PreparedLabels(LabelSet[T]):
    """A label set in one model's tokens, which can be chosen from without further preparation.

    :meth:`~eliza_ffi.model.Model.prepare_labels` makes it. As long as it lives, the library keeps
    about 40 bytes for each token of each label.

    Parameters
    ----------
    choices
    cache
        Of the model.
    """

    def __init__(self, choices: LabelSet[T], cache: ChoiceCache) -> None:
        check_kind("choices", choices, LabelSet, "a LabelSet")
        check_kind(
            "cache", cache, ChoiceCache, "a model's ChoiceCache", "use Model.prepare_labels()"
        )
        super().__init__(choices.values, choices.texts)
        self._tokens = cache.prepare(choices)
        self._made_by = weakref.ref(cache)

    def tokens_for(self, cache: ChoiceCache) -> ChoiceTokens:
        """Return its tokens.

        Raises
        ------
        InvalidArgumentError
            If `cache` is not that of its model.
        """
        if self._made_by() is not cache:
            raise InvalidArgumentError(
                "the choices were prepared for another model; prepare them with this model"
            )
        return self._tokens

    def __repr__(self) -> str:
        return f"PreparedLabels({len(self.texts)} choices)"


class ChoiceCache:
    """The tokens of the choices that one model was asked for last; any thread may ask for some.

    Parameters
    ----------
    prepare
        Cuts choices into tokens.

    Attributes
    ----------
    prepare : callable
        The same, without keeping them here.
    """

    def __init__(self, prepare: Callable[[LabelSet[Any]], ChoiceTokens]) -> None:
        check_callable("prepare", prepare)
        self.prepare = prepare
        self._of_texts: dict[tuple[str, ...], ChoiceTokens] = {}
        self._lock = threading.Lock()

    def tokens_of(self, choices: LabelSet[Any]) -> ChoiceTokens:
        """Return the tokens of some choices.

        Raises
        ------
        InvalidArgumentError
            If the tokenizer cannot spell one of them, or another model prepared them.
        """
        if isinstance(choices, PreparedLabels):
            return choices.tokens_for(self)
        texts = check_kind("choices", choices, LabelSet, "a LabelSet").texts
        with self._lock:
            tokens = self._of_texts.pop(texts, None)
            if tokens is not None:
                self._of_texts[texts] = tokens  # the least recently used comes first
                return tokens
        tokens = self.prepare(choices)
        with self._lock:
            self._of_texts[texts] = tokens
            while self._is_too_full():
                del self._of_texts[next(iter(self._of_texts))]
        return tokens

    def has(self, choices: LabelSet[Any]) -> bool:
        """Return whether the tokens of some choices are there already."""
        check_kind("choices", choices, LabelSet, "a LabelSet")
        return isinstance(choices, PreparedLabels) or choices.texts in self._of_texts

    def clear(self) -> None:
        """Forget all of them. Prepared labels keep theirs."""
        with self._lock:
            self._of_texts.clear()

    def _is_too_full(self) -> bool:
        n_choices = sum(map(len, self._of_texts))
        return len(self._of_texts) > SETS_KEPT or (
            n_choices > CHOICES_KEPT and len(self._of_texts) > 1
        )
