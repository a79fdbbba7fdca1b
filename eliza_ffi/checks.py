"""Check the arguments of the public API, and return them as Python's own types.

A wrong type or value raises :class:`~eliza_ffi.errors.InvalidArgumentError`, whose message names
the argument, the expected value, the value found, and the next step if there is an obvious one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from .errors import InvalidArgumentError, MissingFileError

T = TypeVar("T")

FieldChecks: TypeAlias = "Mapping[str, tuple[type[Any], Callable[..., Any]]]"
"""The checks of an object's fields, for :func:`check_fields`."""

LARGEST_INT = 2**31 - 1
"""The largest whole number that the library takes."""

MISSPELT = 0.8
"""Minimum similarity, 0 to 1, at which a name counts as a misspelling of a known name."""

LONGEST = 60
"""Maximum number of characters that an error or a ``repr`` shows of a value."""


def wrong(name: str, expected: str, value: object, hint: str = "") -> InvalidArgumentError:
    """Return the exception for a wrong argument. `expected` follows ``"must be"`` in the message;
    `hint` is the next step, if there is an obvious one."""
    then = f"; {hint}" if hint else ""
    error = InvalidArgumentError(f"{name} must be {expected}, got {found(value)}{then}")
    argument = name.partition("[")[0]
    error.argument = argument if argument.isidentifier() else None  # not "the name of tool 2"
    return error


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Set `argument` of each InvalidArgumentError that leaves the ``with`` block."""
    try:
        yield
    except InvalidArgumentError as error:
        error.argument = argument
        raise


@contextmanager
def within(where: str) -> Iterator[None]:
    """Begin the messages of InvalidArgumentErrors that leave the ``with`` block with a place."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None


def found(value: object) -> str:
    """Describe a value in a few words: strings and numbers literally, others by their type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    if value is None or isinstance(value, str | bool | int | float):
        return short_repr(value)
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, list | tuple | set | dict) and not value:
        return f"an empty {kind}"
    article = "an" if kind[:1].lower() in "aeio" or kind == "ndarray" else "a"
    return f"{article} {kind}"


def short_repr(value: object) -> str:
    """Return the representation of a value on one line, cut after 60 characters."""
    try:
        text = repr(value).replace("\n", " ")
    except ValueError:  # by default, Python does not write integers of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(name, "a string", value)
    return value


def check_unicode(text: str, what: str) -> None:
    """Check that a string has no lone surrogate; the message begins with `what`."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{what} has a lone surrogate, U+{ord(text[error.start]):04X}, at character "
            f"{error.start}: {short_repr(text)}"
        ) from None


def check_flag(name: str, value: Any) -> bool:
    """Check that a value is a bool of Python or numpy."""
    if value is True or value is False:
        return value
    # Compare the type's name instead of importing numpy: the import would slow down every command.
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return bool(value)
    raise wrong(name, "True or False", value)


def check_whole(
    name: str, value: Any, least: int = -LARGEST_INT - 1, most: int = LARGEST_INT
) -> int:
    """Check that a value is a whole number from `least` to `most`, and not a bool."""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None or not least <= whole <= most:
        # If `most` is only the limit of a C int, do not mention it unless the value exceeds it.
        shown = math.inf if most == LARGEST_INT and (whole is None or whole <= most) else most
        lowest = -math.inf if shown == math.inf and least < -LARGEST_INT else least
        raise wrong(name, _between("a whole number", lowest, shown), value)
    return whole


