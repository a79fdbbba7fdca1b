"""The payloads of choices, tokenized once for as long as the same ones keep coming."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from .choice_set import ChoiceSet
from .token_tree import TokenTreePayload

__all__ = ["ChoicePayloads"]

PAYLOADS_KEPT = 128


class ChoicePayloads:
    """The last payloads of one model; any thread may ask for one."""

    def __init__(self) -> None:
        self._of_texts: dict[tuple[str, ...], TokenTreePayload] = {}
        self._lock = threading.Lock()

    def of(
        self,
        choices: ChoiceSet[Any],
        tokenize: Callable[[str], Sequence[int]],
        detokenize: Callable[[Sequence[int]], str],
    ) -> TokenTreePayload:
        """Return the payload of some choices.

        Parameters
        ----------
        choices
        tokenize, detokenize
            The model's own, without special tokens.

        Raises
        ------
        InvalidArgumentError
            If the tokenizer cannot spell one of them.
        """
        with self._lock:
            payload = self._of_texts.pop(choices.texts, None)
            if payload is not None:
                self._of_texts[choices.texts] = payload  # the least recently used comes first
                return payload
        payload = choices.payload(tokenize, detokenize)
        with self._lock:
            self._of_texts[choices.texts] = payload
            if len(self._of_texts) > PAYLOADS_KEPT:
                del self._of_texts[next(iter(self._of_texts))]
        return payload
