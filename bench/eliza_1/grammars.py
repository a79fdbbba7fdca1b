"""Write skeletons as grammars in GBNF, to compare filled answers with grammar-constrained ones."""

from __future__ import annotations

from collections.abc import Sequence

from eliza_ffi.elizaos.actions import Action, Parameter
from eliza_ffi.elizaos.planning import (
    OPENING,
    ActionSkeleton,
    ParametersSkeleton,
    options_after,
)
from eliza_ffi.structured.json_text import json_text
from eliza_ffi.structured.placed_span import JSON_DEPTH, MAX_SPACES, PlacedSpan
from eliza_ffi.structured.skeleton import Skeleton

JSON_RULES = rf"""
json-string ::= "\"" json-char* "\""
json-char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" json-code)
json-code ::= [0-9A-CEFa-cef] json-hex json-hex json-hex | [Dd] [0-7] json-hex json-hex | \
[Dd] [89ABab] json-hex json-hex "\\u" [Dd] [C-Fc-f] json-hex json-hex
json-hex ::= [0-9A-Fa-f]
json-number ::= json-integer ("." [0-9]+)? ([Ee] [-+]? [0-9]+)?
json-integer ::= "-"? ("0" | [1-9] [0-9]*)
json-space ::= [ \t\n\r]{{0,{MAX_SPACES}}}
""".replace("\\\n", "")


def grammar_of(skeleton: Skeleton | ActionSkeleton | ParametersSkeleton) -> str:
    """Return the GBNF grammar of exactly the answers of a skeleton without rules of its own."""
    rules: list[str] = []
    if isinstance(skeleton, Skeleton):
        parts = [_quoted(skeleton.placed[0].before)]
        for placed in skeleton.placed:
            parts += [_value(placed), _quoted(placed.after)]
        root = " ".join(parts)
    elif isinstance(skeleton, ParametersSkeleton):
        root = f'"{{" {_parameters(rules, skeleton.action, "action", "}")}'
    else:
        options = []
        for i, action in enumerate(skeleton.actions):
            name = _quoted(f'{OPENING}{json_text(action.name)},"parameters":{{')
            options.append(f"{name} {_parameters(rules, action, f'action-{i}', '}}')}")
        root = " | ".join(options)
    return f"root ::= {root}\n" + "\n".join(rules) + JSON_RULES + _json_values()


def _parameters(rules: list[str], action: Action, name: str, closing: str) -> str:
    """Add a rule for the text that follows each parameter; return the name of the first rule."""
    parameters: Sequence[Parameter] = action.parameters
    for begin in range(len(parameters) + 1):
        options = []
        for option, i in options_after(parameters, begin, closing).items():
            value = "" if i is None else f"{_value(parameters[i].placed(i))} {name}-{i + 1}"
            options.append(f"{_quoted(option)} {value}")
        rules.append(f"{name}-{begin} ::= {' | '.join(options)}")
    return f"{name}-0"


def _value(placed: PlacedSpan) -> str:
    if placed.is_literal:
        return '""'
    if placed.texts is not None:
        return f"({' | '.join(map(_quoted, placed.texts))})"
    if placed.span.kind == "free-json":
        return f"json-value-{JSON_DEPTH}"
    if placed.span.kind == "free-string":
        return "json-char*" if placed.in_string else "json-string"
    return f"json-{placed.span.kind}"


def _json_values() -> str:
    """Return the rules of a JSON value up to each depth."""
    scalar = 'json-string | json-number | "true" | "false" | "null"'
    lines = [f"json-value-0 ::= {scalar}"]
    for depth in range(1, JSON_DEPTH + 1):
        inner = f"json-value-{depth - 1} json-space"
        pair = f'json-string json-space ":" json-space {inner}'
        lines.append(
            f"json-value-{depth} ::= {scalar}"
            f' | "{{" json-space ({pair} ("," json-space {pair})*)? "}}"'
            f' | "[" json-space ({inner} ("," json-space {inner})*)? "]"'
        )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return an expression that matches exactly one string."""
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    body = "".join(named.get(c) or (f"\\x{ord(c):02X}" if ord(c) < 0x20 else c) for c in text)
    return f'"{body}"'