def plain_number(value: Any) -> Any:
    """Return a number of numpy or another library as Python's int or float, all else unchanged."""
    if isinstance(value, bool | int | float | str | None) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def check_number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Check that a value is a finite number from `least` to `most`, and not a bool."""
    # `float` and `int` come first, because the test for an abstract class is slow.
    is_number = isinstance(value, float | int | Real) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        raise wrong(name, _between("a number", least, most), value)
    return value if isinstance(value, int) else number


def _between(kind: str, least: float, most: float) -> str:
    if most < math.inf:
        return f"{kind} from {least} to {most}"
    return kind if least == -math.inf else f"{kind} of {least} or more"


def check_one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        hint = did_you_mean(value, allowed, MISSPELT)
        raise wrong(name, f"one of {', '.join(allowed)}", value, hint)
    return value


def check_kind(
    name: str, value: T, kind: type[Any] | tuple[type[Any], ...], expected: str, hint: str = ""
) -> T:
    """Check that a value is an instance of a class; `expected` is as in :func:`wrong`."""
    if not isinstance(value, kind):
        raise wrong(name, expected, value, hint)
    return value


def check_callable(name: str, value: T) -> T:
    if not callable(value):
        raise wrong(name, "a function", value)
    return value


def check_callback(name: str, value: T) -> T:
    if value is not None and not callable(value):
        raise wrong(name, "a function or None", value)
    return value


def check_path(name: str, value: Any) -> str:
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise wrong(name, "a path, a string or os.PathLike", value)
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise wrong(name, "a path that the file system can encode", path) from None
    if b"\0" in raw:
        raise wrong(name, "a path without NUL characters", path)
    return path


def check_file(path: str | os.PathLike[str], expected: str) -> None:
    """Raise MissingFileError if a file does not exist; `expected` is what it should contain."""
    if not os.path.lexists(path):
        raise MissingFileError(f"no such file: {Path(path).absolute()}; expected {expected}")


def check_several(name: str, value: Any, expected: str, hint: str = "") -> Iterable[Any]:
    """Check that a value is an iterable, but not a string, bytes, a mapping, a class or a table.

    The items of pyarrow's arrays are converted to Python's values.
    """
    is_one = isinstance(value, str | bytes | bytearray | Mapping | type)
    if hasattr(value, "columns") and len(getattr(value, "shape", ())) == 2:
        # The items of a DataFrame are the names of its columns.
        raise wrong(name, expected, value, "pass one of its columns")
    if is_one or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise wrong(name, expected, value, hint)
    return value.to_pylist() if hasattr(value, "to_pylist") else value


def check_ordered(name: str, value: Any, expected: str) -> Iterable[Any]:
    """Check that a value is an iterable, but not a set, whose order changes from run to run."""
    if isinstance(value, set | frozenset):
        raise wrong(name, expected, value, "sort it first, because a set has no fixed order")
    return check_several(name, value, expected)


def check_each(
    name: str, value: Any, kind: type[Any] | tuple[type[Any], ...], expected: str
) -> tuple[Any, ...]:
    """Check that a value is an iterable of instances of a class, and return the items as a tuple.
    `expected` describes an item, such as ``"a string"``."""
    items = tuple(check_several(name, value, f"a list in which every item is {expected}"))
    for i, item in enumerate(items):
        if not isinstance(item, kind):
            raise wrong(f"{name}[{i}]", expected, item)
    return items


def check_fields(owner: object, fields: FieldChecks) -> None:
    """Check the fields of a frozen object, and set them to the checked values. `fields` has the
    usual class of each field's values, which are not checked, and the check for values of other
    classes."""
    for name, (usual, check) in fields.items():
        value = getattr(owner, name)
        if type(value) is not usual:
            object.__setattr__(owner, name, check(name, value))


def check_known(what: str, names: Iterable[Any], known: Collection[str]) -> None:
    """Check that all names are known field names; the error suggests the nearest one. `what` is the
    object with the fields, such as ``"a span"``."""
    for name in names:
        if not isinstance(name, str) or name not in known:
            hint = did_you_mean(name, known) or f"its fields are {', '.join(sorted(known))}"
            raise InvalidArgumentError(f"{what} has no field {found(name)}; {hint}")


def check_misspelt(what: str, names: Iterable[Any], known: Collection[str]) -> None:
    """Check that no name is a misspelling of a known name. Other unknown names are allowed."""
    for name in names:
        hint = "" if name in known else did_you_mean(name, known, MISSPELT)
        if hint:
            raise InvalidArgumentError(f"{what} has no field {found(name)}; {hint}")


def did_you_mean(name: object, known: Iterable[str], least: float = 0.6) -> str:
    """Return ``"did you mean '...'?"`` with the most similar known name, or an empty string.

    `least` is the minimum similarity, 0 to 1, as `difflib` measures it.
    """
    if not isinstance(name, str):
        return ""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=least)
    return f"did you mean {near[0]!r}?" if near else ""


def suggest_keywords(kind: type[T]) -> type[T]:
    """Let the methods of a class suggest the right name for a wrong keyword argument.

    Python itself does this from version 3.13 on, with the same words.
    """
    if sys.version_info < (3, 13):
        for name, method in list(vars(kind).items()):
            is_plain = inspect.isfunction(method) and not inspect.iscoroutinefunction(method)
            if is_plain and (name == "__init__" or not name.startswith("_")):
                setattr(kind, name, _suggesting(method))
    return kind


class _Omitted:
    def __repr__(self) -> str:
        return "..."


_OMITTED = _Omitted()
"""The default of a keyword argument that has none, in a signature."""


def show_keywords(kind: type[T]) -> type[T]:
    """List the keyword arguments of a class's methods in their signatures, for `help`. A method has
    them as ``**settings: Unpack[S]``, where `S` is a `TypedDict` of the class's module."""
    for name, method in list(vars(kind).items()):
        if not inspect.isfunction(method) or name.startswith("_"):
            continue
        signature = inspect.signature(method)
        *own, last = signature.parameters.values()
        found = re.fullmatch(r"Unpack\[(\w+)\]", str(last.annotation))
        if found is None:
            continue
        keywords = getattr(sys.modules[kind.__module__], found[1]).__annotations__
        listed = [
            last.replace(
                name=each,
                kind=last.KEYWORD_ONLY,
                default=_OMITTED,
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for each, annotation in keywords.items()
        ]
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *listed]
        )
    return kind


def _suggesting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except TypeError as error:
            trace = error.__traceback__
            is_of_call = trace is not None and trace.tb_next is None
            wrong_name = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if is_of_call and wrong_name:
                known = inspect.signature(method).parameters
                if hint := did_you_mean(wrong_name[1], known):
                    raise TypeError(f"{error}. {hint[0].upper()}{hint[1:]}") from None
            raise

    return call
