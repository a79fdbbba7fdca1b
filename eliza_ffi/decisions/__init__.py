"""Typed decisions: questions about an input, answered with probabilities.

>>> from eliza_ffi.decisions import Choice, Predicate, Score
>>> questions = {
...     "team": Choice("Which team should read this?", ["billing", "support", "sales"]),
...     "urgent": Predicate("Does the writer need an answer today?"),
...     "anger": Score("How angry is the writer?", ["calm", "annoyed", "furious"]),
... }
>>> decision = model.decide("I was charged twice!", questions)  # doctest: +SKIP
>>> decision["team"].value  # doctest: +SKIP
'billing'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    DecisionUsage,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
    choice_confidence,
    decisions_answer,
    score_confidence,
    systemone_answer,
)
from .learning.calibration import METHODS, Calibration, CalibrationMethod, QuestionCalibration
from .prompt_settings import WritePrompt
from .prompts import RenderedQuestion, ShownOption, ask, input_text
from .questions import Choice, Level, MultiLabel, Option, Predicate, Question, Score
from .wire import as_questions, question_from, question_to

if TYPE_CHECKING:
    from .learning.fitting import calibrate
    from .learning.metrics import QuestionReport
    from .learning.report import DecisionReport, evaluate

__all__ = [
    "METHODS",
    "Answer",
    "Calibration",
    "CalibrationMethod",
    "Choice",
    "ChoiceAnswer",
    "Decision",
    "DecisionReport",
    "DecisionUsage",
    "Level",
    "MultiLabel",
    "MultiLabelAnswer",
    "Option",
    "Predicate",
    "PredicateAnswer",
    "Question",
    "QuestionCalibration",
    "QuestionReport",
    "RenderedQuestion",
    "Score",
    "ScoreAnswer",
    "ShownOption",
    "WritePrompt",
    "as_questions",
    "ask",
    "calibrate",
    "choice_confidence",
    "decisions_answer",
    "evaluate",
    "input_text",
    "question_from",
    "question_to",
    "score_confidence",
    "systemone_answer",
]

_MODULE_OF = {
    "DecisionReport": "learning.report",
    "QuestionReport": "learning.metrics",
    "calibrate": "learning.fitting",
    "evaluate": "learning.report",
}


def __getattr__(name: str) -> Any:
    """Import a name that decisions do not need, when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
