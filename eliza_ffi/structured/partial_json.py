"""Partial answers during generation, as JSON data or as instances of a class."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from .json_reader import Path, copied


class PartialAnswer:
    """An unfinished answer: its open objects and arrays with their finished parts, which all
    snapshots share. A snapshot takes time proportional to the answer's depth, not to its length."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._open: list[_Object | _Array] = []  # outermost first

    def add(self, path: Path, value: Any) -> Callable[[], Any]:
        """Add a finished part that must not change, in the order in which parts end, and return a
        function that returns the answer at this moment."""
        del self._open[len(path) :]  # the part itself, if it was an object or array
        for depth in range(len(self._open), len(path)):
            annotation = (
                self._open[-1].annotation_at(path[depth - 1]) if depth else self._annotation
            )
            self._open.append(_begun(annotation, path[depth]))
        self._open[-1].add(path[-1], value)
        return functools.partial(
            _value_of, tuple((one, len(one.parts)) for one in self._open), path[:-1]
        )


def _value_of(parts: tuple[tuple[_Object | _Array, int], ...], keys: Path) -> Any:
    """Return the value of an unfinished answer, given its open objects and arrays, outermost first,
    each with its number of finished parts, and the key or index of the next inner one in each."""
    *outer, (innermost, n) = parts
    value = innermost.value(n)
    for (one, n), key in zip(reversed(outer), reversed(keys), strict=True):
        value = one.value(n, (key, value))
    return value


class _Array:
    def __init__(self, item: Any) -> None:
        self.parts: list[Any] = []
        self._item = item

    def annotation_at(self, key: str | int) -> Any:
        return self._item

    def add(self, key: str | int, value: Any) -> None:
        if key == len(self.parts):  # items after an invalid item are dropped
            with suppress(ValueError):
                self.parts.append(_read(self._item, value))

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> list[Any]:
        """Return the value with its first `n` parts, and with `inner`, the part that is still
        open."""
        inside = [] if inner is None or inner[0] != n else [inner[1]]
        return self.parts[:n] + inside


class _Object:
    """An open object, or an open instance of a pydantic model that has only the finished fields."""

    def __init__(self, model: Any) -> None:
        self.parts: list[tuple[str, Any]] = []
        self._model = model
        self._fields = {
            _key_of(name, field): (name, _annotation_of(field))
            for name, field in ({} if model is None else model.model_fields).items()
        }

    def _field(self, key: str | int) -> tuple[str, Any] | None:
        return (str(key), Any) if self._model is None else self._fields.get(str(key))

    def annotation_at(self, key: str | int) -> Any:
        field = self._field(key)
        return Any if field is None else field[1]

    def add(self, key: str | int, value: Any) -> None:
        if (field := self._field(key)) is not None:
            with suppress(ValueError):  # an invalid field makes the whole answer invalid
                self.parts.append((field[0], _read(field[1], value)))

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> Any:
        values = dict(self.parts[:n])
        if inner is not None and (field := self._field(inner[0])) is not None:
            values[field[0]] = inner[1]
        if self._model is None:
            return values
        made = self._model.model_construct(set(values), **values)
        for name in self._model.model_fields:
            if name not in values:  # remove the default: the field may still be written
                made.__dict__.pop(name, None)
        return made


def _begun(annotation: Any, key: str | int) -> _Object | _Array:
    """Return a new open object or array; `key` is the key or index of its first part."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(key, int):
        return _Array(get_args(annotation)[0] if get_origin(annotation) is list else Any)
    return _Object(_model_of(annotation))


def _read(annotation: Any, data: Any) -> Any:
    """Validate JSON data as a class or annotation; raise ValueError if it is invalid."""
    if annotation is Any:
        return copied(data)
    try:
        return _adapter(annotation).validate_python(data)
    except TypeError:  # the annotation is not hashable
        return _adapter.__wrapped__(annotation).validate_python(data)


def _model_of(annotation: Any) -> Any:
    """Return the pydantic model in an annotation such as ``Person | None``, if it has just one."""
    if annotation is Any:
        return None
    base = importlib.import_module("pydantic").BaseModel
    alternatives = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    models = [each for each in alternatives if isinstance(each, type) and issubclass(each, base)]
    return models[0] if len(models) == 1 else None


def _annotation_of(field: Any) -> Any:
    annotation = field.annotation
    for each in field.metadata:
        annotation = Annotated[annotation, each]
    return annotation


def _key_of(name: str, field: Any) -> str:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else name


@functools.lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    return importlib.import_module("pydantic").TypeAdapter(annotation)
