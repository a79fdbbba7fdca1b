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

from .answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    DecisionUsage,
    MultiLabelAnswer,
    Passage,
    PredicateAnswer,
    ScoreAnswer,
    choice_confidence,
    decisions_answer,
    score_confidence,
    systemone_answer,
)
from .prompt_settings import WritePrompt
from .prompts import RenderedQuestion, ShownOption, ask, input_text
from .questions import Choice, Level, MultiLabel, Option, Predicate, Question, Score
from .wire import as_questions, question_from, question_to

__all__ = [
    "Answer",
    "Choice",
    "ChoiceAnswer",
    "Decision",
    "DecisionUsage",
    "Level",
    "MultiLabel",
    "MultiLabelAnswer",
    "Option",
    "Passage",
    "Predicate",
    "PredicateAnswer",
    "Question",
    "RenderedQuestion",
    "Score",
    "ScoreAnswer",
    "ShownOption",
    "WritePrompt",
    "as_questions",
    "ask",
    "choice_confidence",
    "decisions_answer",
    "input_text",
    "question_from",
    "question_to",
    "score_confidence",
    "systemone_answer",
]
