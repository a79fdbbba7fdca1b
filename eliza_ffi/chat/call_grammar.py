"""Grammars of tool calls, for llguidance. It compiles the schema of arguments that are one JSON
object; arguments that are written one by one get rules of their own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from ..errors import InvalidArgumentError
from ..structured.guidance import Constraint, lark_constraint
from ..structured.limits import checked_schema
from ..structured.schema import grammar_of_text
from ..structured.schema_plan import plan_of_text
from ..structured.schema_walk import (
    DEFINITIONS,
    JSON_TYPES,
    ObjectForm,
    SchemaDocument,
    closed_objects,
)
from .call_format import CallFormat, Json, Members, write_members

INTEGER, FRACTION, EXPONENT = (
    "-?(0|[1-9][0-9]{0,18})",
    r"(\.[0-9]{1,16})?",
    "([eE][+-]?[0-9]{1,2})?",
)
"""Regular expressions for numbers without bounds. The number of digits is limited;
:mod:`eliza_ffi.structured.json_limit` explains why."""

BOUNDS = {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}

EMPTY = '""'
ANY = "(?s:.*)"
PYTHON_STRING = r"'([^'\\\x00-\x1f]|\\['\\nrt])*'"

Split = Callable[[str], "Sequence[str | int]"]
"""Splits fixed text into its plain parts and control tokens, in their order."""


def call_grammar(
    format: CallFormat, schema: Mapping[str, Any], before: str, after: str, split: Split
) -> Constraint:
    """Return the grammar of a call's arguments, with the fixed text around them, in which `split`
    finds the control tokens. Raise InvalidArgumentError if the schema or the format does not allow
    it."""
    closed = closed_objects(checked_schema(schema))
    made = grammar_of_text(closed)  # its errors name the place in the schema
    plan = None
    rules = _Rules(format, made.schema, split)
    if isinstance(format.arguments, Json):
        compiled = json.loads(made.grammar)["grammars"][0]["json_schema"]
        arguments = rules.json(compiled, format.arguments)
        rules.json_after[before] = None
        comma, colon = (",", ":") if format.arguments.compact else (", ", ": ")
        plan = plan_of_text(made.prepared, comma, colon, before, after)
    else:
        arguments = rules.object(format.arguments, made.schema)
    start = _row(rules.fixed(before), arguments, rules.fixed(after)) or EMPTY
    lines = [f"start: {start}", *(f"{name}: {body}" for name, body in rules.bodies.items())]
    limits: Any = {"json_after": rules.json_after, "max_digits": made.max_digits}
    return lark_constraint("\n".join(lines) + "\n", **limits, plan=plan)


def first_texts(format: CallFormat, schema: Mapping[str, Any], after: str) -> list[str]:
    """Return the fixed strings that can follow the tool's name directly: the beginnings of
    arguments, and `after` if there may be none."""
    members = format.arguments
    if isinstance(members, Json):
        return ["{"]
    texts: dict[str, None] = {}
    document = SchemaDocument(schema)
    for form in document.object_forms(schema):
        for name in sorted(form.names, key=str.lower) if members.sort else form.names:
            allowed = document.types(document.inside(schema, name))
            for member in members.of_types(allowed).values():
                texts[member.until_value(name)] = None
            if name in form.required:
                break
        else:
            texts[after] = None
    return list(texts)


class _Rules:
    """The rules and terminals of a grammar; equal ones are defined only once."""

    def __init__(self, format: CallFormat, root: Mapping[str, Any], split: Split) -> None:
        self.bodies: dict[str, str] = {}  # the right side of each rule and terminal by its name
        self.json_after: dict[str, None] = {}  # the fixed strings that precede JSON values
        self._names: dict[Any, str] = {}
        self._document = SchemaDocument(root)
        self._split = split
        self._objects = format.arguments if isinstance(format.arguments, Members) else None
        self._items = format.items

    def fixed(self, text: str) -> str:
        parts = self._split(text) if text else ()
        return _row(*(_quoted(part) if isinstance(part, str) else f"<[{part}]>" for part in parts))

    def json(self, schema: Mapping[str, Any], style: Json | None = None) -> str:
        """Return the rule of a JSON value, by default in the style of `json.dumps`."""
        compact = style is not None and style.compact
        options = {
            "whitespace_flexible": False,
            "item_separator": "," if compact else ", ",
            "key_separator": ":" if compact else ": ",
        }
        root = self._document.root
        definitions = {name: root[name] for name in DEFINITIONS if name in root}
        own = schema.get("x-guidance", {"lenient": True})
        whole = {**definitions, **schema, "x-guidance": {**own, **options}}
        text = json.dumps(whole)
        return self._rule(("json", text), lambda: f"%json {text}")

    def object(self, members: Members, schema: Any) -> str:
        """Return the rule of an object's members; optional members may be left out."""
        forms = self._document.object_forms(schema)
        return self._either([self._form(members, schema, form) for form in forms])

    def _either(self, rules: Sequence[str]) -> str:
        different = list(dict.fromkeys(rule or EMPTY for rule in rules))
        if len(different) > 1:
            return self._named(" | ".join(different))
        return "" if different in ([], [EMPTY]) else different[0]

    def _form(self, members: Members, schema: Any, form: ObjectForm) -> str:
        names = sorted(form.names, key=str.lower) if members.sort else form.names
        written: list[tuple[str, bool]] = []
        for name in names:
            rule = self._member(members, name, self._document.inside(schema, name))
            if rule is not None:
                written.append((rule, name in form.required))
            elif name in form.required:
                raise InvalidArgumentError(
                    f"the model's format of tool calls cannot write the argument {name!r}: "
                    "make it optional, or give it another type"
                )
        return self._in_order(written, self.fixed(members.between))

    # ---- rules ---------------------------------------------------------------------------------

    def _rule(self, key: Any, body: Callable[[], str], prefix: str = "r") -> str:
        """Return the name of a rule; `body` may refer to the rule itself."""
        if key not in self._names:
            self._names[key] = name = f"{prefix}{len(self._names)}"
            self.bodies[name] = ""
            self.bodies[name] = body()
        return self._names[key]

    def _named(self, body: str) -> str:
        return self._rule(("rule", body), lambda: body)

    def _terminal(self, body: str) -> str:
        return self._rule(("terminal", body), lambda: body, "T")

    def _in_order(self, members: Sequence[tuple[str, bool]], between: str) -> str:
        if not between:
            return _row(*(rule if required else f"{rule}?" for rule, required in members))
        # Rules for the members from here on: `first` if no member precedes them, and `following` if
        # a member precedes them.
        first, following = "", ""
        for rule, required in reversed(members):
            taken = _row(rule, following)
            later = _row(between, taken)
            if not required:
                taken = f"{taken} | {first or EMPTY}"
                later = f"{later} | {following or EMPTY}"
            first, following = self._named(taken), self._named(later)
        return first

    def _member(self, members: Members, key: str | None, schema: Any) -> str | None:
        """Return the rule of an argument or item; None if the format cannot write it."""
        name = ("member", members is self._items, key, json.dumps(schema, sort_keys=True))
        if name not in self._names and not self._kinds(members, schema):
            return None
        return self._rule(name, lambda: " | ".join(self._writings(members, key, schema)))

    def _kinds(self, members: Members, schema: Any) -> list[str]:
        kinds = members.of_types(self._document.types(schema))
        return [kind for kind in (*JSON_TYPES, "quoted") if kind in kinds]

    def _writings(self, members: Members, key: str | None, schema: Any) -> list[str]:
        """Return the ways to write a member: one for each value, or one for each type."""
        values = self._document.values(schema)
        if values is not None:
            texts = []
            for value in values:
                pair = [value] if key is None else {key: value}
                texts.append(write_members(members, pair, self._objects, self._items))
            return [self.fixed(text) for text in dict.fromkeys(texts)]
        kinds = self._kinds(members, schema)
        return [self._writing(members, kind, key or "", schema, len(kinds)) for kind in kinds]

    def _writing(self, members: Members, kind: str, key: str, schema: Any, n_kinds: int) -> str:
        member = members.of_type[kind]
        before, closing = member.until_value(key), member.closing(key)
        opening = self.fixed(before)
        if member.value == "json" and before:
            self.json_after[before] = None
        if member.value == "raw" and kind == "quoted":
            # The quote is part of the string's terminal. The terminals of quoted and unquoted
            # strings then begin at the same place, and the lexer takes the longer match. If the
            # quote were fixed text, an unquoted string could not begin with the quote's first
            # character.
            shared = commonprefix([before, members.of_type["string"].until_value(key)])
            quote = before.removeprefix(shared)
            return _row(self.fixed(shared), self._raw(schema, "", closing, quote))
        if member.value == "raw":
            return _row(opening, self._raw(schema, members.quoted_characters, closing))
        if member.value == "members" and kind == "object":
            assert self._objects is not None
            value = self.object(self._objects, schema)
        elif member.value == "members":
            assert self._items is not None
            item = self._member(self._items, None, self._document.inside(schema, 0))
            value = self._list(schema, item, self.fixed(self._items.between))
        elif member.value == "python":
            value = self._python(kind, schema)
        elif kind == "number":
            value = self._number(schema)
        else:
            typed = schema if n_kinds == 1 else {"allOf": [schema, {"type": kind}]}
            value = self.json(typed)
        return _row(opening, value, self.fixed(closing))

    # ---- values --------------------------------------------------------------------------------

    def _raw(self, schema: Any, avoided: str, closing: str, quote: str = "") -> str:
        """Return an unescaped string after `quote`, up to the first `closing`."""
        begin = "".join(map(_escaped, quote))
        end = "".join(map(_escaped, closing))
        is_plain = all(isinstance(part, str) for part in self._split(closing))
        limits = self._limits(schema, "string")
        least, most = limits.get("minLength", 0), limits.get("maxLength", "")
        one = "[^" + "".join(map(_escaped, avoided)) + "]" if avoided else "(?s:.)"
        text = f"{one}{{{least},{most}}}" if least or most != "" else f"{one}*"
        if is_plain:  # one terminal, because the lexer takes the longest match
            body = f"/{begin}{text}{end}/ & ~/{ANY}{end}(?s:.+)/"
            return self._terminal(body)
        return _row(self._terminal(f"/{begin}{text}/ & ~/{ANY}{end}{ANY}/"), self.fixed(closing))

    def _limits(self, schema: Any, kind: str) -> Mapping[str, Any]:
        """Return the only alternative of a type; empty if there are several or none."""
        parts = [part for part in self._document.alternatives(schema) if _may_be(part, kind)]
        return parts[0] if len(parts) == 1 else {}

    def _number(self, schema: Any) -> str:
        alternatives = self._document.alternatives(schema)
        parts = [each for each in alternatives if _may_be(each, "number", "integer")]
        if any(BOUNDS & each.keys() for each in parts):
            return self.json({"allOf": [schema, {"type": "number"}]})
        if parts and all(each.get("type") == "integer" for each in parts):
            return self._terminal(f"/{INTEGER}/")
        return self._terminal(f"/{INTEGER}{FRACTION}{EXPONENT}/")

    def _list(self, schema: Any, item: str | None, between: str) -> str:
        limits = self._limits(schema, "array")
        least, most = limits.get("minItems", 0), limits.get("maxItems", math.inf)
        if item is None or most == 0:
            return ""
        last = "" if most == math.inf else f"{most - 1:.0f}"
        others = f"({_row(between, item)}){{{max(least - 1, 0)},{last}}}" if last != "0" else ""
        return f"({_row(item, others)})" + ("?" if least == 0 else "")

    def _python(self, kind: str, schema: Any) -> str:
        """Return the rule of a value in the notation of Python's `str`, in which nested strings
        have quotes."""
        if kind == "null":
            return '"None"'
        if kind == "boolean":
            return '("True" | "False")'
        if kind == "number":
            return self._number(schema)
        if kind == "string":
            return self._terminal(f"/{PYTHON_STRING}/")
        if kind == "array":
            inner = self._python_value(self._document.inside(schema, 0))
            return _row('"["', self._list(schema, inner, '", "'), '"]"')
        forms = []
        for form in self._document.object_forms(schema):
            rules = []
            for name in form.names:
                inner = self._python_value(self._document.inside(schema, name))
                pair = self._named(_row(_quoted(f"{name!r}: "), inner))
                rules.append((pair, name in form.required))
            forms.append(self._in_order(rules, '", "'))
        return _row('"{"', self._either(forms), '"}"')

    def _python_value(self, schema: Any) -> str:
        name = ("python", json.dumps(schema, sort_keys=True))
        values = self._document.values(schema)
        if values is not None:
            return self._rule(name, lambda: " | ".join(_quoted(repr(value)) for value in values))
        kinds = [kind for kind in JSON_TYPES if kind in self._document.types(schema)]
        return self._rule(name, lambda: " | ".join(self._python(kind, schema) for kind in kinds))


def _row(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(char: str) -> str:
    return char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}"


def _may_be(schema: Mapping[str, Any], *kinds: str) -> bool:
    return any(kind in schema.get("type", kind) for kind in kinds)
