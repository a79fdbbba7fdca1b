"""What a chat template may use: functions, filters, tests, and methods of texts and mappings.

All of them are written, or wrapped, so that none takes long or makes much in one go. What makes a
text says first how long it will be, or makes it of pieces and stops; what compares or sorts values
has measured them; what goes through items counts each.
"""

from __future__ import annotations

import itertools
import json
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from re import DOTALL
from re import compile as regex
from string import Formatter
from typing import Any, NoReturn

from jinja2 import filters
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as TESTS_OF_JINJA2
from jinja2.utils import pass_context, pass_environment

from .budget import (
    ITEM,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_TEXT,
    SCALARS,
    STEP,
    Lazy,
    LimitReached,
    TemplateList,
    compared,
    each,
    fits,
    made,
    measured,
    short,
    spend,
)
from .namespace import OpenNamespace

__all__ = [
    "CHANGING",
    "FILTERS",
    "FUNCTIONS",
    "LIST_METHODS",
    "MAPPING_METHODS",
    "STR_METHODS",
    "TESTS",
    "Refused",
    "check_number",
    "computed",
    "joined",
    "listed",
    "searched",
    "sliced",
    "text",
]

MAX_BITS = 10_000
ESCAPED, JSON, REPR = 5, 6, 10  # characters that one may become in HTML, in JSON, in Python
RECASED = 12  # bytes that Python uses to change the case of a character

NUMBERS = (int, float)  # a bool is an int
SEQUENCES = (str, list, tuple)

