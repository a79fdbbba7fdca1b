"""A sandbox for chat templates from untrusted model files. In addition to Jinja2's own, it allows
only the listed syntax, functions and methods. Each operation is small and charges a budget, so that
the clock is checked soon after it. Import it only to create an environment, because importing
Jinja2 takes time."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from inspect import isroutine
from itertools import islice
from string import Formatter
from typing import Any, NoReturn, cast

from jinja2 import filters, nodes
from jinja2.exceptions import SecurityError, TemplateAssertionError, UndefinedError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import ChainableUndefined, Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as TESTS_OF_JINJA2
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

# More time for more messages, because some templates read all messages again for each message.
MAX_SECONDS, SECONDS_PER_MESSAGE = 1.0, 0.005
MAX_UNITS = 100_000_000
STEP, ATTRIBUTE = 100, 10  # units of a step or an item of a new list, and of reading an attribute
CLOCK_INTERVAL = 20_000  # units between two checks of the clock

MAX_TEXT = 10_000_000  # characters of a string that a template creates
MAX_ITEMS = 100_000  # items of a list or mapping that a template creates
MAX_BITS = 10_000  # bits of a number
MAX_KEY = 10_000  # characters of a key, name or number
MAX_DEPTH = 50  # levels of nested values, and of nested calls
MAX_TOKENS = 15_000
MAX_NESTING = 100  # levels of nested syntax
SCALARS = frozenset((bool, float, int, type(None)))
ESCAPED = 10  # maximum length of one character in `repr`
ITEM = 20  # characters added for each item when a value is written out, such as quotes and commas
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
SYNTAX = (
    *(nodes.Template, nodes.Output, nodes.If, nodes.For, nodes.Break, nodes.Continue, nodes.With),
    *(nodes.Macro, nodes.Assign, nodes.AssignBlock, nodes.FilterBlock, nodes.ExprStmt),
    *(nodes.Expr, nodes.Helper),
)


class LimitReached(Exception):  # noqa: N818 - an outcome
    """The template exceeds a limit."""


class Rejected(Exception):  # noqa: N818 - an outcome
    """The template called ``raise_exception``; the text is the template's own."""


# ---- the budget --------------------------------------------------------------------------------


class Budget:
    """The units and the time that a rendering has left."""

    def __init__(self, messages: int) -> None:
        self.calls = 0
        self.left = MAX_UNITS
        self.next_check = MAX_UNITS - CLOCK_INTERVAL
        self.seconds = MAX_SECONDS + SECONDS_PER_MESSAGE * messages
        self.until = time.thread_time() + self.seconds


_budget: ContextVar[Budget] = ContextVar("_budget")
remaining = _budget.get  # returns the budget of the current rendering


@contextmanager
def bounded(messages: int = 0) -> Iterator[None]:
    """Give the rendering of a number of messages inside the ``with`` block its own budget."""
    token = _budget.set(Budget(messages))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(units: int = STEP) -> None:
    """Charge units. Raise :class:`LimitReached` if no units or no time is left."""
    budget = _budget.get()
    budget.left -= units
    if budget.left < budget.next_check:
        if budget.left < 0:
            raise LimitReached("it takes too many steps or too much memory")
        if time.thread_time() > budget.until:
            raise LimitReached(f"it takes longer than {budget.seconds:g} seconds")
        budget.next_check = max(0, budget.left - CLOCK_INTERVAL)


def check_size(size: int, limit: int = MAX_TEXT, what: str = "characters in a string") -> None:
    """Raise :class:`LimitReached` if a value that is about to be created or read is too large."""
    if size > limit:
        raise LimitReached(f"it needs more than {limit:,} {what}")


class TemplateList(list[Any]):
    """A list that the template created and may change."""

    __qualname__ = "list"  # for error messages


def charge(value: Any) -> Any:
    """Charge the memory of a new value and return the value; lists become `TemplateList`s."""
    if isinstance(value, str):
        check_size(len(value))
        spend(STEP + sys.getsizeof(value))
    elif isinstance(value, list | tuple | dict):
        check_size(len(value), MAX_ITEMS, "items in a list or mapping")
        spend(STEP * (1 + len(value)) + sys.getsizeof(value))
        return TemplateList(value) if type(value) is list else value
    elif isinstance(value, int):
        check_size(value.bit_length(), MAX_BITS, "bits in a number")
    return value


def items_of(values: Any) -> Any:
    """Return the items of any iterable as a new list."""
    return charge(list(islice(values, MAX_ITEMS + 1)))


