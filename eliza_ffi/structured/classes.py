"""Classes as shapes, by pydantic: its models, dataclasses, typed dictionaries, any annotation."""

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
    """A class as what its values are written and read by.

    Attributes
    ----------
    schema_text : str
        Its JSON Schema, as JSON. Objects have no properties but those that the schema names.
    value : callable
        From a JSON text to the value; raises ValueError where it is not valid.
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
        If pydantic has no JSON Schema for it, or the schema is above a limit of
        :mod:`eliza_ffi.structured.limits`.
    """
    try:
        return _kept_shape(given)
    except TypeError:  # an annotation that has no hash
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
            f"{name} becomes a schema by pydantic, which is not installed: "
            f"pip install 'eliza-ffi[schema]'"
        ) from None
    try:
        adapter = pydantic.TypeAdapter(given)
        schema = adapter.json_schema()
    except (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError) as error:
        raise InvalidArgumentError(f"pydantic makes no schema of {given!r:.80}: {error}") from None
    return ClassShape(checked_schema(_closed(schema)), adapter.validate_json)


def _closed(schema: Any) -> Any:
    """Return a schema that says of objects with properties that there are no others.

    pydantic leaves it open where a class ignores them: none are of use.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # Not what is data: a default may look like a schema.
    data = ("default", "examples", "enum", "const", "required")
    closed = {key: each if key in data else _closed(each) for key, each in schema.items()}
    if "discriminator" in closed and "oneOf" in closed:
        closed["anyOf"] = closed.pop("oneOf")  # no value is of two of them
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed
