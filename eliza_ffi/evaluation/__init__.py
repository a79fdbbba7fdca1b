"""``eliza-ffi eval``: whole answers to the bundled tasks, in modes from free to strict.

Modes: ``unguided`` generates freely; ``guided`` under a grammar of the answers that a sampled token
is checked against, and that masks the vocabulary only if it was illegal; ``strict-guided`` under
the same grammar, which masks before sampling; ``strict-trie-ffi`` fills the skeleton that the
grammar was made from.
"""

from __future__ import annotations

from ..measuring.cases import TASKS, Case, cases_of
from ..measuring.methods import MODES
from .answers import TimedAnswer, answer
from .report import AnswerRates, JudgedAnswer, summarize

# Their names before.
Answer = TimedAnswer
Row = JudgedAnswer
Summary = AnswerRates

__all__ = [
    "MODES",
    "TASKS",
    "Answer",
    "AnswerRates",
    "Case",
    "JudgedAnswer",
    "Row",
    "Summary",
    "TimedAnswer",
    "answer",
    "cases_of",
    "summarize",
]
