"""Running a chat template that came with a model from a stranger.

A template is a program in Jinja2's language. Jinja2's sandbox keeps it away from Python's insides
and from changing what it is given, but not from running for ever or filling the memory. This adds
bounds, counted for each template and each rendering:

- 100,000 steps (turns of loops, calls, filters) and 1,000 more for every message;
- 10 seconds, looked at with every step;
- 10 million characters in one value, 100 million in all values and the output together; an item of
  a list or a mapping that the template makes counts as 20;
- no number of more than 10,000 bits.

What is not bounded is one operation of Python on values within these sizes: comparing or searching
them takes as long as it takes, and the 10 seconds end only after it.

Methods, filters and functions that make long texts from short ones and that no chat template needs
(``str.ljust``, ``center``, ``lipsum``, ...) are left out.

This module needs Jinja2, which the package does not: import it only to make an environment.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedEnvironment", "LimitReached", "Refused", "bounded", "string_constants"]

MAX_STEPS = 100_000
STEPS_PER_MESSAGE = 1_000
MAX_SECONDS = 10.0
MAX_SIZE = 10_000_000
ITEM_SIZE = 20
MAX_TOTAL = 100_000_000
MAX_BITS = 10_000
MAX_WIDTH = 1_000
MAX_JSON_SPACE = 16

# Filters and tests are called by name. A template cannot write a name with a space.
STEP, CONCAT, MEASURED = " step", " concat", " measured"

# Four digits, or a width that is an argument, in a field of "%" or of str.format.
WIDE_FIELD = re.compile(r"%[^%a-zA-Z]*(\d{4}|\*)|\{[^{}]*:[^{}]*(\d{4}|\{)")

FILTERS_LEFT_OUT = ("batch", "center", "pprint", "slice", "urlize", "wordwrap", "xmlattr")
STR_METHODS_LEFT_OUT = frozenset(
    (
        "center",
        "encode",
        "expandtabs",
        "format_map",
        "ljust",
        "maketrans",
        "rjust",
        "translate",
        "zfill",
    )
)


class Refused(Exception):  # noqa: N818 - what it does
    """The template called ``raise_exception``; the text is the template's own."""


class LimitReached(Exception):  # noqa: N818 - an outcome
    """The template would do more than it may."""


class Budget:
    """What a template may still do."""

    def __init__(self, messages: int) -> None:
        self._steps = MAX_STEPS + STEPS_PER_MESSAGE * messages
        self._total = MAX_TOTAL
        self._until = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        """Count one turn of a loop, one call or one filter."""
        self._steps -= 1
        if self._steps < 0:
            raise LimitReached("it takes too many steps")
        if time.monotonic() > self._until:
            raise LimitReached(f"it takes longer than {MAX_SECONDS:g} seconds")

    def take(self, size: int) -> None:
        """Count a value of so many characters or items."""
        self._total -= size
        if size > MAX_SIZE or self._total < 0:
            raise LimitReached(f"it makes values of more than {MAX_SIZE:,} characters")


_budget: ContextVar[Budget] = ContextVar("_budget")


