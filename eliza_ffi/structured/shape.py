"""Convert the shapes that users pass (schema, class, regex, grammar) to constraints."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_origin

from ..checks import check_text, wrong
from ..errors import InvalidArgumentError, NotSupportedError
from .guidance import Guidance, GuidanceMasks
from .limits import checked_schema
from .schema_walk import schema_parts
from .validation import schema_validator

T = TypeVar("T")


@dataclass(frozen=True)
class Regex:
    """A regular expression that the whole answer must match. The value is the answer's text.

    Attributes
    ----------
    pattern : str
    """

    pattern: str

    def __post_init__(self) -> None:
        check_text("pattern", self.pattern)


@dataclass(frozen=True)
class Lark:
    """A grammar in llguidance's dialect of Lark. The value is the answer's text.

    Attributes
    ----------
    grammar : str
        The start rule is ``start``.
    """

    grammar: str

    def __post_init__(self) -> None:
        check_text("grammar", self.grammar)


@dataclass(frozen=True)
class Gbnf:
    """A grammar in GBNF, llama.cpp's notation. Only :meth:`Model.generate` accepts it.

    Attributes
    ----------
    grammar : str
        The start rule is ``root``.
    """

    grammar: str

    def __post_init__(self) -> None:
        check_text("grammar", self.grammar)


@dataclass(frozen=True, eq=False)
class Shape(Generic[T]):
    """The constraint on an answer, and how to read the answer's value."""

    masks: Callable[[Guidance], GuidanceMasks]  # returns the token masks
    # returns the value of a complete answer; raises ValueError if it is not valid
    value: Callable[[str], T]
    # the class that the JSON is read as, `Any` for plain data, None if answers are not JSON
    json_of: Any
    # the parts of the schema that the masks do not enforce; `value` checks them
    relaxed: tuple[str, ...] = ()
    # takes the tokens of a truncated answer, and returns the tokens and the text of the complete
    # answer, or None; without it, a truncated answer is an error
    close: Callable[[Sequence[int]], tuple[tuple[int, ...], str] | None] | None = None


def is_shape(shape: Any) -> bool:
    """Return whether this is a shape. Skeletons, and mappings with a ``spans`` key, are not."""
    if isinstance(shape, Mapping):
        return bool(shape) and "spans" not in shape
    return isinstance(shape, Regex | Lark | type) or get_origin(shape) is not None


def shape_of(shape: Any) -> Shape[Any]:
    """Return the shape for a user's argument.

    Parameters
    ----------
    shape
        A JSON Schema as a mapping, a class (a pydantic model, a dataclass or a typed dictionary),
        another type annotation, a :class:`Regex` or a :class:`Lark`.

    Raises
    ------
    InvalidArgumentError
        If the argument is none of these, or pydantic has no JSON Schema for the class.
    NotSupportedError
        If the argument is a class and pydantic is not installed.
    """
    if isinstance(shape, Regex):
        pattern = shape.pattern
        return Shape(lambda guidance: guidance.regex(pattern), str, None)
    if isinstance(shape, Lark):
        grammar = shape.grammar
        return Shape(lambda guidance: guidance.lark(grammar), str, None)
    if isinstance(shape, Mapping):
        text = checked_schema(dict(shape))
        return _of_schema(text, schema_validator(text), Any)
    if not is_shape(shape):
        raise wrong("a shape", "a JSON Schema as a mapping, a class, a Regex or a Lark", shape)
    return _of_class(shape)


def _of_schema(text: str, value: Callable[[str], Any], json_of: Any) -> Shape[Any]:
    return Shape(lambda guidance: guidance.schema_text(text), value, json_of)


def _of_class(annotation: Any) -> Shape[Any]:
    try:
        schema_text, value = _schema_of_class(annotation)
    except TypeError:  # the annotation is not hashable
        schema_text, value = _schema_of_class.__wrapped__(annotation)
    return _of_schema(schema_text, value, annotation)


@functools.lru_cache(maxsize=128)
def _schema_of_class(annotation: Any) -> tuple[str, Callable[[str], Any]]:
    """Return the JSON Schema of a class or annotation, and the function that reads its values."""
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        name = getattr(annotation, "__name__", repr(annotation))
        raise NotSupportedError(
            f"cannot create a JSON Schema for {name}: pydantic is not installed: "
            f"pip install 'eliza-ffi[schema]'"
        ) from None
    try:
        adapter = pydantic.TypeAdapter(annotation)
        schema = adapter.json_schema()
    except (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError) as error:
        raise InvalidArgumentError(
            f"pydantic cannot create a JSON Schema for {annotation!r:.80}: {error}"
        ) from None
    _close_objects(schema)
    return checked_schema(schema), adapter.validate_json


def _close_objects(schema: dict[str, Any]) -> None:
    """Set ``additionalProperties: false`` wherever an object of a schema has properties.

    pydantic omits it for classes that ignore extra properties. Answers should not contain them.
    """
    for _, part in schema_parts(schema):
        if "discriminator" in part and "oneOf" in part:
            part["anyOf"] = part.pop("oneOf")  # the discriminator allows at most one alternative
        if part.get("type") == "object" and isinstance(part.get("properties"), dict):
            part.setdefault("additionalProperties", False)