LINE_END = regex("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
FIELD = regex(r"(.?[<>=^])?[-+ ]?#?0?\d{0,3}[,_]?(\.\d{1,3})?[a-zA-Z%]?", DOTALL)


class Refused(Exception):  # noqa: N818 - what it does
    """The template called ``raise_exception``; the text is the template's own."""


# ---- texts -------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Return a value as text, as ``str`` does."""
    if type(value) is str:
        return value
    if isinstance(value, str | Undefined) or type(value) in SCALARS:
        return str(value)
    fits(REPR * measured(value))
    return str(made(str(value)))


def joined(pieces: Iterable[str], separator: str = "") -> str:
    """Return texts as one."""
    size, parts = 0, []
    for piece in pieces:
        size += len(piece) + len(separator)
        fits(size)
        parts.append(piece)
    return str(made(separator.join(parts)))


def replace(value: str, old: str, new: str, count: int = -1) -> str:
    found = value.count(old)
    found = min(found, count) if count >= 0 else found
    fits(len(value) + found * (len(new) - len(old)))
    return str(made(value.replace(old, new, count)))


def split(value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return parts(value, value.split(sep, maxsplit if 0 <= maxsplit < MAX_ITEMS else MAX_ITEMS))


def rsplit(value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    # From the right, Python compares up to every character with every other.
    fits(len(value) * len(sep or ""), 10 * MAX_TEXT, "comparisons to split a text")
    return parts(value, value.rsplit(sep, maxsplit if 0 <= maxsplit < MAX_ITEMS else MAX_ITEMS))


def splitlines(value: str) -> list[str]:
    lines = LINE_END.split(value, MAX_ITEMS)
    return parts(value, lines if lines[-1] else lines[:-1])


def parts(value: str, found: list[str]) -> list[str]:
    spend(sys.getsizeof(value) + STEP * len(found))
    return list(made(found))


def indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    if not isinstance(width, str):
        fits(width)
        width = " " * width
    pieces = []
    for i, line in enumerate(splitlines(text(value) + "\n")):
        pieces += ["\n"] if i else []
        pieces += [width, line] if (line or blank if i else first) else [line]
    return joined(pieces)


def recased(change: Callable[[str], str]) -> Callable[[str], str]:
    def bounded_change(value: str) -> str:
        fits(len(value))
        spend(len(value) * (1 if value.isascii() else RECASED))
        return str(made(change(value)))

    return bounded_change


def stripped(strip: Callable[[str, str | None], str]) -> Callable[..., str]:
    return lambda value, chars=None: str(made(strip(value, short(chars))))


def found(find: Callable[..., Any]) -> Callable[..., Any]:
    def bounded_find(value: str, what: Any, *ends: int) -> Any:
        spend(len(value) >> 4)
        return find(value, compared(what), *ends)

    return bounded_find


def format_fields(pattern: str, *args: Any, **kwargs: Any) -> str:
    """Do what ``str.format`` does, but without conversions, attributes and items."""

    def pieces() -> Iterator[str]:
        numbers = itertools.count()
        for plain, name, spec, conversion in Formatter().parse(pattern):
            yield plain
            if name is None:
                continue
            spend()
            if conversion or not FIELD.fullmatch(spec or ""):
                raise LimitReached("it formats fields that are wide or not simple")
            name = short(name) or str(next(numbers))
            value = args[int(name)] if name.isdecimal() else kwargs[name]
            yield format(value if isinstance(value, NUMBERS) else text(value), spec or "")

    return joined(pieces())


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON for a model to read: nothing is escaped for HTML or ASCII."""
    space = indent if isinstance(indent, int) else len(indent or "")
    fits(max(space, *map(len, separators or ("", ""))), 16, "characters of space in JSON")
    if isinstance(value, Lazy):
        value = made(list(value))
    size = measured(value)
    fits(size * JSON * (2 if ensure_ascii else 1) + size // ITEM * (max(space, 0) * MAX_DEPTH + 32))
    options: dict[str, Any] = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    return str(made(json.dumps(value, ensure_ascii=ensure_ascii, **options)))


def strftime_now(format: str) -> str:
    """Return the local time as the template wants it written."""
    return datetime.now().strftime(short(format))


def raise_exception(message: Any) -> NoReturn:
    """Do what templates call to refuse messages."""
    raise Refused(text(message)[:1000])


# ---- lists and mappings ------------------------------------------------------------------------


def to_range(*ends: int) -> range:
    values = range(*ends)
    if values[MAX_ITEMS:]:
        raise LimitReached(f"it wants a range of more than {MAX_ITEMS:,} numbers")
    return values


def to_dict(*given: Any, **more: Any) -> dict[Any, Any]:
    pairs = [value.items() if isinstance(value, Mapping) else value for value in given]
    values = {compared(key): value for key, value in each(itertools.chain(*pairs))}
    return dict(listed({**values, **more}))


def listed(value: Any) -> Any:
    """Count a list or a mapping that the template writes, with what may be new in it."""
    spend(sys.getsizeof(value) + STEP * len(value))
    return TemplateList(value) if type(value) is list else value


def append(values: TemplateList, value: Any) -> None:
    fits(len(values) + 1, MAX_ITEMS, "items in a list")
    spend(ITEM)
    values.append(value)


def pop(values: TemplateList, index: int = -1) -> Any:
    spend(len(values))  # the following items move
    return values.pop(index)


def sliced(value: Any, *ends: int | None) -> Any:
    """Return the items of a value from one to another."""
    cut = value[slice(*ends)]
    return made(cut) if isinstance(cut, str | list | tuple) else cut


def searched(value: Any) -> Any:
    """Count what is to the right of ``in``."""
    if isinstance(value, Mapping | Undefined):
        return value
    return map(compared, value) if isinstance(value, Iterator) else compared(value)


def computed(sign: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Do what an operator of two values does."""
    if type(left) is type(right) is str and sign == "+":
        fits(len(left) + len(right))
        return made(left + right)
    if sign == "*" and isinstance(right, SEQUENCES):
        left, right = right, left
    if sign in ("+", "*") and isinstance(left, SEQUENCES):
        size = len(left) + len(right) if sign == "+" else len(left) * max(right, 0)
        if hasattr(left, "__html__") or hasattr(right, "__html__"):
            size *= ESCAPED  # "safe" texts escape what is added to them
        fits(size, MAX_TEXT if isinstance(left, str) else MAX_ITEMS, "characters or items")
        return made(operation(left, right))
    return calculated(sign, operation, left, right)


def calculated(sign: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    spend()
    for value in (left, right):
        check_number(value)
        if not isinstance(value, int | float | Undefined):
            raise TypeError(f"templates cannot calculate {sign} with {type(value).__name__}")
    if sign == "**" and isinstance(left, int) and isinstance(right, int):
        fits(left.bit_length() * abs(right), MAX_BITS, "bits in a number")
    return operation(left, right)


def check_number(value: Any) -> None:
    """Refuse an integer that is too large."""
    if isinstance(value, int):
        fits(value.bit_length(), MAX_BITS, "bits in a number")


def remainder(left: Any, right: Any) -> Any:
    return calculated("%", operator.mod, left, right)


def to_number(convert: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *args, **kwargs: convert(short(value), *args, **kwargs)


def ordered(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Bound a filter that compares items, or one attribute of each."""

    @pass_environment
    def bounded_choose(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        items = list(each(value))
        size = measured(*items)
        attributes = sum(str(short(arg)).count(",") + 1 for arg in (*args, *kwargs.values()))
        spend(size * len(items).bit_length() * (attributes + 1))
        chosen = choose(environment, items, *args, **kwargs)
        if isinstance(chosen, list):
            return made(chosen)
        return Lazy(value, chosen) if isinstance(chosen, Iterator) else chosen

    return bounded_choose


def dictsort(value: Mapping[Any, Any], *args: Any, **kwargs: Any) -> Any:
    size = measured(value)
    spend(size * len(value).bit_length())
    return made(filters.do_dictsort(value, *args, **kwargs))


@pass_environment
def first(environment: Any, value: Any) -> Any:
    return next(each(value), environment.undefined("there is no first item"))


@pass_environment
def last(environment: Any, value: Any) -> Any:
    return next(each(reversed(value)), environment.undefined("there is no last item"))


def reverse(value: Any) -> Any:
    if isinstance(value, str):
        return made(value[::-1])
    return Lazy(value, reversed(value if isinstance(value, Sequence) else list(each(value))))


@pass_environment
def join(environment: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = each(value)
    if attribute is not None:
        items = map(filters.make_attrgetter(environment, short(attribute)), items)
    return joined(map(text, items), text(d))


@pass_context
def apply(context: Context, value: Any, *args: Any, **kwargs: Any) -> Lazy:
    """Do what Jinja2's filter ``map`` does."""

    def items() -> Iterator[Any]:
        short(args[0] if args else kwargs.get("attribute"))
        yield from map(filters.prepare_map(context, args, dict(kwargs)), each(value))

    return Lazy(value, items() if value else ())


def select(wanted: bool, by_attribute: bool) -> Callable[..., Lazy]:
    @pass_context
    def bounded_select(context: Context, value: Any, *args: Any, **kwargs: Any) -> Lazy:
        def items() -> Iterator[Any]:
            for arg in args[: 1 + by_attribute]:
                short(arg)
            is_wanted = filters.prepare_select_or_reject(
                context, args, kwargs, operator.truth if wanted else operator.not_, by_attribute
            )
            yield from filter(is_wanted, each(value))

        return Lazy(value, items() if value else ())

    return bounded_select


def compares(compare: Any) -> Callable[[Any, Any], Any]:
    return lambda left, right: compare(compared(left), compared(right))


# ---- the list ----------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dict": to_dict,
    "namespace": lambda *given, **more: OpenNamespace(to_dict(*given, **more)),
    "raise_exception": raise_exception,
    "range": to_range,
    "strftime_now": strftime_now,
}
"""Functions that templates call by name."""

STR_METHODS: dict[str, Callable[..., Any]] = {
    "capitalize": recased(str.capitalize),
    "count": found(str.count),
    "endswith": found(str.endswith),
    "find": found(str.find),
    "format": format_fields,
    "join": lambda value, items: joined(each(items), value),
    "lower": recased(str.lower),
    "lstrip": stripped(str.lstrip),
    "replace": replace,
    "rsplit": rsplit,
    "rstrip": stripped(str.rstrip),
    "split": split,
    "splitlines": splitlines,
    "startswith": found(str.startswith),
    "strip": stripped(str.strip),
    "title": recased(str.title),
    "upper": recased(str.upper),
}
"""Methods of texts."""

LIST_METHODS: dict[str, Callable[..., Any]] = {"append": append, "pop": pop}
"""Methods of lists if the template made the list."""

MAPPING_METHODS: dict[str, Callable[..., Any]] = {
    "get": lambda value, key, default=None: value.get(compared(key), default),
    "items": lambda value: value.items(),
    "keys": lambda value: value.keys(),
    "values": lambda value: value.values(),
}
"""Methods of mappings."""

CHANGING = frozenset(("append", "clear", "extend", "insert", "pop", "popitem", "remove", "update"))
"""Methods that change their object. Jinja2 rejects them, except `LIST_METHODS`."""


def of_text(method: str) -> Callable[..., Any]:
    """Return a method of texts as a filter."""
    function = STR_METHODS[method]
    return lambda value, *args, **kwargs: function(text(value), *args, **kwargs)


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "capitalize": of_text("capitalize"),
    "count": len,
    "d": filters.do_default,
    "default": filters.do_default,
    "dictsort": dictsort,
    "first": first,
    "float": to_number(filters.do_float),
    "indent": indent,
    "int": to_number(filters.do_int),
    "items": lambda value: Lazy(value, filters.do_items(value)),
    "join": join,
    "last": last,
    "length": len,
    "list": lambda value: made(list(each(value))),
    "lower": of_text("lower"),
    "map": apply,
    "max": ordered(filters.do_max),
    "min": ordered(filters.do_min),
    "reject": select(False, by_attribute=False),
    "rejectattr": select(False, by_attribute=True),
    "replace": lambda value, old, new, count=None: replace(
        text(value), text(old), text(new), -1 if count is None else count
    ),
    "reverse": reverse,
    "safe": lambda value: filters.do_mark_safe(text(value)),
    "select": select(True, by_attribute=False),
    "selectattr": select(True, by_attribute=True),
    "sort": ordered(filters.do_sort),
    "string": text,
    "title": lambda value: made(filters.do_title(short(text(value)))),
    "tojson": to_json,
    "trim": of_text("strip"),
    "unique": ordered(filters.sync_do_unique),
    "upper": of_text("upper"),
}
"""Filters, by their names."""

KINDS = """
boolean callable defined false float integer iterable mapping none number sameas sequence string
true undefined
"""
COMPARISONS = "== eq equalto != ne < lt lessthan <= le > gt greaterthan >= ge"
TESTS: dict[str, Any] = {
    **{name: TESTS_OF_JINJA2[name] for name in KINDS.split()},
    **{name: compares(TESTS_OF_JINJA2[name]) for name in COMPARISONS.split()},
    "divisibleby": lambda value, by: remainder(value, by) == 0,
    "even": lambda value: remainder(value, 2) == 0,
    "in": lambda value, values: compared(value) in searched(values),
    "odd": lambda value: remainder(value, 2) == 1,
}
"""Tests, by their names."""
