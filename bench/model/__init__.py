"""Your model, prompt and answers: what a choice costs, or many streams together."""

from __future__ import annotations

from .alternatives import Alternatives, gbnf_of
from .report import Report, measure
from .streams import CHOICES, StreamsReport, measure_streams
from .workbench import TimedChoice, TimedDecision, Workbench

__all__ = [
    "CHOICES",
    "Alternatives",
    "Report",
    "StreamsReport",
    "TimedChoice",
    "TimedDecision",
    "Workbench",
    "gbnf_of",
    "measure",
    "measure_streams",
]
