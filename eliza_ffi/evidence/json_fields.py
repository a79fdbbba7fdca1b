"""Dataclasses as JSON data, which is checked when it is read, and their files."""

from __future__ import annotations

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
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

Count = Annotated[int, (0,)]
"""A whole number of 0 or more. The tuple has the limits that the reader checks."""

Share = Annotated[float, (0.0, 1.0)]


class JsonFields:
    """A frozen dataclass that is written by its fields, and read by the types of its fields.

    A class with `to_dict` and `from_dict` of its own can be the type of a field, too. Fields that
    are not compared are not written.
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
    if origin is tuple:
        parts = list(check_several(name, value, "a list"))
        if len(parts) != len(args):
            raise InvalidArgumentError(f"{name}: expected {len(args)} parts, got {len(parts)}")
        return tuple([_read(name, *each) for each in zip(parts, args, strict=True)])
    if origin is not None:
        read = check_kind(name, value, Mapping, "an object")
        return {_read(name, k, args[0]): _read(name, read[k], args[1]) for k in read}
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if kind is float:
        return float(check_number(name, value, *limits))
    checks: dict[Any, Any] = {bool: check_flag, int: check_whole, str: check_text}
    return checks[kind](name, value, *limits) if kind in checks else value


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
