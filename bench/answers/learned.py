"""Methods that learn from labelled rows. The model reads each row once for all of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from eliza_ffi.decisions import calibrate
from eliza_ffi.decisions.asking import WantedHidden
from eliza_ffi.decisions.auto_prompts import settings_of_prompts
from eliza_ffi.decisions.examples import ask_examples
from eliza_ffi.decisions.learning import fitting
from eliza_ffi.decisions.learning.heads import candidate_layers
from eliza_ffi.decisions.scoring import QuestionScores
from eliza_ffi.model import Model

from .datasets import Question

if TYPE_CHECKING:
    from .methods import Ask, Subject
    from .metrics import Probabilities


class RowReader:
    """Reads what `calibrate` reads about an input after the default prompt, once for each input."""

    def __init__(self, model: Model, question: Question) -> None:
        self._model, self._question = model, question
        self._known: dict[Any, QuestionScores] = {}
        self._how = settings_of_prompts(model.session, [question], {}, inputs=["a test"] * 2)
        self.layers = tuple(candidate_layers(model.session.hidden_shape[0]))
        self._hidden = WantedHidden((self.layers,), (True,))

    def __call__(self, texts: Sequence[str]) -> list[QuestionScores]:
        """Return scores and hidden states."""
        return self._read(texts, self._how, whole=False, hidden=self._hidden)

    def ask_examples(
        self,
        model: Model,
        inputs: Sequence[str],
        questions: Any,
        wanted: Any,
        how: Any,
        **more: Any,
    ) -> Any:
        """Take the place of the function that `calibrate` calls."""
        return [self._read(inputs, how, **more)], wanted

    def _read(self, texts: Sequence[str], how: Any, **more: Any) -> list[QuestionScores]:
        kind = how, more["whole"], more.get("hidden")
        new = [text for text in texts if (text, kind) not in self._known]
        if new:
            wanted = np.full((len(new), 1), True)
            (found,), _ = ask_examples(self._model, new, [self._question], wanted, how, **more)
            self._known |= {(text, kind): each for text, each in zip(new, found, strict=True)}
        return [self._known[text, kind] for text in texts]


@lru_cache(maxsize=1)
def _reader_of(subject: Subject) -> RowReader:
    return RowReader(subject.model, subject.data.question)


def open_calibrated(n: int, subject: Subject, _: ExitStack) -> Ask:
    """Fit the calibration that `calibrate` selects with the first `n` labelled rows."""
    reader, data = _reader_of(subject), subject.data
    with patch.object(fitting, "ask_examples", reader.ask_examples):
        (fitted,) = calibrate(subject.model, {"q": data.question}, data.train[:n]).questions

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        return np.exp([fitted.apply(each, "constrained") for each in reader(texts)])

    return ask


def open_brier(n: int, subject: Subject, _: ExitStack) -> Ask:
    """Fit brier's head, with brier's code, to the same hidden states.

    brier itself opens models with transformers and torch, and writes prompts of its own.
    """
    select: Any = importlib.import_module("brier.heads.select")
    reader, data = _reader_of(subject), subject.data
    blocks = [layer - 1 for layer in reader.layers[:-1]]  # without the final norm's output

    def read(texts: Sequence[str]) -> Any:
        return np.stack([each.hidden[:-1] for each in reader(texts) if each.hidden is not None])

    train = data.train[:n]
    states = read([text for text, _ in train])
    fitted = select.select_head(states, blocks, data.targets(train), len(data.values))
    place = blocks.index(fitted.layer)

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        found: Probabilities = np.exp(fitted.log_probs(read(texts)[:, place]))
        return found

    return ask
