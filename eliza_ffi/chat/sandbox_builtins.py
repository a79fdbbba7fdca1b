"""The functions, filters, tests and methods that a chat template may use.

Each function is written or wrapped so that one call can neither take long nor create a large value.
A function that creates a string checks the length first, or builds it from pieces and stops at the
limit. A function that compares or sorts values measures them first. A function that iterates over
items charges the budget for each item.
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
    OpenNamespace,
    TemplateList,
    charge_comparison,
    charge_new,
    check_short,
    check_size,
    counted,
    measure,
    spend,
)

MAX_BITS = 10_000
ESCAPED, JSON, REPR = 5, 6, 10  # maximum length of one character in HTML, in JSON and in `repr`
RECASED = 12  # bytes of memory that Python uses to change the case of one character

NUMBERS = (int, float)  # a bool is an int
SEQUENCES = (str, list, tuple)

LINE_END = regex("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
FIELD = regex(r"(.?[<>=^])?[-+ ]?#?0?\d{0,3}[,_]?(\.\d{1,3})?[a-zA-Z%]?", DOTALL)


class Rejected(Exception):  # noqa: N818 - an outcome
    """The template called ``raise_exception``; the text is the template's own."""


# ---- strings -----------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Return ``str(value)``, and charge it to the budget."""
    if type(value) is str:
        return value
    if isinstance(value, str | Undefined) or type(value) in SCALARS:
        return str(value)
    check_size(REPR * measure(value))
    return str(charge_new(str(value)))


def join_texts(pieces: Iterable[str], separator: str = "") -> str:
    """Join strings, and charge the result to the budget."""
    size, parts = 0, []
    for piece in pieces:
        size += len(piece) + len(separator)
        check_size(size)
        parts.append(piece)
    return str(charge_new(separator.join(parts)))


def replace(value: str, old: str, new: str, count: int = -1) -> str:
    found = value.count(old)
    found = min(found, count) if count >= 0 else found
    check_size(len(value) + found * (len(new) - len(old)))
    return str(charge_new(value.replace(old, new, count)))


