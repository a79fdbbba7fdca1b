"""Methods that learn from rows. The models read each row once for all methods and samples."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from unittest.mock import patch

import numpy as np
from fetch_real_models import fetch

from eliza_ffi.decisions.fingerprint import fingerprint_of
from eliza_ffi.evidence.auto_prompts import settings_of_prompts
from eliza_ffi.evidence.calibration import Calibration
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.question_plan import WantedHidden
from eliza_ffi.evidence.scoring import QuestionScores
from eliza_ffi.learning import calibrate, fitting
from eliza_ffi.learning.examples import ask_examples
from eliza_ffi.learning.fitting import heads_of
from eliza_ffi.learning.heads import Group, features_of
from eliza_ffi.model import Model

from .datasets import Question

if TYPE_CHECKING:
    from .methods import Ask, Subject
    from .metrics import Probabilities

OpenModel: TypeAlias = "Callable[[Subject, ExitStack], Model]"
"""Opens the model of a method, which the stack closes."""

Readings: TypeAlias = "dict[Any, QuestionScores]"
"""What models have read about the inputs of a data set."""


def own_model(subject: Subject, stack: ExitStack) -> Model:
    return subject.model


def open_encoder(subject: Subject, stack: ExitStack) -> Model:
    return stack.enter_context(Model(fetch("minilm"), n_threads=subject.n_threads))


def open_both(subject: Subject, stack: ExitStack) -> Model:
    encoder = fetch("minilm")
    return stack.enter_context(Model(subject.path, encoder=encoder, n_threads=subject.n_threads))


class RowReader:
    """Reads what `calibrate` reads about an input after the default prompt, once for each input.

    Without an encoder, `model` does not read: what `reads`, the same model with an encoder, has
    read is used without the encoder's part.
    """

    def __init__(self, model: Model, reads: Model, question: Question, known: Readings) -> None:
        self.model, self._reads, self._question, self._known = model, reads, question, known
        self._how = settings_of_prompts(reads.session, [question], {}, inputs=["a test"] * 2)
        self._features = features_of(heads_of(reads))
        self._fingerprint = fingerprint_of(reads)

    def __call__(
        self, texts: Sequence[str], features: Sequence[Feature] = ()
    ) -> list[QuestionScores]:
        """Return scores and some features."""
        is_usual = {*features} <= {*self._features}
        every = self._features if is_usual else tuple(features)
        kind = self._fingerprint, every
        if new := [text for text in dict.fromkeys(texts) if (text, kind) not in self._known]:
            hidden, wanted = WantedHidden((every,), (True,)), np.full((len(new), 1), True)
            (found,), _ = ask_examples(
                self._reads, new, [self._question], wanted, self._how, whole=False, hidden=hidden
            )
            self._known |= {(text, kind): each for text, each in zip(new, found, strict=True)}
        places = [every.index(each) for each in features]
        less: dict[str, Any] = {} if self._reads is self.model else {"evidence": None}
        return [
            replace(each, hidden=cast(Any, each.hidden)[places], **less)
            for each in (self._known[text, kind] for text in texts)
        ]

    def ask_examples(self, _: Any, inputs: Sequence[str], *args: Any, **more: Any) -> Any:
        """Take the place of the function that `calibrate` calls."""
        wanted, hidden = args[1], more["hidden"]
        texts = [inputs[row] for row in np.flatnonzero(wanted[:, 0]).tolist()]
        return [self(texts, () if hidden is None else hidden.features[0])], wanted


class FromReadings:
    """Answers from readings, with a calibration if there is anything to fit it to."""

    def __init__(self, reader: RowReader, rows: Sequence[Any] = (), **more: Any) -> None:
        self._reader = reader
        self.calibration: Calibration | None = None
        if rows or more:
            with patch.object(fitting, "ask_examples", reader.ask_examples):
                self.calibration = calibrate(reader.model, {"q": reader._question}, rows, **more)

    def __call__(self, question: Question, texts: Sequence[str]) -> Probabilities:
        if self.calibration is None:
            return np.exp([each.log_probabilities("constrained") for each in self._reader(texts)])
        (fitted,) = self.calibration.questions
        scores = self._reader(texts, fitted.features)
        return np.exp([fitted.apply(each, "constrained") for each in scores])

    def decide(self, question: Question, texts: Sequence[str]) -> None:
        """Answer as users do, to measure the time."""
        self._reader.model.decide_many(texts, {"q": question}, calibration=self.calibration)


@lru_cache(maxsize=4)
def _reader_of(subject: Subject, stack: ExitStack, open_model: OpenModel) -> RowReader:
    """Return the reader of a model. All methods of a subject have the same stack."""
    model = reads = open_model(subject, stack)
    if model is subject.model:
        reads = _reader_of(subject, stack, open_both).model
    return RowReader(model, reads, subject.data.question, subject.known)


def open_calibrated(n: int, subject: Subject, stack: ExitStack, open_model: OpenModel) -> Ask:
    """Fit the calibration that `calibrate` selects with the first `n` labelled rows."""
    return FromReadings(_reader_of(subject, stack, open_model), subject.data.train[:n])


def open_self_trained(n: int, subject: Subject, stack: ExitStack, open_model: OpenModel) -> Ask:
    """Learn from `n` inputs without their answers; none of them is measured."""
    reader = _reader_of(subject, stack, open_model)
    rows = [*subject.data.train, *subject.data.test[len(subject.rows) :]][:n]
    return FromReadings(reader, **({"inputs": [text for text, _ in rows]} if rows else {}))


def open_candidate(
    place: int, method: Any, n: int, subject: Subject, stack: ExitStack, open_model: OpenModel
) -> Ask:
    """Fit the head on one group of features, and on the sources with ``"head+weights"``."""

    def only(model: Model, n_sources: int = 0) -> list[Group]:
        group = heads_of(model)[place]
        return [group._replace(n_sources=n_sources if method == "head+weights" else 0)]

    with patch.object(fitting, "heads_of", only):
        reader = _reader_of(subject, stack, open_model)
        return FromReadings(reader, subject.data.train[:n], method=method)


def open_brier(n: int, subject: Subject, stack: ExitStack) -> Ask:
    """Fit brier's head, with brier's code, to the last token's states at 40 to 90 % of the depth.

    brier itself opens models with transformers and torch, and writes prompts of its own.
    """
    select: Any = importlib.import_module("brier.heads.select")
    reader, data = _reader_of(subject, stack, own_model), subject.data
    n_layers = subject.model.session.hidden_shape[0]
    layers = np.linspace(0.4 * n_layers, 0.9 * n_layers, 8).round().astype(int).tolist()
    last = [Feature("last", layer) for layer in dict.fromkeys(layers)]
    blocks = [each.layer - 1 for each in last]

    def read(texts: Sequence[str]) -> Any:
        return np.stack([each.hidden for each in reader(texts, last) if each.hidden is not None])

    train = data.train[:n]
    states = read([text for text, _ in train])
    fitted = select.select_head(states, blocks, data.targets(train), len(data.values))
    place = blocks.index(fitted.layer)

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        found: Probabilities = np.exp(fitted.log_probs(read(texts)[:, place]))
        return found

    return ask
