"""Measure choices, or many streams at once, with your own model, prompt and labels."""

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