def split(value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return charge_pieces(
        value, value.split(sep, maxsplit if 0 <= maxsplit < MAX_ITEMS else MAX_ITEMS)
    )


def rsplit(value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    # Python's `rsplit` may compare every character with every character of the separator.
    check_size(len(value) * len(sep or ""), 10 * MAX_TEXT, "comparisons to split a string")
    return charge_pieces(
        value, value.rsplit(sep, maxsplit if 0 <= maxsplit < MAX_ITEMS else MAX_ITEMS)
    )


def splitlines(value: str) -> list[str]:
    lines = LINE_END.split(value, MAX_ITEMS)
    return charge_pieces(value, lines if lines[-1] else lines[:-1])


def charge_pieces(value: str, found: list[str]) -> list[str]:
    spend(sys.getsizeof(value) + STEP * len(found))
    return list(charge_new(found))


def indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    if not isinstance(width, str):
        check_size(width)
        width = " " * width
    pieces = []
    for i, line in enumerate(splitlines(text(value) + "\n")):
        pieces += ["\n"] if i else []
        pieces += [width, line] if (line or blank if i else first) else [line]
    return join_texts(pieces)


def bounded_case_change(change: Callable[[str], str]) -> Callable[[str], str]:
    def bounded_change(value: str) -> str:
        check_size(len(value))
        spend(len(value) * (1 if value.isascii() else RECASED))
        return str(charge_new(change(value)))

    return bounded_change


def bounded_strip(strip: Callable[[str, str | None], str]) -> Callable[..., str]:
    return lambda value, chars=None: str(charge_new(strip(value, check_short(chars))))


def bounded_search(find: Callable[..., Any]) -> Callable[..., Any]:
    def bounded_find(value: str, what: Any, *ends: int) -> Any:
        spend(len(value) >> 4)
        return find(value, charge_comparison(what), *ends)

    return bounded_find


def format_fields(pattern: str, *args: Any, **kwargs: Any) -> str:
    """Format like ``str.format``, without conversions, attributes and items."""

    def pieces() -> Iterator[str]:
        numbers = itertools.count()
        for plain, name, spec, conversion in Formatter().parse(pattern):
            yield plain
            if name is None:
                continue
            spend()
            if conversion or not FIELD.fullmatch(spec or ""):
                raise LimitReached("it formats a field that is too wide or not supported")
            name = check_short(name) or str(next(numbers))
            value = args[int(name)] if name.isdecimal() else kwargs[name]
            yield format(value if isinstance(value, NUMBERS) else text(value), spec or "")

    return join_texts(pieces())


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return a value as JSON for a model: without escapes for HTML and, by default, for ASCII."""
    space = indent if isinstance(indent, int) else len(indent or "")
    longest = max(space, *map(len, separators or ("", "")))
    check_size(longest, 16, "characters of indentation or of a separator in JSON")
    if isinstance(value, Lazy):
        value = charge_new(list(value))
    size = measure(value)
    check_size(
        size * JSON * (2 if ensure_ascii else 1) + size // ITEM * (max(space, 0) * MAX_DEPTH + 32)
    )
    options: dict[str, Any] = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    return str(charge_new(json.dumps(value, ensure_ascii=ensure_ascii, **options)))


def strftime_now(format: str) -> str:
    """Return the local time in a format of `datetime.strftime`."""
    return datetime.now().strftime(check_short(format))


def raise_exception(message: Any) -> NoReturn:
    """Reject the messages; templates call this function."""
    raise Rejected(text(message)[:1000])


# ---- lists and mappings ------------------------------------------------------------------------


def to_range(*ends: int) -> range:
    values = range(*ends)
    if values[MAX_ITEMS:]:
        raise LimitReached(f"it needs a range of more than {MAX_ITEMS:,} numbers")
    return values


def to_dict(*sources: Any, **more: Any) -> dict[Any, Any]:
    pairs = [value.items() if isinstance(value, Mapping) else value for value in sources]
    values = {charge_comparison(key): value for key, value in counted(itertools.chain(*pairs))}
    return dict(charge_literal({**values, **more}))


def charge_literal(value: Any) -> Any:
    """Charge a list, tuple or mapping that is written in the template, and its items."""
    spend(sys.getsizeof(value) + STEP * len(value))
    return TemplateList(value) if type(value) is list else value


def append(values: TemplateList, value: Any) -> None:
    check_size(len(values) + 1, MAX_ITEMS, "items in a list")
    spend(ITEM)
    values.append(value)


def pop(values: TemplateList, index: int = -1) -> Any:
    spend(len(values))  # Python moves the items after the removed one
    return values.pop(index)


def slice_value(value: Any, *ends: int | None) -> Any:
    """Return a slice of a value."""
    cut = value[slice(*ends)]
    return charge_new(cut) if isinstance(cut, str | list | tuple) else cut


def charge_search(value: Any) -> Any:
    """Charge the right operand of ``in``, and return it."""
    if isinstance(value, Mapping | Undefined):
        return value
    return (
        map(charge_comparison, value) if isinstance(value, Iterator) else charge_comparison(value)
    )


def apply_operator(sign: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Apply a binary operator."""
    if type(left) is type(right) is str and sign == "+":
        check_size(len(left) + len(right))
        return charge_new(left + right)
    if sign == "*" and isinstance(right, SEQUENCES):
        left, right = right, left
    if sign in ("+", "*") and isinstance(left, SEQUENCES):
        size = len(left) + len(right) if sign == "+" else len(left) * max(right, 0)
        if hasattr(left, "__html__") or hasattr(right, "__html__"):
            size *= ESCAPED  # a "safe" string escapes any string that is added to it
        check_size(size, MAX_TEXT if isinstance(left, str) else MAX_ITEMS, "characters or items")
        return charge_new(operation(left, right))
    return calculate(sign, operation, left, right)


def calculate(sign: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    spend()
    for value in (left, right):
        check_number(value)
        if not isinstance(value, int | float | Undefined):
            raise TypeError(f"templates cannot apply {sign} to {type(value).__name__}")
    if sign == "**" and isinstance(left, int) and isinstance(right, int):
        check_size(left.bit_length() * abs(right), MAX_BITS, "bits in a number")
    return operation(left, right)


def check_number(value: Any) -> None:
    """Raise :class:`LimitReached` if an integer is too large."""
    if isinstance(value, int):
        check_size(value.bit_length(), MAX_BITS, "bits in a number")


def remainder(left: Any, right: Any) -> Any:
    return calculate("%", operator.mod, left, right)


def to_number(convert: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *args, **kwargs: convert(check_short(value), *args, **kwargs)


def bounded_ordering(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Bound the time of a filter that compares items, or attributes of items."""

    @pass_environment
    def bounded_choose(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        items = list(counted(value))
        size = measure(*items)
        attributes = sum(str(check_short(arg)).count(",") + 1 for arg in (*args, *kwargs.values()))
        spend(size * len(items).bit_length() * (attributes + 1))
        chosen = choose(environment, items, *args, **kwargs)
        if isinstance(chosen, list):
            return charge_new(chosen)
        return Lazy(value, chosen) if isinstance(chosen, Iterator) else chosen

    return bounded_choose


def dictsort(value: Mapping[Any, Any], *args: Any, **kwargs: Any) -> Any:
    size = measure(value)
    spend(size * len(value).bit_length())
    return charge_new(filters.do_dictsort(value, *args, **kwargs))


@pass_environment
def first(environment: Any, value: Any) -> Any:
    return next(counted(value), environment.undefined("there is no first item"))


@pass_environment
def last(environment: Any, value: Any) -> Any:
    return next(counted(reversed(value)), environment.undefined("there is no last item"))


def reverse(value: Any) -> Any:
    if isinstance(value, str):
        return charge_new(value[::-1])
    return Lazy(value, reversed(value if isinstance(value, Sequence) else list(counted(value))))


@pass_environment
def join(environment: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = counted(value)
    if attribute is not None:
        items = map(filters.make_attrgetter(environment, check_short(attribute)), items)
    return join_texts(map(text, items), text(d))


@pass_context
def apply(context: Context, value: Any, *args: Any, **kwargs: Any) -> Lazy:
    """Apply Jinja2's filter ``map``."""

    def items() -> Iterator[Any]:
        check_short(args[0] if args else kwargs.get("attribute"))
        yield from map(filters.prepare_map(context, args, dict(kwargs)), counted(value))

    return Lazy(value, items() if value else ())


def select(wanted: bool, by_attribute: bool) -> Callable[..., Lazy]:
    @pass_context
    def bounded_select(context: Context, value: Any, *args: Any, **kwargs: Any) -> Lazy:
        def items() -> Iterator[Any]:
            for arg in args[: 1 + by_attribute]:
                check_short(arg)
            is_wanted = filters.prepare_select_or_reject(
                context, args, kwargs, operator.truth if wanted else operator.not_, by_attribute
            )
            yield from filter(is_wanted, counted(value))

        return Lazy(value, items() if value else ())

    return bounded_select


def bounded_comparison(compare: Any) -> Callable[[Any, Any], Any]:
    return lambda left, right: compare(charge_comparison(left), charge_comparison(right))


# ---- the allowed names --------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dict": to_dict,
    "namespace": lambda *sources, **more: OpenNamespace(to_dict(*sources, **more)),
    "raise_exception": raise_exception,
    "range": to_range,
    "strftime_now": strftime_now,
}
"""Functions, by their names."""

STR_METHODS: dict[str, Callable[..., Any]] = {
    "capitalize": bounded_case_change(str.capitalize),
    "count": bounded_search(str.count),
    "endswith": bounded_search(str.endswith),
    "find": bounded_search(str.find),
    "format": format_fields,
    "join": lambda value, items: join_texts(counted(items), value),
    "lower": bounded_case_change(str.lower),
    "lstrip": bounded_strip(str.lstrip),
    "replace": replace,
    "rsplit": rsplit,
    "rstrip": bounded_strip(str.rstrip),
    "split": split,
    "splitlines": splitlines,
    "startswith": bounded_search(str.startswith),
    "strip": bounded_strip(str.strip),
    "title": bounded_case_change(str.title),
    "upper": bounded_case_change(str.upper),
}
"""Methods of strings."""

LIST_METHODS: dict[str, Callable[..., Any]] = {"append": append, "pop": pop}
"""Methods of lists that the template created."""

MAPPING_METHODS: dict[str, Callable[..., Any]] = {
    "get": lambda value, key, default=None: value.get(charge_comparison(key), default),
    "items": lambda value: value.items(),
    "keys": lambda value: value.keys(),
    "values": lambda value: value.values(),
}
"""Methods of mappings."""

CHANGING = frozenset(("append", "clear", "extend", "insert", "pop", "popitem", "remove", "update"))
"""Methods that change their object. Jinja2 rejects them, except `LIST_METHODS`."""


def of_text(method: str) -> Callable[..., Any]:
    """Return the filter that applies a method of strings."""
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
    "list": lambda value: charge_new(list(counted(value))),
    "lower": of_text("lower"),
    "map": apply,
    "max": bounded_ordering(filters.do_max),
    "min": bounded_ordering(filters.do_min),
    "reject": select(False, by_attribute=False),
    "rejectattr": select(False, by_attribute=True),
    "replace": lambda value, old, new, count=None: replace(
        text(value), text(old), text(new), -1 if count is None else count
    ),
    "reverse": reverse,
    "safe": lambda value: filters.do_mark_safe(text(value)),
    "select": select(True, by_attribute=False),
    "selectattr": select(True, by_attribute=True),
    "sort": bounded_ordering(filters.do_sort),
    "string": text,
    "title": lambda value: charge_new(filters.do_title(check_short(text(value)))),
    "tojson": to_json,
    "trim": of_text("strip"),
    "unique": bounded_ordering(filters.sync_do_unique),
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
    **{name: bounded_comparison(TESTS_OF_JINJA2[name]) for name in COMPARISONS.split()},
    "divisibleby": lambda value, by: remainder(value, by) == 0,
    "even": lambda value: remainder(value, 2) == 0,
    "in": lambda value, values: charge_comparison(value) in charge_search(values),
    "odd": lambda value: remainder(value, 2) == 1,
}
"""Tests, by their names."""
