"""Shapes: what an answer shall be, as a schema, a class, a regular expression or a grammar."""

from __future__ import annotations

from .json_reader import JsonReader
from .reading import FieldFill, Reading, ShapedResult
from .shape import Lark, Regex, Shape, is_shape, shape_of

__all__ = [
    "FieldFill",
    "JsonReader",
    "Lark",
    "Reading",
    "Regex",
    "Shape",
    "ShapedResult",
    "is_shape",
    "shape_of",
]
