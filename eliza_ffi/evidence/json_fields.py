"""Dataclasses as JSON data, which is checked when it is read, and their files."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from ..checks import (
    check_file,
    check_flag,
    check_kind,
    check_known,
    check_number,
    check_one_of,
    check_path,
    check_several,
    check_text,
    check_whole,
)
from ..decisions.probabilities import Floats
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

Count = Annotated[int, (0,)]
"""A whole number of 0 or more. The tuple has the limits that the reader checks."""

Share = Annotated[float, (0.0, 1.0)]


class JsonFields:
    """A frozen dataclass that is written by its fields, and read by the types of its fields.

    A class with `to_dict` and `from_dict` of its own can be the type of a field, too. Arrays are
    written as base64 of little-endian float32, and read flat. Fields that are not compared are not
    written.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data that :meth:`from_dict` can read."""
        return {each.name: _written(getattr(self, each.name)) for each in _fields(type(self))}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the fields; name one that is missing, unknown, damaged or contradictory."""
        what = f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"
        kinds, values = get_type_hints(cls, include_extras=True), {}
        known = {each.name: each for each in _fields(cls)}
        check_known(what, check_kind(what, data, Mapping, "an object"), known)
        for name, each in known.items():
            if name in data:
                values[name] = _read(name, data[name], kinds[name])
            elif each.default is MISSING:
                raise InvalidArgumentError(f"the field {name!r} of {what} is missing")
        read = cls(**values)
        read._check()
        return read

    def _check(self) -> None:
        """Raise InvalidArgumentError if the fields contradict each other."""


def _fields(kind: Any) -> list[Field[Any]]:
    return [each for each in fields(kind) if each.compare]


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    if isinstance(value, np.ndarray):
        return base64.b64encode(np.ascontiguousarray(value, "<f4").tobytes()).decode("ascii")
    return value.to_dict() if hasattr(value, "to_dict") else value


def _read(name: str, value: Any, kind: Any) -> Any:
    kind, limits = get_args(kind) if get_origin(kind) is Annotated else (kind, ())
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _read(name, value, args[0])
    if origin is Literal:
        return check_one_of(name, value, args)
    if origin is tuple and args[1:] == (...,):
        return tuple([_read(name, each, args[0]) for each in check_several(name, value, "a list")])
    named = getattr(kind, "_fields", None) and get_type_hints(kind, include_extras=True)
    if origin is tuple or named:
        kinds = list(named.items()) if named else [(name, each) for each in args]
        parts = list(check_several(name, value, "a list"))
        if len(parts) != len(kinds):
            raise InvalidArgumentError(f"{name}: expected {len(kinds)} parts, got {len(parts)}")
        found = [_read(key, part, of) for part, (key, of) in zip(parts, kinds, strict=True)]
        return kind(*found) if named else tuple(found)
    if origin is np.ndarray:
        return _unpacked(name, check_text(name, value))
    if origin is not None:
        read = check_kind(name, value, Mapping, "an object")
        return {_read(name, k, args[0]): _read(name, read[k], args[1]) for k in read}
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if kind is float:
        return float(check_number(name, value, *limits))
    checks: dict[Any, Any] = {bool: check_flag, int: check_whole, str: check_text}
    return checks[kind](name, value, *limits) if kind in checks else value


def _unpacked(name: str, text: str) -> Floats:
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: not base64 of float32: {error}") from None
    if not np.isfinite(values).all():
        raise InvalidArgumentError(f"{name}: expected finite numbers")
    return values


def read_file(path: str | os.PathLike[str], what: str, read: Callable[[bytes], T]) -> T:
    """Read a file with a function of its content; errors name the file, and `what` it is not."""
    check_file(check_path("path", path), f"a {what}")
    raw = Path(path).read_bytes()
    try:
        return read(raw)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path} is not a usable {what}: {error}") from error


def replace_file(target: Path, text: str) -> None:
    """Write a text file, or leave an existing one unchanged if that fails."""
    draft = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
