"""What users give for the shape of an answer, as what can be asked of a model."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_origin

from ..checks import check_text, wrong
from .classes import class_shape
from .closed import closed_skeleton
from .guidance import Guidance, GuidanceMasks
from .limits import checked_schema
from .skeleton import Skeleton
from .validation import schema_validator

__all__ = ["Gbnf", "Lark", "Regex", "Shape", "is_shape", "shape_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Regex:
    """Answers that match a regular expression as a whole; their value is their text.

    Attributes
    ----------
    pattern : str
    """

    pattern: str

    def __post_init__(self) -> None:
        check_text("pattern", self.pattern)


@dataclass(frozen=True)
class Lark:
    """Answers of a grammar in Lark's form, as llguidance reads it; their value is their text.

    Attributes
    ----------
    grammar : str
        Its first rule is ``start``.
    """

    grammar: str

    def __post_init__(self) -> None:
        check_text("grammar", self.grammar)


@dataclass(frozen=True)
class Gbnf:
    """Texts of a grammar in GBNF, llama.cpp's notation. Only :meth:`Model.generate` takes it.

    Attributes
    ----------
    grammar : str
        Its start rule is ``root``.
    """

    grammar: str

    def __post_init__(self) -> None:
        check_text("grammar", self.grammar)


@dataclass(frozen=True, eq=False)
class Shape(Generic[T]):
    """What an answer shall be.

    Attributes
    ----------
    skeleton : Skeleton or None
        Of a closed schema; it allows the same answers as the masks.
    masks : callable
        From llguidance over a model's vocabulary to the masks of the shape.
    value : callable
        From a whole answer to its value; raises ValueError where it is not valid.
    json_of : Any
        The class or annotation that answers are the JSON of; `Any` if there is none. None if
        answers are not JSON.
    relaxed : tuple of str
        What of the schema nothing but `value` enforces.
    close : callable or None
        From the tokens of an answer that is cut to those and the text of a whole one, or None; not
        given if an answer that is cut is an error.
    """

    skeleton: Skeleton | None
    masks: Callable[[Guidance], GuidanceMasks]
    value: Callable[[str], T]
    json_of: Any
    relaxed: tuple[str, ...] = ()
    close: Callable[[Sequence[int]], tuple[tuple[int, ...], str] | None] | None = None


def is_shape(given: Any) -> bool:
    """Whether this is a shape rather than a skeleton, or its JSON form, which has ``spans``."""
    if isinstance(given, Mapping):
        return bool(given) and "spans" not in given
    return isinstance(given, Regex | Lark | type) or get_origin(given) is not None


def shape_of(given: Any) -> Shape[Any]:
    """Return what a user has given as a shape.

    Parameters
    ----------
    given
        A JSON Schema as a mapping, a class (one of pydantic's, a dataclass, a typed dictionary) or
        another annotation, a :class:`Regex` or a :class:`Lark`.

    Raises
    ------
    InvalidArgumentError
        If it is nothing of these, or has no JSON Schema.
    NotSupportedError
        If it is a class, and pydantic is not installed.
    """
    if isinstance(given, Regex):
        pattern = given.pattern
        return Shape(None, lambda guidance: guidance.regex(pattern), str, None)
    if isinstance(given, Lark):
        grammar = given.grammar
        return Shape(None, lambda guidance: guidance.lark(grammar), str, None)
    if isinstance(given, Mapping):
        text = checked_schema(dict(given))
        return _of_schema(text, schema_validator(text), Any)
    if not is_shape(given):
        raise wrong("a shape", "a JSON Schema as a mapping, a class, a Regex or a Lark", given)
    found = class_shape(given)
    return _of_schema(found.schema_text, found.value, given)


def _of_schema(text: str, value: Callable[[str], Any], json_of: Any) -> Shape[Any]:
    skeleton = _closed_skeleton(text)
    return Shape(skeleton, lambda guidance: guidance.schema_text(text), value, json_of)


@functools.lru_cache(maxsize=128)
def _closed_skeleton(text: str) -> Skeleton | None:
    return closed_skeleton(json.loads(text))
