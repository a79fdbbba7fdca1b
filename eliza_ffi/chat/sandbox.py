"""Running a chat template that came with a model from a stranger.

A template is a program in Jinja2's language. Jinja2's sandbox keeps it away from Python's insides
and from changing what it is given. This keeps it from running for ever and from filling the memory,
by a list of what it may use: the syntax in ``NODES`` here; functions, filters, tests and methods in
:mod:`.allowed`. All else is refused: when the template is compiled where its name is known,
otherwise when it is reached.

Nothing on the list takes long in one go. Texts that a template makes have at most 10 million
characters, its lists and mappings 100,000 items, its numbers 10,000 bits; what is to be compared,
sorted or written as JSON is first measured as if it were written out. And between any two
operations there is the budget in :mod:`.budget`: a rendering has one second of its thread's time
and 5 ms more for every message, and 100 million units. A step takes 100 of them, a value that is
made as many as it has bytes. Compiling runs nothing of the template: the template's size bounds it.

This module needs Jinja2, which the package does not: import it only to make an environment.
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

from .allowed import (
    CHANGING,
    FILTERS,
    FUNCTIONS,
    LIST_METHODS,
    MAPPING_METHODS,
    STR_METHODS,
    TESTS,
    Refused,
    check_number,
    computed,
    joined,
    listed,
    searched,
    sliced,
    text,
    to_json,
)
from .budget import (
    MAX_DEPTH,
    LimitReached,
    TemplateList,
    bounded,
    compared,
    fits,
    remaining,
    short,
    spend,
)
from .namespace import OpenNamespace, values_of

__all__ = [
    "BoundedEnvironment",
    "LimitReached",
    "Refused",
    "bounded",
    "names_needed",
    "string_constants",
    "to_json",
]

MAX_TOKENS = 15_000
MAX_NESTING = 100  # of what a template is written with
MAX_LOOPS = 10  # in each other

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

# Syntax that must be counted becomes filters. A template cannot write a name with a space.
COMPARED, CONCAT, LISTED, SEARCHED, SLICED, STEPPED = (
    " compared",
    " concat",
    " listed",
    " searched",
    " sliced",
    " stepped",
)


def concat(values: list[Any]) -> str:
    return joined(map(text, values))


def stepped(value: Any) -> Any:
    spend()
    return value


SYNTAX: dict[str, Callable[..., Any]] = {
    COMPARED: compared,
    CONCAT: concat,
    LISTED: listed,
    SEARCHED: searched,
    SLICED: sliced,
    STEPPED: stepped,
}


@pass_context  # which also tells Jinja2 not to call it while compiling
def written(context: Context, value: Any) -> str:
    spend()
    return value if type(value) is str else text(value)


class Function:
    """What a template may call: a function of ours, or a method of a text or a mapping."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class MissingArgument(Undefined):
    """An undefined argument of a macro. As in llama.cpp, its attributes are undefined, too.

    Command R+ describes the parameters of tools with a macro that calls itself with ``x.y`` and
    looks at ``x.y.type``, whether or not there is a ``y``. Elsewhere, this is an error: it may be a
    misspelt name.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name.startswith("_") else self

    def __getitem__(self, key: Any) -> Any:
        return self


def argument(value: Any) -> Any:
    """Return an argument of a macro."""
    if type(value) is Undefined and value._undefined_exception is UndefinedError:
        return MissingArgument(obj=value._undefined_obj, name=value._undefined_name)
    return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment that templates are written for, Hugging Face's, with bounds."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, Words],
            finalize=written,
            cache_size=0,
            optimized=False,  # compiling is to compute nothing
        )
        self.concat = joined  # type: ignore[method-assign]
        self.filters = {**FILTERS, **SYNTAX}
        self.tests = dict(TESTS)
        self.globals = {name: Function(function) for name, function in FUNCTIONS.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        try:
            template = super()._parse(source, name, filename)
        except RecursionError:
            raise LimitReached("it nests too deep") from None
        level: list[nodes.Node] = [template]
        for _ in range(MAX_NESTING):
            level = [child for node in level for child in node.iter_child_nodes()]
        fits(len(level), 0, f"parts that are nested {MAX_NESTING} deep")
        allowed: nodes.Template = AllowList().visit(template)
        allowed.set_environment(self)
        return allowed

    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)  # the first three are quick, and what Jinja2 would find
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
            return obj[compared(argument)]
        except (AttributeError, LookupError, TypeError):
            if isinstance(argument, str):
                return self.getattr(obj, short(argument))
        return self.undefined(obj=obj, name=short(text(argument)))

    def call(
        __self,  # noqa: N805 - the names leave room for a template's keywords
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        spend()
        if isinstance(__obj, Function | Undefined):
            for name in ("_block_vars", "_loop_vars"):  # Jinja2's own
                kwargs.pop(name, None)
            return __obj(*args, **kwargs)
        if not isinstance(__obj, Macro):
            name = getattr(__obj, "__qualname__", type(__obj).__name__)
            raise SecurityError(f"templates may not call {name}")
        budget = remaining()
        fits(budget.calls, MAX_DEPTH, "calls in calls")
        budget.calls += 1
        try:
            args = tuple(map(argument, args))
            kwargs = {name: argument(value) for name, value in kwargs.items()}
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            budget.calls -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return computed(operator, self.binop_table[operator], left, right)


class AllowList(NodeTransformer):
    """Refuses syntax and names that are not on the list, and rewrites what must be counted."""

    # Methods have the names that Jinja2 calls them by.
    # ruff: noqa: N802

    def __init__(self) -> None:
        self._loops = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if type(node).__name__ not in NODES:
            _refuse(node, f"the tag {type(node).__name__.lower()!r}")
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
            _refuse(node, "recursive loops")
        self._loops += 1
        fits(self._loops, MAX_LOOPS, "loops in loops")
        self.generic_visit(node)
        self._loops -= 1
        node.body.insert(0, nodes.ExprStmt(_filter(nodes.Const(True), STEPPED), lineno=node.lineno))
        if node.test is not None:  # items that fail it do not reach the body
            node.test = nodes.And(_filter(nodes.Const(True), STEPPED), node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        if self._loops:
            _refuse(node, "macros in loops")
        return self.generic_visit(node)

    # A name that nobody knows is left to Jinja2: it may be in a branch that is never taken.

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        if node.name in filters.FILTERS and node.name not in FILTERS:
            _refuse(node, f"the filter {node.name!r}")
        return self._visit_arguments(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        if node.name in TESTS_OF_JINJA2 and node.name not in TESTS:
            _refuse(node, f"the test {node.name!r}")
        return self._visit_arguments(node)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
        known = any(hasattr(kind, name) for kind in (str, list, dict))
        if known and not any(name in names for names in (STR_METHODS, MAPPING_METHODS, CHANGING)):
            _refuse(node, f"the method {name!r}")
        return self._visit_arguments(node)

    def _visit_arguments(self, node: Any) -> nodes.Node:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            _refuse(node, "* and ** in arguments")
        return self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        return _filter(node.node, SLICED, *(end or nodes.Const(None) for end in ends))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        operands: tuple[Any, ...] = (node, *node.ops)
        searches = any(operand.op in ("in", "notin") for operand in node.ops)
        quick = len(operands) == 2 and not searches and any(_is_small(o.expr) for o in operands)
        for operand in operands:
            fixed = _is_fixed(operand.expr)
            operand.expr = operand.expr if fixed else self.visit(operand.expr)
            if not fixed and not quick:
                contains = getattr(operand, "op", "") in ("in", "notin")
                operand.expr = _filter(operand.expr, SEARCHED if contains else COMPARED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes), CONCAT)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _filter(self.generic_visit(node), LISTED)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, LISTED) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return _filter(self.generic_visit(node), LISTED)

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _filter(node.key, COMPARED)
        return node


def _is_small(node: nodes.Expr) -> bool:
    """Say whether anything is quickly told from what an expression gives."""
    return isinstance(node, nodes.Const | nodes.Compare | nodes.Not | nodes.Test)


def _is_fixed(node: nodes.Expr) -> bool:
    """Say whether an expression is a constant, or a list of them."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_fixed, node.items))
    return isinstance(node, nodes.Const) and not isinstance(node.value, int | float)


def _filter(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _refuse(node: nodes.Node, what: str) -> NoReturn:
    raise TemplateAssertionError(f"templates may not use {what}", node.lineno)


class Words(Extension):
    """Bounds the words of a template, and knows one more.

    ``{% generation %}...{% endgeneration %}`` marks for training what an assistant wrote.
    """

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            fits(count, MAX_TOKENS, "words in a template")
            yield token

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def names_needed(environment: BoundedEnvironment, source: str) -> set[str]:
    """Return the names of variables that a template uses and does not always set itself."""
    return meta.find_undeclared_variables(Parser(environment, source).parse())


def string_constants(environment: BoundedEnvironment, source: str) -> set[str]:
    """Return the strings that a template's expressions are written with."""
    constants = Parser(environment, source).parse().find_all(nodes.Const)
    return {node.value for node in constants if isinstance(node.value, str)}
