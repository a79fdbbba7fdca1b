"""Hidden states of the prompts of a question: what a head sees of an input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...session.batches import RunJob, run_many
from ..prompt_settings import PromptSettings
from ..prompt_tokens import tokens_of_prompts
from ..prompts import AskedQuestion, ask, input_text

__all__ = ["RowReader"]


class RowReader:
    """Reads the hidden state after the prompt of a question, for each of many inputs.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`.
    question
    how
        The settings of the prompts. The tokens that all prompts begin with are read once, and stay
        in the KV cache.
    """

    def __init__(self, model: Any, question: AskedQuestion, how: PromptSettings) -> None:
        self._jobs, self._session = model._jobs, model.session
        self._asked, self._how = ask(question, how.labels), how
        self._n_common: int | None = None

    def read(
        self,
        inputs: Sequence[Any],
        layers: Sequence[int],
        progress: Callable[[int, int | None], Any] | None = None,
    ) -> NDArray[np.float32]:
        """Return the hidden states, shape [n_layers, n_inputs, n_embd].

        Raises
        ------
        InvalidArgumentError, ContextFullError
            If an input is malformed or too long.
        """
        if self._n_common is None:
            self._n_common = _length_shared(self._tokens("a"), self._tokens("Two."))

        def start(given: Any) -> RunJob[NDArray[np.float32]]:
            tokens = self._tokens(input_text(given))
            work = self._jobs.hidden_states(tokens, layers, 1, None, n_kept=self._n_common)
            return RunJob(lambda: self._session.result(work, True), work.cancel)

        found = run_many(
            inputs,
            start,
            at_once=self._session.decisions_at_once(None),
            total=len(inputs),
            progress=progress,
            return_exceptions=False,
        )
        return np.concatenate(found, axis=1)

    def _tokens(self, text: str) -> Sequence[int]:
        (prompt,) = tokens_of_prompts(self._session, [text], [self._asked], self._how)
        return list(prompt.tokens)


def _length_shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
