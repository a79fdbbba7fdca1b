"""JSON Schema as shapes: what may be written so that it is valid, and the automata of that."""

from __future__ import annotations

from .reading import DEEPEST_SCHEMA, read_schema
from .shapes import Shape
from .spelling import Speller

__all__ = ["DEEPEST_SCHEMA", "Shape", "Speller", "read_schema"]
