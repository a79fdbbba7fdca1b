"""Classes as shapes, by pydantic: its models, dataclasses, typed dictionaries, any annotation."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from ..errors import InvalidArgumentError, NotSupportedError
from .json_reader import Path, copied

__all__ = ["ClassShape", "class_shape"]


@dataclass(frozen=True)
class ClassShape:
    """A class as what its values are written and read by.

    Attributes
    ----------
    schema : dict
        Its JSON Schema. Objects hold nothing but their properties.
    value : callable
        From a JSON text to the value; raises ValueError where it is not valid.
    partial : callable
        From what is certain of a value, as JSON data, and the place of what has not ended, to a
        value of the class as far as that goes. Other classes than pydantic's stay JSON data.
    """

    schema: dict[str, Any]
    value: Callable[[str], Any]
    partial: Callable[[Any, Path], Any]


def class_shape(given: Any) -> ClassShape:
    """Return the shape of a class or annotation.

    Raises
    ------
    NotSupportedError
        If pydantic is not installed.
    InvalidArgumentError
        If pydantic has no JSON Schema for it.
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
    return ClassShape(_closed(schema), adapter.validate_json, functools.partial(_partial, given))


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


def _partial(given: Any, data: Any, open_path: Path) -> Any:
    """Return a value of a class as far as it is certain.

    Parameters
    ----------
    given
        The class or annotation.
    data
        What is certain.
    open_path
        Where in it something has begun and not ended; what is not on the way there is whole.
    """
    while get_origin(given) is Annotated:
        given = get_args(given)[0]
    if isinstance(data, list) and get_origin(given) is list:
        (item,) = get_args(given)
        return [_certain(item, each, open_path, i) for i, each in enumerate(data)]
    model = _model_of(given)
    if model is None or not isinstance(data, Mapping):
        return copied(data)
    values = {}
    for name, field in model.model_fields.items():
        key = _key_of(name, field)
        if key in data:
            with suppress(ValueError):  # where it is not valid, the whole will not be either
                values[name] = _certain(_annotation(field), data[key], open_path, key)
    made = model.model_construct(set(values), **values)
    for name in model.model_fields:
        if name not in values:  # a default is not certain yet
            made.__dict__.pop(name, None)
    return made


def _certain(given: Any, data: Any, open_path: Path, place: str | int) -> Any:
    """Return what is inside another value, at some place: whole, or as far as it has come."""
    if open_path[:1] == (place,):
        return _partial(given, data, open_path[1:])
    try:
        return _kept_adapter(given).validate_python(data)
    except TypeError:  # an annotation that has no hash
        return _adapter(given).validate_python(data)


def _model_of(given: Any) -> Any:
    """Return the one pydantic model of an annotation such as ``Person | None``, if there is one."""
    base = importlib.import_module("pydantic").BaseModel
    alternatives = get_args(given) if get_origin(given) in (Union, UnionType) else (given,)
    models = [each for each in alternatives if isinstance(each, type) and issubclass(each, base)]
    return models[0] if len(models) == 1 else None


def _annotation(field: Any) -> Any:
    annotation = field.annotation
    for each in field.metadata:
        annotation = Annotated[annotation, each]
    return annotation


def _key_of(name: str, field: Any) -> str:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else name


def _adapter(given: Any) -> Any:
    return importlib.import_module("pydantic").TypeAdapter(given)


_kept_adapter = functools.lru_cache(maxsize=512)(_adapter)