@contextmanager
def bounded(messages: int = 0) -> Iterator[None]:
    """Give what is compiled or rendered inside a budget of its own, for so many messages."""
    budget = Budget(messages)
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment that templates are written for: Hugging Face's, with bounds."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, GenerationTag],
            finalize=_counted,
            cache_size=0,
            optimized=False,  # what is computed while compiling would have to be bounded, too
        )
        self.filters["tojson"] = to_json
        for name in FILTERS_LEFT_OUT:
            del self.filters[name]
        self.filters = {name: _bounded_filter(name, f) for name, f in self.filters.items()}
        self.filters.update({STEP: _step, CONCAT: _concat, MEASURED: _measured})
        del self.globals["lipsum"]
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        counted: nodes.Template = CountSteps().visit(template)
        counted.set_environment(self)
        return counted

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in STR_METHODS_LEFT_OUT:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(
        __self,  # noqa: N805 - the names leave room for a template's keywords
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        _budget.get().step()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja2 wraps str.format in its own
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_growth(f"str.{method.__name__}", owner, args, kwargs)
        elif __obj is dict or __obj is Namespace:
            _measured([args, kwargs])
        return _counted(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return _measured(super().call_binop(context, operator, left, right))


class CountSteps(NodeTransformer):
    """Rewrite a template so that loops count their turns and new values are measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja2's name
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_filter(nodes.Const(True), STEP), lineno=node.lineno))
        if node.test is not None:  # items that fail it do not reach the body
            node.test = nodes.And(_filter(nodes.Const(True), STEP), node.test)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes), CONCAT)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._measure(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._measure(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._measure(node) if node.ctx == "load" else node

    def _measure(self, node: nodes.Expr) -> nodes.Node:
        # [x, x] takes no room, but written out it is twice as long as x, and so on.
        self.generic_visit(node)
        return _filter(node, MEASURED) if any(node.find_all(nodes.Name)) else node


class GenerationTag(Extension):
    """``{% generation %}...{% endgeneration %}`` marks for training what an assistant wrote."""

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def string_constants(environment: BoundedEnvironment, source: str) -> set[str]:
    """Return the strings that a template's expressions are written with."""
    constants = environment.parse(source).find_all(nodes.Const)
    return {node.value for node in constants if isinstance(node.value, str)}


def raise_exception(message: str) -> None:
    """Do what templates call to refuse messages."""
    raise Refused(str(message))


def strftime_now(format: str) -> str:
    """Return the local time as the template wants it written."""
    _check_widths(format, 0)
    return datetime.now().strftime(format)


def to_json(
    value: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    """Write JSON for a model to read: nothing is escaped for HTML or ASCII."""
    if max(map(len, separators or ("",))) > MAX_JSON_SPACE or (indent or 0) > MAX_JSON_SPACE:
        raise LimitReached(f"it spaces JSON by more than {MAX_JSON_SPACE} characters")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    chunks = []
    for chunk in encoder.iterencode(value):
        _budget.get().take(len(chunk))
        chunks.append(chunk)
    return "".join(chunks)


# ---- counting ----------------------------------------------------------------------------------


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _step(value: Any) -> Any:
    _budget.get().step()
    return value


def _counted(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict):
        _budget.get().take(len(value))
    return value


def _measured(value: Any) -> Any:
    _budget.get().take(_size(value))
    return value


def _size(value: Any) -> int:
    """Return about how long a value would be written out; stops when it is clearly too long."""
    size, waiting = 0, [value]
    while waiting and size <= MAX_SIZE:
        item = waiting.pop()
        size += ITEM_SIZE
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, Namespace):
            waiting.append(item._Namespace__attrs)
    return size


def _concat(items: Sequence[Any]) -> str:
    _measured(items)
    return "".join(map(str, items))


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Filters that want the environment or the context get it first, and say so by an attribute.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded_filter(*arguments: Any, **kwargs: Any) -> Any:
        _budget.get().step()
        args = list(arguments)
        if name == "join" and isinstance(args[first], Iterator):
            args[first] = list(args[first])
        if not isinstance(args[first], Undefined):
            _check_growth(name, args[first], args[first + 1 :], kwargs)
        return _counted(function(*args, **kwargs))

    return bounded_filter


# ---- operations that make much out of little ---------------------------------------------------


def _check_growth(name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a filter or a method of a text whose result would be too large to be counted after.

    Wrong numbers of arguments are left to the function itself.
    """
    given = [*args, *kwargs.values()]
    if name in ("replace", "str.replace"):
        text, old, new = str(value), "", max(map(str, given), key=len, default="")
        if given:
            old = str(kwargs.get("old", given[0]))
        _budget.get().take(len(text) + text.count(old) * len(new))
    elif name == "join":
        _budget.get().take(_size(value) + len(value) * _size(given))
    elif name == "str.join" and given and hasattr(given[0], "__len__"):
        _budget.get().take(_size(given) + len(given[0]) * len(value))
    elif name == "str.join":
        raise LimitReached("it joins what has no length")
    elif name in ("format", "str.format"):
        _check_widths(str(value), _size(given))
    elif name in ("indent", "round"):
        if any(isinstance(arg, int) and arg > MAX_WIDTH for arg in given):
            raise LimitReached(f"it asks to {name} by more than {MAX_WIDTH:,}")
        lines = value.count("\n") + 1 if isinstance(value, str) else _size(value)
        _budget.get().take(lines * (MAX_WIDTH if given and name == "indent" else 4) + _size(given))


def _check_operands(operator: str, left: Any, right: Any) -> None:
    repeated = (str, list, tuple)
    if operator == "*" and isinstance(right, repeated):
        left, right = right, left
    if operator == "%" and isinstance(left, str):
        _check_widths(left, _size(right))
    elif operator == "*" and isinstance(left, repeated) and isinstance(right, int):
        _budget.get().take(len(left) * max(right, 0))
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length()
        if max(bits, right.bit_length()) > MAX_BITS:
            raise LimitReached(f"it makes numbers of more than {MAX_BITS:,} bits")


def _check_widths(pattern: str, size: int) -> None:
    """Refuse a format whose fields are wide, or as wide as an argument of some `size` says."""
    if WIDE_FIELD.search(pattern):
        raise LimitReached("it formats wide fields")
    fields = pattern.count("%") + pattern.count("{")
    _budget.get().take(len(pattern) + fields * size)