def measure(*values: Any) -> int:
    """Return the approximate length of values written out, and charge its reading. A value may
    contain another one several times, so it can be much longer than its memory."""
    size, level = 0, list(values)
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            size += ITEM
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, Mapping):
                below += item.keys()
                below += item.values()
            elif isinstance(item, Namespace):
                raise LimitReached("it nests a namespace in a value that it writes or compares")
            elif isinstance(item, Collection):
                below += item
            check_size(size + ITEM * len(below), MAX_TEXT, "characters in a value")
        if not below:
            spend(STEP + size // 16)
            return size
        level = below
    raise LimitReached(f"it nests values deeper than {MAX_DEPTH}")


def measured(value: Any) -> Any:
    """Return a value that is about to be compared, hashed or passed to a function."""
    if type(value) is str:
        spend(STEP + len(value) // 16)
    elif isinstance(value, Iterator):  # made by a filter such as `map`
        return measured(items_of(value))
    elif type(value) not in SCALARS:
        measure(value)
    return value


def text(value: Any) -> str:
    if isinstance(value, str) or type(value) in SCALARS:
        return str(value)
    check_size(ESCAPED * measure(value))
    written: str = charge(str(value))
    return written


def key_of(value: Any) -> Any:
    size = len(value) if isinstance(value, str) else measure(value)
    check_size(size, MAX_KEY, "characters in a key, name or number")
    return value


def join_texts(pieces: Iterable[str], separator: str = "") -> str:
    """Join strings, and stop at the maximum length."""
    size, parts = 0, []
    for piece in pieces:
        size += len(piece) + len(separator)
        check_size(size)
        parts.append(piece)
    joined: str = charge(separator.join(parts))
    return joined


# ---- functions, methods and filters ------------------------------------------------------------


def limited(
    function: Callable[..., Any],
    size: Callable[..., int] = lambda *_, **__: 0,
    first: Callable[[Any], Any] = measured,
) -> Callable[..., Any]:
    """Return a function that measures its arguments and charges its result. `size` computes how
    many characters the function creates or compares; `first` converts its first argument."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args = *map(first, args[:1]), *map(measured, args[1:])
        kwargs = {name: measured(value) for name, value in kwargs.items()}
        check_size(size(*args, **kwargs))
        return charge(function(*args, **kwargs))

    return call


def count_lines(value: str) -> int:
    lines = 2 + sum(map(value.count, LINE_ENDS))
    check_size(lines, MAX_ITEMS, "lines")
    return lines


def size_indented(value: str, width: Any = 4, *_: Any, **__: Any) -> int:
    columns: int = len(width) if isinstance(width, str) else width
    return len(value) + count_lines(value) * columns


def size_compared(value: str, chars: str | None = None, *_: Any, **__: Any) -> int:
    return len(value) * len(chars or "") // 10


def size_formatted(pattern: str, *args: Any, **kwargs: Any) -> int:
    fields = [*Formatter().parse(pattern)]
    for _, name, spec, conversion in fields:
        simple = re.fullmatch(r"\w{0,99}", name or "") and not conversion
        if not simple or re.search(r"\{|\d{4}", spec or ""):
            raise LimitReached("it formats a field that is too wide or not supported")
    return len(pattern) + len(fields) * (999 + measure(*args, *kwargs.values()))


def replace(value: str, old: str, new: str, count: int | None = None) -> str:
    old, new = text(old), text(new)
    check_size(len(value) + value.count(old) * len(new))
    return value.replace(old, new, -1 if count is None else count)


def split(method: Callable[..., Any], value: str, sep: Any = None, maxsplit: int = -1) -> Any:
    spend(sys.getsizeof(value))
    return method(value, sep, maxsplit if 0 <= maxsplit < MAX_ITEMS else MAX_ITEMS)


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
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    value = measured(value)
    # `encode` is faster. Without indentation, its result is at most 12 times as long as the value.
    return join_texts([encoder.encode(value)] if indent is None else encoder.iterencode(value))


def to_range(*ends: int) -> range:
    values = range(*ends)
    check_size(len(values[: MAX_ITEMS + 1]), MAX_ITEMS, "numbers in a range")
    return values


def strftime_now(format: str) -> str:
    check_size(len(format), 100, "characters in a format of the time")
    return datetime.now().strftime(format)


def raise_exception(message: Any) -> NoReturn:
    """Reject the messages; templates call this function."""
    raise Rejected(text(message)[:1000])


def append(values: TemplateList, value: Any) -> None:
    check_size(len(values) + 1, MAX_ITEMS, "items in a list or mapping")
    values.append(value)


@pass_context
def join(context: Context, value: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = context.environment.filters["map"](context, value, attribute=attribute)
    return join_texts(map(text, items_of(value)), text(d))


def filter_items(name: str, context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply Jinja2's filter `name` to items."""
    for argument in map(measured, (*args, *kwargs.values())):
        if isinstance(argument, str):  # the path of an attribute, or the name of a filter
            key_of(argument)
    if value and not isinstance(value, Mapping):
        value = items_of(value)
    environment: Any = context.environment
    found = environment.of_jinja2.call_filter(name, measured(value), args, kwargs, context)
    return iter(items_of(found)) if isinstance(found, Iterator) else charge(found)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dict": limited(dict),
    "namespace": Namespace,
    "raise_exception": raise_exception,
    "range": to_range,
    "strftime_now": strftime_now,
}
PLAIN_METHODS = "capitalize count endswith find lower startswith title upper"
STR_METHODS: dict[str, Callable[..., Any]] = {
    **{name: limited(getattr(str, name)) for name in PLAIN_METHODS.split()},
    **{name: limited(getattr(str, name), size_compared) for name in ("strip", "lstrip", "rstrip")},
    "format": limited(str.format, size_formatted),
    "join": lambda value, items: join_texts(items_of(items), value),
    "replace": limited(replace),
    "rsplit": limited(partial(split, str.rsplit), size_compared),
    "split": limited(partial(split, str.split)),
    "splitlines": limited(str.splitlines, count_lines),
}
METHODS: tuple[tuple[type, dict[str, Callable[..., Any]]], ...] = (
    (str, STR_METHODS),
    (
        Mapping,
        {
            "get": lambda value, key, default=None: value.get(measured(key), default),
            "items": lambda value: value.items(),
            "keys": lambda value: value.keys(),
            "values": lambda value: value.values(),
        },
    ),
    (TemplateList, {"append": append, "pop": list.pop}),
)

PLAIN_FILTERS = "abs count d default first last length"
ITEM_FILTERS = "dictsort items list map max min reject rejectattr select selectattr sort unique"
FILTERS: dict[str, Callable[..., Any]] = {
    **{name: filters.FILTERS[name] for name in PLAIN_FILTERS.split()},
    **{name: limited(getattr(str, name), first=text) for name in ("capitalize", "lower", "upper")},
    **{name: pass_context(partial(filter_items, name)) for name in ITEM_FILTERS.split()},
    **{name: limited(filters.FILTERS[name], first=key_of) for name in ("float", "int", "title")},
    "indent": limited(filters.do_indent, size_indented, text),
    "join": join,
    "replace": limited(replace, first=text),
    "reverse": limited(filters.do_reverse),
    "safe": lambda value: filters.do_mark_safe(text(value)),
    "string": text,
    "tojson": to_json,
    "trim": limited(str.strip, size_compared, text),
}

KINDS = """
boolean callable defined false float integer iterable mapping none number sameas sequence string
true undefined
"""
COMPARISONS = "== eq equalto != ne < lt lessthan <= le > gt greaterthan >= ge in"
TESTS: dict[str, Any] = {
    **{name: TESTS_OF_JINJA2[name] for name in KINDS.split()},
    **{name: limited(cast(Any, TESTS_OF_JINJA2[name])) for name in COMPARISONS.split()},
    "divisibleby": lambda value, by: calculate("%", value, by) == 0,
    "even": lambda value: calculate("%", value, 2) == 0,
    "odd": lambda value: calculate("%", value, 2) == 1,
}


# ---- syntax ------------------------------------------------------------------------------------


def calculate(sign: str, left: Any, right: Any) -> Any:
    spend()
    if sign == "*" and isinstance(right, str | list | tuple):
        left, right = right, left
    if sign in ("+", "*") and isinstance(left, str | list | tuple):
        if isinstance(right, int):
            limit = MAX_TEXT if isinstance(left, str) else MAX_ITEMS
            check_size(len(left) * right, limit, "characters or items")
    else:
        for value in (left, right):
            if not isinstance(charge(value), int | float | Undefined):
                raise TypeError(f"templates cannot apply {sign} to {type(value).__name__}")
        if sign == "**" and isinstance(left, int) and isinstance(right, int):
            check_size(left.bit_length() * abs(right), MAX_BITS, "bits in a number")
    return charge(BoundedEnvironment.default_binop_table[sign](left, right))


def concat(values: list[Any]) -> str:
    return join_texts(map(text, values))


def counted(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a loop, and charge a step for each."""
    for value in values:
        spend()
        yield value


# These filters of the environment are for syntax. Templates cannot name them, because of the space.
SYNTAX_FILTERS = {" " + call.__name__: call for call in (charge, concat, counted, measured)}


@pass_context  # also keeps Jinja2 from calling this function at compile time
def to_output(context: Context, value: Any) -> str:
    spend()
    return value if type(value) is str else text(value)


class Function(partial[Any]):
    __repr__ = object.__repr__  # `partial` writes the arguments, which may be large


def argument(value: Any) -> Any:
    """Return an argument of a macro. As in llama.cpp, attributes of an undefined one are undefined,
    on which Command R+'s template relies. Elsewhere they are an error, because the name may be
    misspelt."""
    if type(value) is Undefined and value._undefined_exception is UndefinedError:
        return ChainableUndefined(obj=value._undefined_obj, name=value._undefined_name)
    return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Hugging Face's environment for chat templates, with limits."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, TemplateTags],
            finalize=to_output,
            cache_size=0,
            optimized=False,  # the compiler must not evaluate constant expressions
        )
        self.concat = join_texts  # type: ignore[method-assign]
        self.of_jinja2 = self.overlay()
        self.filters = {**FILTERS, **SYNTAX_FILTERS}
        self.tests = dict(TESTS)
        self.globals = {name: Function(function) for name, function in FUNCTIONS.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        level: list[nodes.Node] = [template]
        for _ in range(MAX_NESTING):
            level = [child for node in level for child in node.iter_child_nodes()]
        if level:
            raise LimitReached(f"it nests syntax deeper than {MAX_NESTING} levels")
        Charges().visit(template).set_environment(self)
        return template

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is dict and attribute in obj and not hasattr(dict, attribute):
            return obj[attribute]  # the result of Jinja2's lookup, faster
        spend(ATTRIBUTE)
        for kind, methods in METHODS:
            if attribute in methods and isinstance(obj, kind):
                return Function(methods[attribute], obj)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        spend(ATTRIBUTE)
        try:
            return obj[key_of(argument)]
        except (LookupError, TypeError):
            if isinstance(argument, str):
                return self.getattr(obj, argument)
        return self.undefined(obj=obj, name=argument)

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return super().call_filter(name.strip(), *args, **kwargs)  # no filter for syntax

    def is_safe_callable(self, obj: Any) -> bool:
        if not isinstance(obj, Function | Macro | Undefined):
            name = obj.__qualname__ if isroutine(obj) else type(obj).__name__
            raise SecurityError(f"templates may not call {name}")
        return True

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        spend()
        if isinstance(__obj, Macro):
            args = tuple(map(argument, args))
            kwargs = {name: argument(value) for name, value in kwargs.items()}
        budget = remaining()
        check_size(budget.calls, MAX_DEPTH, "nested calls")
        budget.calls += 1
        try:
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            budget.calls -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return calculate(operator, left, right)


class Charges(NodeTransformer):
    """Rejects syntax that is not allowed, and passes values to the functions that charge them."""

    loops = 0  # around the node

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(node, SYNTAX):
            _reject(node, f"the tag {type(node).__name__.lower()!r}")
        if getattr(node, "dyn_args", None) or getattr(node, "dyn_kwargs", None):
            _reject(node, "* and ** in arguments")
        if isinstance(node, nodes.For) and node.recursive:
            _reject(node, "recursive loops")
        if isinstance(node, nodes.Macro) and self.loops:
            _reject(node, "macros in loops")
        self.loops += isinstance(node, nodes.For)
        self.generic_visit(node)
        self.loops -= isinstance(node, nodes.For)
        match node:
            case nodes.TemplateData():
                return nodes.Const(node.data)  # whose output is charged
            case nodes.For():
                node.iter = _filter(node.iter, counted)
            case nodes.Pair():
                node.key = _filter(node.key, measured)
            case nodes.Compare():
                operands: tuple[Any, ...] = (node, *node.ops)
                simple = any(isinstance(operand.expr, nodes.Const) for operand in operands)
                if not simple or any(operand.op in ("in", "notin") for operand in node.ops):
                    for operand in operands:
                        operand.expr = _filter(operand.expr, measured)
            case nodes.Concat():
                return _filter(nodes.List(node.nodes), concat)
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return _filter(node, charge)
            case nodes.Getitem(arg=nodes.Slice()):
                return _filter(node, charge)
        return node


def _filter(node: Any, function: Callable[..., Any]) -> nodes.Filter:
    return nodes.Filter(node, " " + function.__name__, [], [], None, None, lineno=node.lineno)


def _reject(node: nodes.Node, what: str) -> NoReturn:
    raise TemplateAssertionError(f"templates may not use {what}", node.lineno)


class TemplateTags(Extension):
    """Limits the number of tokens in a template's source, and adds the tag ``generation``, which
    marks the assistant's text for training."""

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            check_size(count, MAX_TOKENS, "tokens of template source")
            yield token

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def string_constants(environment: BoundedEnvironment, source: str) -> set[str]:
    constants = Parser(environment, source).parse().find_all(nodes.Const)
    return {node.value for node in constants if isinstance(node.value, str)}
