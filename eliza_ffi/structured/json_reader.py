"""Read a JSON answer while it is written: report each value as soon as it is complete, with the
answer up to there, as JSON data or as an instance of a class."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from ..errors import InvalidArgumentError
from .json_text import JsonScanner, read_json

Path: TypeAlias = "tuple[str | int, ...]"
"""The keys and array indices that lead to a value, outermost first."""

Finished: TypeAlias = "tuple[Path, Any, Callable[[], Any]]"
"""The path of a complete value, the value, and a function that returns the answer up to it."""

_SPACE_AND_SEPARATORS = " \t\r\n,:"
_NUMBER_BEGINNINGS = "-0123456789"


class JsonReader:
    """Reads a JSON text of a class or annotation piece by piece, in time proportional to its
    length. The answers up to each value share their finished parts: one takes time proportional to
    its depth.

    `value` has the complete parts of the text's value as JSON data; None until it is complete, or
    an object or array has begun. A string is complete at its closing quote, a number when another
    character follows.
    """

    def __init__(self, annotation: Any = Any) -> None:
        self.value: Any = None
        self._annotation = annotation
        self._text = ""
        self._at = 0  # everything before this index has been read
        self._scanner = JsonScanner()
        self._scalar: list[str] = []  # the characters of an unfinished string, number or name
        self._open: list[_Open] = []  # outermost first
        self._key: str | None = None

    def push(self, text: str) -> Iterator[Finished]:
        """Add text, and yield the values that become complete, in order, reading only as far as the
        last yielded value. Raise InvalidArgumentError if the text cannot be JSON."""
        self._text, self._at = self._text[self._at :] + text, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._scalar and not self._scanner.in_string and char in " \t\r\n,:[]{}":
                yield from self._end_scalar()
            self._at += 1
            yield from self._read(char)

    def finish(self) -> Iterator[Finished]:
        """End the text. If it ends with a number, yield the number, which is now complete."""
        if self._scalar and self._scalar[0] in _NUMBER_BEGINNINGS:
            yield from self.push(" ")

    def _read(self, char: str) -> Iterator[Finished]:
        was_in_string = self._scanner.in_string
        self._scanner.push(char)
        if was_in_string:
            self._scalar.append(char)
            if not self._scanner.in_string:
                yield from self._end_scalar()
        elif char in "{[":
            inside: dict[str, Any] | list[Any] = {} if char == "{" else []
            path = self._store(inside)
            field = self._open[-1].field(path[-1]) if path else ("", self._annotation)
            self._open.append(_Open(inside, path, Any if field is None else field[1]))
        elif char in "}]":
            if not self._open:
                raise InvalidArgumentError(f"not JSON: no array or object is open before {char!r}")
            ended = self._open.pop()
            yield self._finished(ended.path, ended.data)
        elif char not in _SPACE_AND_SEPARATORS:
            if not self._scalar and char not in f'"tfn{_NUMBER_BEGINNINGS}':
                raise InvalidArgumentError(f"not JSON: {char!r}")
            self._scalar.append(char)
            if char in "el" and "".join(self._scalar) in ("true", "false", "null"):
                yield from self._end_scalar()

    def _end_scalar(self) -> Iterator[Finished]:
        value = read_json("".join(self._scalar))
        self._scalar.clear()
        if self._open and isinstance(self._open[-1].data, dict) and self._key is None:
            if not isinstance(value, str):
                raise InvalidArgumentError(f"not JSON: expected a string as a key, got {value!r}")
            self._key = value
        else:
            yield self._finished(self._store(value), value)

    def _store(self, value: Any) -> Path:
        if not self._open:
            self.value = value
            return ()
        inside, path = self._open[-1].data, self._open[-1].path
        if isinstance(inside, list):
            inside.append(value)
            return (*path, len(inside) - 1)
        if self._key is None:
            raise InvalidArgumentError("not JSON: a value in an object has no key")
        key, self._key = self._key, None
        inside[key] = value
        return (*path, key)

    def _finished(self, path: Path, value: Any) -> Finished:
        if path:
            self._open[-1].add(path[-1], value)
        parts = tuple([(one, len(one.parts)) for one in self._open])
        return path, value, functools.partial(_value_of, parts, path[:-1])


class _Open:
    """An object or array that has not ended: its `data`, and its finished and valid `parts`."""

    def __init__(self, data: dict[str, Any] | list[Any], path: Path, annotation: Any) -> None:
        while get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        self.data = data
        self.path = path
        self.parts: list[tuple[str | int, Any]] = []
        self._model, self._item = None, Any
        if isinstance(data, dict):
            self._model = _model_of(annotation)
        elif get_origin(annotation) is list:
            self._item = get_args(annotation)[0]

    def field(self, key: str | int) -> tuple[str | int, Any] | None:
        """Return the name and the annotation of a part; None if the class has no such field."""
        return (key, self._item) if self._model is None else _fields(self._model).get(str(key))

    def add(self, key: str | int, value: Any) -> None:
        field = self.field(key)
        # Items after an invalid item are dropped; an invalid field makes the whole answer invalid.
        if field is not None and (isinstance(key, str) or key == len(self.parts)):
            with suppress(ValueError):
                self.parts.append((field[0], _valid(field[1], value)))

    def value(self, n: int, inner: tuple[str | int, Any] | None) -> Any:
        """Return the value with its first `n` parts, and `inner`, the part that is still open."""
        parts = self.parts[:n]
        if inner is not None and (field := self.field(inner[0])) and inner[0] in (n, str(inner[0])):
            parts.append((field[0], inner[1]))
        if isinstance(self.data, list):
            return [value for _, value in parts]
        values = {str(name): value for name, value in parts}
        if self._model is None:
            return values
        made = self._model.model_construct(set(values), **values)
        for name in self._model.model_fields:
            if name not in values:  # remove the default: the field may still be written
                made.__dict__.pop(name, None)
        return made


def _value_of(parts: tuple[tuple[_Open, int], ...], keys: Path) -> Any:
    """Return an unfinished answer from its open objects and arrays, outermost first, each with its
    number of finished parts, and the key or index of the next inner one in each."""
    *outer, (innermost, n) = parts
    value = innermost.value(n, None)
    for (one, n), key in zip(reversed(outer), reversed(keys), strict=True):
        value = one.value(n, (key, value))
    return value


@functools.lru_cache(maxsize=512)
def _fields(model: Any) -> dict[str, tuple[str, Any]]:
    """Return the names and annotations of a pydantic model's fields by their keys in JSON."""
    by_name, by_alias = {}, {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        for each in field.metadata:
            annotation = Annotated[annotation, each]
        by_name[name] = name, annotation
        alias = field.validation_alias
        for one in getattr(alias, "choices", (alias,)):  # an AliasChoices has several
            key, *rest = getattr(one, "path", (one,))  # an AliasPath of one key is that key
            if not rest:
                by_alias[key] = name, annotation
    return by_name | by_alias


def _model_of(annotation: Any) -> Any:
    """Return the pydantic model in an annotation such as ``Person | None``, if it has just one."""
    if annotation is Any:
        return None
    base = importlib.import_module("pydantic").BaseModel
    is_union = get_origin(annotation) in (Union, UnionType)
    alternatives = get_args(annotation) if is_union else (annotation,)
    models = [each for each in alternatives if isinstance(each, type) and issubclass(each, base)]
    return models[0] if len(models) == 1 else None


def _valid(annotation: Any, data: Any) -> Any:
    """Return JSON data as an instance of an annotation; raise ValueError if it is invalid."""
    if annotation is Any:
        return copied(data)
    try:
        return _adapter(annotation).validate_python(data)
    except TypeError:  # the annotation is not hashable
        return _adapter.__wrapped__(annotation).validate_python(data)


@functools.lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    return importlib.import_module("pydantic").TypeAdapter(annotation)


def copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: copied(each) for key, each in data.items()}
    return [copied(each) for each in data] if isinstance(data, list) else data
