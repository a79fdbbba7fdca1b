"""Calibrations of questions that are asked in other words.

Another wording moves the hidden states of all prompts, mostly by the same difference. So a head is
*re-centred*: the mean states of :data:`N_INPUTS` inputs, minus those of the examples, are
subtracted from the states of every input. This needs no right answers, but the options must be
about as frequent among these inputs as among the examples.

A batch is re-centred on a sample of its inputs before the first of them is answered, so that its
answers do not depend on the order in which they are computed. Otherwise the first different inputs
of a session re-centre the head for all later ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lazy import Recent, once_for_each
from ..decisions.examples import named_questions
from ..decisions.questions import Question
from ..decisions.wire import question_to
from .calibration import Calibration, QuestionCalibration
from .scoring import QuestionScores

if TYPE_CHECKING:
    from ..session.session import Session

N_INPUTS = 30
"""The number of inputs that a head is re-centred on."""

MAX_CALIBRATIONS = 64
"""The number of calibrations with other wordings that a session keeps."""

_WORDING = ("name", "instructions", "if_true", "if_false")


def in_other_words(calibration: Calibration, questions: Sequence[Question]) -> Calibration:
    """Return a calibration for these questions, if only their wordings differ from the fitted ones.

    The names and the order of the options must be the same. Otherwise, and if nothing differs, the
    calibration is returned unchanged.
    """
    named = named_questions(questions)
    if len(named) != len(calibration.questions):
        return calibration
    pairs = list(zip(calibration.questions, named, strict=True))
    asked = tuple(_asked(fitted, question_to(question)) for fitted, (_, question) in pairs)
    is_same = all(old is new for old, new in zip(calibration.questions, asked, strict=True))
    return calibration if is_same else replace(calibration, questions=asked, labels=())


def _asked(fitted: QuestionCalibration, question: Mapping[str, Any]) -> QuestionCalibration:
    old, new = ({**each, "name": None} for each in (fitted.question, question))
    if old == new or _options(old) != _options(new):
        return fitted
    nothing: dict[str, Any] = dict.fromkeys(("threshold", "sets"))
    return replace(fitted, question=question, **nothing, recentred=0)


def _options(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question without its texts."""
    kept = {name: value for name, value in question.items() if name not in _WORDING}
    for name, listed in kept.items():
        if isinstance(listed, list):
            kept[name] = [{**option, "description": None} for option in listed]
    return kept


def recentred(calibration: Calibration, scores: Sequence[Iterable[QuestionScores]]) -> Calibration:
    """Return a calibration whose heads are centred on the states of some inputs.

    `scores` has those of each question. Only heads of other wordings are changed, and only with
    :data:`N_INPUTS` inputs or more.
    """
    questions = []
    for fitted, each in zip(calibration.questions, scores, strict=True):
        states = [one.hidden for one in each if one.hidden is not None]
        is_enough = fitted.needs_inputs and len(states) >= N_INPUTS
        questions.append(_centred(fitted, np.array(states)) if is_enough else fitted)
    return replace(calibration, questions=tuple(questions))


def _centred(fitted: QuestionCalibration, states: Any) -> QuestionCalibration:
    head, known = fitted.head, fitted.familiarity
    assert head is not None and known is not None
    mean = states[:, : len(head.features)].mean(axis=0, dtype=np.float64)
    bias = head.bias - np.einsum("le,lek->k", mean - known.mean, head.weights)
    return replace(
        fitted,
        head=replace(head, bias=bias.astype("f4")),
        familiarity=replace(known, mean=mean.astype("f4")),
        recentred=len(states),
    )


class Recentring:
    """A calibration that is re-centred on the first inputs. Thread-safe."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._lock = threading.Lock()
        self._scores: dict[str, Sequence[Any]] = {}

    def add(self, key: str, scores: Sequence[Any]) -> None:
        """Add the scores of all questions about an input, unless its key is known."""
        with self._lock:
            if not self.calibration.needs_inputs:
                return
            self._scores.setdefault(key, scores)
            if len(self._scores) == N_INPUTS:
                every = [self._scores[each] for each in sorted(self._scores)]  # the same sum always
                self.calibration = recentred(self.calibration, list(zip(*every, strict=True)))
                self._scores.clear()


@once_for_each
def known_recentrings(session: Session) -> Recent[Recentring]:
    """Return the calibrations that single inputs re-centre, by their digests."""
    return Recent(MAX_CALIBRATIONS)
