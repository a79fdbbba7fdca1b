"""Measure choices with your own model, prompt and labels."""

from __future__ import annotations

from .alternatives import Alternatives, gbnf_of
from .workbench import TimedChoice, Workbench

__all__ = ["Alternatives", "TimedChoice", "Workbench", "gbnf_of"]
