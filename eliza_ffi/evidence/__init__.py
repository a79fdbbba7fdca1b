"""Evidence about the options of a question, and how it becomes an answer.

A *source* returns log-probabilities of the options for an input: an encoder's similarity or a
reranker's relevance (:mod:`.sources`), or a decoder's scores of the options as text
(:mod:`.question_plan`). The log-probabilities of several sources are added with weights
(:mod:`.scoring`). A :mod:`.calibration` has fitted parts, and :mod:`.deciding` makes the decision.
A :mod:`.cascade` asks cheap sources first.
"""

from __future__ import annotations

from .calibration import METHODS, Calibration, CalibrationMethod, QuestionCalibration
from .cascade import Cascade, CascadeCalibration

__all__ = [
    "METHODS",
    "Calibration",
    "CalibrationMethod",
    "Cascade",
    "CascadeCalibration",
    "QuestionCalibration",
]
