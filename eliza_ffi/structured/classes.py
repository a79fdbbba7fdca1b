"""Convert classes and type annotations to JSON Schemas with pydantic."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError, NotSupportedError
from .limits import checked_schema

__all__ = ["ClassShape", "class_shape"]


@dataclass(frozen=True)
class ClassShape:
    """The JSON Schema of a class, and the function that reads its values.

    Attributes
    ----------
    schema_text : str
        The JSON Schema, as JSON. Objects allow only the properties that the schema names.
    value : callable
        Takes a JSON text, and returns the value. Raises ValueError if the JSON is not valid.
    """

    schema_text: str
    value: Callable[[str], Any]


def class_shape(given: Any) -> ClassShape:
    """Return the shape of a class or annotation.

    Raises
    ------
    NotSupportedError
        If pydantic is not installed.
    InvalidArgumentError
        If pydantic has no JSON Schema for the class, or the schema exceeds a limit of
        :mod:`eliza_ffi.structured.limits`.
    """
    try:
        return _kept_shape(given)
    except TypeError:  # the annotation is not hashable
        return _shape(given)


@functools.lru_cache(maxsize=128)
def _kept_shape(given: Any) -> ClassShape:
    return _shape(given)


def _shape(given: Any) -> ClassShape:
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        name = getattr(given, "__name__", repr(given))
        raise NotSupportedError(
            f"cannot create a JSON Schema for {name}: pydantic is not installed: "
            f"pip install 'eliza-ffi[schema]'"
        ) from None
    try:
        adapter = pydantic.TypeAdapter(given)
        schema = adapter.json_schema()
    except (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError) as error:
        raise InvalidArgumentError(
            f"pydantic cannot create a JSON Schema for {given!r:.80}: {error}"
        ) from None
    return ClassShape(checked_schema(_closed(schema)), adapter.validate_json)


def _closed(schema: Any) -> Any:
    """Return the schema with ``additionalProperties: false`` wherever an object has properties.

    pydantic omits it for classes that ignore extra properties. Answers should not contain them.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # These keywords hold data, which may look like a schema but must not be changed.
    data = ("default", "examples", "enum", "const", "required")
    closed = {key: each if key in data else _closed(each) for key, each in schema.items()}
    if "discriminator" in closed and "oneOf" in closed:
        closed["anyOf"] = closed.pop("oneOf")  # the discriminator allows at most one alternative
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed
