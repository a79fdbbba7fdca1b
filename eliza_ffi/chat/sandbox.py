"""A sandbox for chat templates from untrusted model files.

A template is a program in Jinja2's language. Jinja2's sandbox prevents it from reaching Python's
internals and from changing its arguments. This module also prevents it from running forever and
from filling the memory. It does so with two allow-lists: ``NODES`` here for syntax, and
:mod:`.sandbox_builtins` for functions, filters, tests and methods. Everything else is rejected: if
possible when the template is compiled, otherwise when the template uses it.

No single allowed operation takes long. A string that the template creates has at most 10 million
characters, a list or mapping at most 100,000 items, and a number at most 10,000 bits. Values are
measured before they are compared, sorted or written as JSON.

The budget in :mod:`.budget` limits all operations together. A rendering has 1 second of CPU time of
its thread, plus 5 ms for each message, and 100 million units. A step costs 100 units. A new value
costs 100 units, and one more for each of its bytes. Compilation executes no part of the template,
so it needs no budget: the limit on the template's size also limits its time.

Importing Jinja2 takes time, so import this module only to create an environment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from jinja2 import filters, meta, nodes
from jinja2.exceptions import SecurityError, TemplateAssertionError, UndefinedError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as TESTS_OF_JINJA2
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from .budget import (
    MAX_DEPTH,
    LimitReached,
    OpenNamespace,
    TemplateList,
    bounded,
    charge_comparison,
    check_short,
    check_size,
    remaining,
    spend,
    values_of,
)
from .sandbox_builtins import (
    CHANGING,
    FILTERS,
    FUNCTIONS,
    LIST_METHODS,
    MAPPING_METHODS,
    STR_METHODS,
    TESTS,
    Rejected,
    apply_operator,
    charge_literal,
    charge_search,
    check_number,
    join_texts,
    slice_value,
    text,
    to_json,
)

__all__ = [
    "BoundedEnvironment",
    "LimitReached",
    "Rejected",
    "bounded",
    "names_needed",
    "string_constants",
    "to_json",
]

MAX_TOKENS = 15_000
MAX_NESTING = 100  # levels of nested syntax
MAX_LOOPS = 10  # levels of nested loops

STATEMENTS = """
Template Output TemplateData If For Break Continue Macro Assign AssignBlock FilterBlock With
ExprStmt
"""
EXPRESSIONS = """
Name NSRef Const Tuple List Dict Pair Keyword CondExpr Filter Test Call Getitem Getattr Slice Concat
Compare Operand Add Sub Mul Div FloorDiv Mod Pow And Or Not Neg Pos
"""
LOOP = frozenset(("index", "index0", "first", "last", "length", "previtem", "nextitem", "revindex"))
NODES = frozenset((STATEMENTS + EXPRESSIONS).split())


def concat(values: list[Any]) -> str:
    return join_texts(map(text, values))


def charge_step(value: Any) -> Any:
    spend()
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a filter for syntax. A template cannot use it, because of the space."""
    return f" {function.__name__}"


# Syntax that must be charged to the budget is rewritten as one of these filters.
SYNTAX: dict[str, Callable[..., Any]] = {
    name_of(function): function
    for function in (
        charge_comparison,
        charge_literal,
        charge_search,
        charge_step,
        concat,
        slice_value,
    )
}


@pass_context  # also keeps Jinja2 from calling this function at compile time
def to_output(context: Context, value: Any) -> str:
    spend()
    return value if type(value) is str else text(value)


class Function:
    """A function that a template may call, or a method of a string, list or mapping."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class MissingArgument(Undefined):
    """An undefined argument of a macro. As in llama.cpp, its attributes are undefined as well.

    Command R+'s template describes the parameters of tools with a macro that calls itself with
    ``x.y`` and then reads ``x.y.type``, even if ``x`` has no ``y``. Outside macros, an attribute of
    an undefined value is an error, because its name may be misspelt.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name.startswith("_") else self

    def __getitem__(self, key: Any) -> Any:
        return self


def argument(value: Any) -> Any:
    """Return an argument of a macro; an undefined one becomes a :class:`MissingArgument`."""
    if type(value) is Undefined and value._undefined_exception is UndefinedError:
        return MissingArgument(obj=value._undefined_obj, name=value._undefined_name)
    return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Hugging Face's environment for chat templates, with limits."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

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
        self.filters = {**FILTERS, **SYNTAX}
        self.tests = dict(TESTS)
        self.globals = {name: Function(function) for name, function in FUNCTIONS.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        try:
            template = super()._parse(source, name, filename)
        except RecursionError:
            raise LimitReached("it nests syntax too deep") from None
        level: list[nodes.Node] = [template]
        for _ in range(MAX_NESTING):
            level = [child for node in level for child in node.iter_child_nodes()]
        if level:
            raise LimitReached(f"it nests syntax deeper than {MAX_NESTING} levels")
        allowed: nodes.Template = AllowList().visit(template)
        allowed.set_environment(self)
        return allowed

    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)  # first three fast paths, which give the same result as Jinja2's lookup
        if kind is dict and attribute in obj and not hasattr(dict, attribute):
            return obj[attribute]
        if kind is OpenNamespace and not attribute.startswith("_"):
            values = values_of(obj)
            if attribute in values:
                return values[attribute]
        if kind is LoopContext and attribute in LOOP:
            return getattr(obj, attribute)
        method = None
        if isinstance(obj, str):
            method = STR_METHODS.get(attribute)
        elif isinstance(obj, Mapping):
            method = MAPPING_METHODS.get(attribute)
        elif isinstance(obj, TemplateList):
            method = LIST_METHODS.get(attribute)
        if method is None:
            return super().getattr(obj, attribute)
        spend()
        return Function(functools.partial(method, str(obj) if isinstance(obj, str) else obj))

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[charge_comparison(argument)]
        except (AttributeError, LookupError, TypeError):
            if isinstance(argument, str):
                return self.getattr(obj, check_short(argument))
        return self.undefined(obj=obj, name=check_short(text(argument)))

    def call(
        __self,  # noqa: N805 - a template may use any other name as a keyword
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        spend()
        if isinstance(__obj, Function | Undefined):
            for name in ("_block_vars", "_loop_vars"):  # added by Jinja2
                kwargs.pop(name, None)
            return __obj(*args, **kwargs)
        if not isinstance(__obj, Macro):
            name = getattr(__obj, "__qualname__", type(__obj).__name__)
            raise SecurityError(f"templates may not call {name}")
        budget = remaining()
        check_size(budget.calls, MAX_DEPTH, "nested calls")
        budget.calls += 1
        try:
            args = tuple(map(argument, args))
            kwargs = {name: argument(value) for name, value in kwargs.items()}
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            budget.calls -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return apply_operator(operator, self.binop_table[operator], left, right)


class AllowList(NodeTransformer):
    """Rejects syntax and names that are not allowed, and rewrites syntax that must be charged."""

    # Jinja2 calls these methods by the names of its node classes.
    # ruff: noqa: N802

    def __init__(self) -> None:
        self._loops = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if type(node).__name__ not in NODES:
            _reject(node, f"the tag {type(node).__name__.lower()!r}")
        return super().visit(node, *args, **kwargs)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = [
            nodes.TemplateData(child.value)
            if isinstance(child, nodes.Const) and isinstance(child.value, str)
            else child
            for child in node.nodes
        ]
        return self.generic_visit(node)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        check_number(node.value)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            _reject(node, "recursive loops")
        self._loops += 1
        check_size(self._loops, MAX_LOOPS, "nested loops")
        self.generic_visit(node)
        self._loops -= 1
        node.body.insert(
            0, nodes.ExprStmt(_filter(nodes.Const(True), charge_step), lineno=node.lineno)
        )
        if node.test is not None:  # items that fail the test never reach the body
            node.test = nodes.And(_filter(nodes.Const(True), charge_step), node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        if self._loops:
            _reject(node, "macros in loops")
        return self.generic_visit(node)

    # Unknown names are left to Jinja2: they may be in a branch that is never executed.

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        if node.name in filters.FILTERS and node.name not in FILTERS:
            _reject(node, f"the filter {node.name!r}")
        return self._visit_arguments(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        if node.name in TESTS_OF_JINJA2 and node.name not in TESTS:
            _reject(node, f"the test {node.name!r}")
        return self._visit_arguments(node)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
        known = any(hasattr(kind, name) for kind in (str, list, dict))
        if known and not any(name in names for names in (STR_METHODS, MAPPING_METHODS, CHANGING)):
            _reject(node, f"the method {name!r}")
        return self._visit_arguments(node)

    def _visit_arguments(self, node: Any) -> nodes.Node:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            _reject(node, "* and ** in arguments")
        return self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        return _filter(node.node, slice_value, *(end or nodes.Const(None) for end in ends))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        operands: tuple[Any, ...] = (node, *node.ops)
        searches = any(operand.op in ("in", "notin") for operand in node.ops)
        quick = len(operands) == 2 and not searches and any(_is_small(o.expr) for o in operands)
        for operand in operands:
            fixed = _is_fixed(operand.expr)
            operand.expr = operand.expr if fixed else self.visit(operand.expr)
            if not fixed and not quick:
                contains = getattr(operand, "op", "") in ("in", "notin")
                operand.expr = _filter(
                    operand.expr, charge_search if contains else charge_comparison
                )
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes), concat)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _filter(self.generic_visit(node), charge_literal)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return _filter(self.generic_visit(node), charge_literal)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, charge_literal) if node.ctx == "load" else node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _filter(node.key, charge_comparison)
        return node


def _is_small(node: nodes.Expr) -> bool:
    """Return whether comparing any value with the result of an expression is fast."""
    return isinstance(node, nodes.Const | nodes.Compare | nodes.Not | nodes.Test)


def _is_fixed(node: nodes.Expr) -> bool:
    """Return whether an expression is a constant other than a number, or a list of them."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_fixed, node.items))
    return isinstance(node, nodes.Const) and not isinstance(node.value, int | float)


def _filter(node: Any, function: Callable[..., Any], *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name_of(function), list(args), [], None, None, lineno=node.lineno)


def _reject(node: nodes.Node, what: str) -> NoReturn:
    raise TemplateAssertionError(f"templates may not use {what}", node.lineno)


class TemplateTags(Extension):
    """Limits the number of tokens in a template's source, and adds the tag ``generation``.

    ``{% generation %}...{% endgeneration %}`` marks the assistant's text, for training.
    """

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            check_size(count, MAX_TOKENS, "tokens of template source")
            yield token

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def names_needed(environment: BoundedEnvironment, source: str) -> set[str]:
    """Return the names of the variables that a template may read before it has set them."""
    return meta.find_undeclared_variables(Parser(environment, source).parse())


def string_constants(environment: BoundedEnvironment, source: str) -> set[str]:
    """Return the string constants in a template's expressions."""
    constants = Parser(environment, source).parse().find_all(nodes.Const)
    return {node.value for node in constants if isinstance(node.value, str)}
