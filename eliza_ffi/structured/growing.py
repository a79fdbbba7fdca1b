"""Partial answers during generation, as JSON data or as instances of a class."""

from __future__ import annotations

import functools
import importlib
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Protocol, Union, get_args, get_origin

from .json_reader import Path, copied

__all__ = ["Growing", "Snapshot"]


class Growing:
    """An unfinished answer: its open objects and arrays with their finished parts.

    A part is validated once, when it is finished, and all snapshots share it. The time for a
    snapshot is proportional to the answer's depth, not to its length.

    Parameters
    ----------
    given
        The class or annotation of the whole answer; `Any` for JSON data.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        self._open: list[_Open] = []  # outermost first

    def add(self, path: Path, value: Any) -> Snapshot:
        """Add a finished part, and return a snapshot.

        Parameters
        ----------
        path
            The path of the part. Parts must be added in the order in which they end.
        value
            The part as JSON data. It must not change afterwards.
        """
        del self._open[len(path) :]  # the part itself, if it was an object or array
        for depth in range(len(self._open), len(path)):
            given = self._open[-1].given_at(path[depth - 1]) if depth else self._given
            self._open.append(_begun(given, path[depth]))
        self._open[-1].add(path[-1], value)
        return Snapshot(tuple((one, len(one.parts)) for one in self._open), path[:-1])


class Snapshot:
    """An unfinished answer at one moment. Calling the snapshot returns its value at this moment.

    Parameters
    ----------
    parts
        The open objects and arrays, outermost first, each with its number of finished parts.
    keys
        For each of these, the key or index of the next inner one.
    """

    def __init__(self, parts: tuple[tuple[_Open, int], ...], keys: Path) -> None:
        self._parts = parts
        self._keys = keys

    def __call__(self) -> Any:
        *outer, (innermost, n) = self._parts
        value = innermost.value(n)
        for (one, n), key in zip(reversed(outer), reversed(self._keys), strict=True):
            value = one.value(n, (key, value))
        return value


class _Open(Protocol):
    """An open object or array."""

    parts: list[Any]

    def given_at(self, key: str | int) -> Any:
        """Return the class or annotation of a part."""

    def add(self, key: str | int, value: Any) -> None:
        """Add a part, given as JSON data. Invalid parts are dropped."""

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> Any:
        """Return the value with its first `n` parts.

        `inner` is the key and the value of a part that is still open. It is added.
        """


class _Array:
    def __init__(self, item: Any) -> None:
        self.parts: list[Any] = []
        self._item = item

    def given_at(self, key: str | int) -> Any:
        return self._item

    def add(self, key: str | int, value: Any) -> None:
        if key == len(self.parts):  # items after an invalid item are dropped
            with suppress(ValueError):
                self.parts.append(_read(self._item, value))

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> list[Any]:
        inside = [] if inner is None or inner[0] != n else [inner[1]]
        return self.parts[:n] + inside


class _Object:
    def __init__(self) -> None:
        self.parts: list[tuple[str | int, Any]] = []

    def given_at(self, key: str | int) -> Any:
        return Any

    def add(self, key: str | int, value: Any) -> None:
        self.parts.append((key, copied(value)))

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> dict[Any, Any]:
        return dict([*self.parts[:n], inner] if inner is not None else self.parts[:n])


class _Model:
    """An open object of a pydantic model. Its value has only the finished fields."""

    def __init__(self, model: Any) -> None:
        self.parts: list[tuple[str, Any]] = []
        self._model = model
        self._fields = {
            _key_of(name, field): (name, _annotation(field))
            for name, field in model.model_fields.items()
        }

    def given_at(self, key: str | int) -> Any:
        return self._fields[str(key)][1] if key in self._fields else Any

    def add(self, key: str | int, value: Any) -> None:
        if key in self._fields:
            name, given = self._fields[str(key)]
            with suppress(ValueError):  # an invalid field makes the whole answer invalid
                self.parts.append((name, _read(given, value)))

    def value(self, n: int, inner: tuple[str | int, Any] | None = None) -> Any:
        values = dict(self.parts[:n])
        if inner is not None and inner[0] in self._fields:
            values[self._fields[str(inner[0])][0]] = inner[1]
        made = self._model.model_construct(set(values), **values)
        for name in self._model.model_fields:
            if name not in values:  # remove the default: the field may still be written
                made.__dict__.pop(name, None)
        return made


def _begun(given: Any, key: str | int) -> _Open:
    """Return a new open object or array; `key` is the key or index of its first part."""
    while get_origin(given) is Annotated:
        given = get_args(given)[0]
    if isinstance(key, int):
        return _Array(get_args(given)[0] if get_origin(given) is list else Any)
    model = _model_of(given)
    return _Object() if model is None else _Model(model)


def _read(given: Any, data: Any) -> Any:
    """Validate JSON data as a class or annotation; raise ValueError if it is invalid."""
    if given is Any:
        return copied(data)
    try:
        return _kept_adapter(given).validate_python(data)
    except TypeError:  # the annotation is not hashable
        return _adapter(given).validate_python(data)


def _model_of(given: Any) -> Any:
    """Return the pydantic model in an annotation such as ``Person | None``, if it has just one."""
    if given is Any:
        return None
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
