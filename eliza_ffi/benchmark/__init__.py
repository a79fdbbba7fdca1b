"""What ``eliza-ffi bench`` measures with: answers, a bench that chooses one, and the report."""

from __future__ import annotations

from ..measuring.methods import CHOICE_MODES as MODES
from ..measuring.methods import GRAMMAR_ORDERS, STRATEGIES, TOKENIZATIONS, Method
from .alternatives import Alternatives, gbnf_of
from .report import Report, measure
from .streams import CHOICES, StreamsReport, measure_streams
from .workbench import TimedChoice, TimedDecision, Workbench

Answer = TimedChoice
"""Its name before."""

__all__ = [
    "CHOICES",
    "GRAMMAR_ORDERS",
    "MODES",
    "STRATEGIES",
    "TOKENIZATIONS",
    "Alternatives",
    "Answer",
    "Method",
    "Report",
    "StreamsReport",
    "TimedChoice",
    "TimedDecision",
    "Workbench",
    "gbnf_of",
    "measure",
    "measure_streams",
]
