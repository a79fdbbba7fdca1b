"""Convert the schemas that users pass (JSON Schema, class, regex, grammar) to constraints."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Generic, TypeVar, get_origin

from ..checks import check_text, wrong
from ..errors import InvalidArgumentError, NotSupportedError
from .class_schema import schema_generator
from .guidance import Guidance, GuidanceMasks
from .limits import checked_schema
from .schema_walk import SchemaDocument
from .validation import checked_value

T = TypeVar("T")


@dataclass(frozen=True)
class Regex:
    """A regular expression that the whole answer must match. The value is the answer's text.

    >>> len(model.fill("Code: ", Regex("[A-Z]{2}-[0-9]{4}")).value)
    7

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

    >>> model.fill("Sure? ", Lark('start: "yes"')).value
    'yes'

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

    >>> model.generate("A colour: ", schema=Gbnf('root ::= "red"')).text
    'red'

    Attributes
    ----------
    grammar : str
        The start rule is ``root``.
    """

    grammar: str

    def __post_init__(self) -> None:
        if not check_text("grammar", self.grammar):  # the library would allow any text
            raise wrong("grammar", "a non-empty string", self.grammar)


@dataclass(frozen=True, eq=False)
class Shape(Generic[T]):
    """The constraint on an answer, and how to read the answer's value."""

    masks: Callable[[Guidance], GuidanceMasks]  # returns the token masks
    # returns the value of a complete answer; raises ValueError if it is not valid
    value: Callable[[str], T]
    # the class that the JSON is read as, `Any` for plain data, None if answers are not JSON
    json_of: Any


def is_shape(shape: Any) -> bool:
    """Return whether this is a shape. Skeletons, and mappings with a ``spans`` key, are not."""
    if isinstance(shape, Mapping):
        return bool(shape) and "spans" not in shape
    return isinstance(shape, Regex | Lark | type) or get_origin(shape) is not None


def shape_of(shape: Any) -> Shape[Any]:
    """Return the shape for a user's argument: a JSON Schema, a class or annotation, a Regex or a
    Lark. Raise NotSupportedError for a class without pydantic, InvalidArgumentError for anything
    else."""
    if isinstance(shape, Regex):
        return Shape(methodcaller("regex", shape.pattern), str, None)
    if isinstance(shape, Lark):
        return Shape(methodcaller("lark", shape.grammar), str, None)
    value: Callable[[str], Any]
    if isinstance(shape, Mapping):
        text = checked_schema(dict(shape))
        value, json_of = functools.partial(checked_value, text), Any
    elif is_shape(shape):
        try:
            text, value = _schema_of_class(shape)
        except TypeError:  # the annotation is not hashable
            text, value = _schema_of_class.__wrapped__(shape)
        json_of = shape
    else:
        raise wrong("schema", "a JSON Schema as a mapping, a class, a Regex or a Lark", shape)
    return Shape(methodcaller("schema_text", text), value, json_of)


@functools.lru_cache(maxsize=128)
def _schema_of_class(annotation: Any) -> tuple[str, Callable[[str], Any]]:
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
        schema = adapter.json_schema(schema_generator=schema_generator())
    except (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError) as error:
        raise InvalidArgumentError(
            f"pydantic cannot create a JSON Schema for {annotation!r:.80}: {error}"
        ) from None
    _close_objects(schema)
    return checked_schema(schema), adapter.validate_json


def _close_objects(schema: dict[str, Any]) -> None:
    """Forbid undeclared properties, which pydantic allows in classes that ignore them."""
    document = SchemaDocument(schema)
    for _, part in document.parts():
        if "discriminator" in part and "oneOf" in part:
            _require_tag(document, part)
            part["anyOf"] = part.pop("oneOf")  # the discriminator allows at most one alternative
        if part.get("type") == "object" and isinstance(part.get("properties"), dict):
            part.setdefault("additionalProperties", False)


def _require_tag(document: SchemaDocument, part: dict[str, Any]) -> None:
    """Require the discriminator in all alternatives; pydantic omits it if it has a default."""
    name = part["discriminator"]["propertyName"]
    for each in part["oneOf"]:
        target = document.target(each["$ref"]) if "$ref" in each else each
        required = target.get("required", [])
        if name in target.get("properties", {}) and name not in required:
            target["required"] = [name, *required]
