"""JSON Schema the slow, obvious way: is a value valid? And texts that a skeleton may write.

The oracle for skeletons from schemas. It shares nothing with the reader that it checks.
"""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from typing import Any

from eliza_ffi.automata import Dfa, json_string
from eliza_ffi.skeleton.placed_span import PlacedSpan
from eliza_ffi.skeleton.response import Skeleton

__all__ = ["is_valid", "made_up", "made_up_text"]

VALUES = ("null", "[]", "{}", "12", '"a"', '{"a":[1,{"b":null}]}', "[[],{}]", "-0.5e3", "true")


def is_valid(value: Any, schema: Any, root: Any = None) -> bool:
    """Return whether a value is valid against a schema."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema

    def holds(inner: Any, each: Any) -> bool:
        return is_valid(inner, each, root)

    if "$ref" in schema and not holds(value, _target(root, schema["$ref"])):
        return False
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is_of(value, kind) for kind in kinds):
            return False
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if not all(holds(value, each) for each in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(holds(value, each) for each in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(holds(value, each) for each in schema["oneOf"]) != 1:
        return False
    if "not" in schema and holds(value, schema["not"]):
        return False
    if "if" in schema:
        branch = "then" if holds(value, schema["if"]) else "else"
        if not holds(value, schema.get(branch, True)):
            return False
    if isinstance(value, dict):
        return _is_valid_object(value, schema, root)
    if isinstance(value, list):
        return _is_valid_array(value, schema, root)
    if isinstance(value, str):
        return (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        ) and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _is_valid_number(value, schema)
    return True


def _is_valid_object(value: dict[str, Any], schema: dict[str, Any], root: Any) -> bool:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    dependent = dict(schema.get("dependentRequired", {}))
    for needed in (schema.get("dependencies", {}), schema.get("dependentSchemas", {})):
        for name, each in needed.items():
            if isinstance(each, list):
                dependent[name] = each
            elif name in value and not is_valid(value, each, root):
                return False
    if any(name not in value for name in schema.get("required", ())):
        return False
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return False
    if any(other not in value for name in value for other in dependent.get(name, ())):
        return False
    for name, inner in value.items():
        if "propertyNames" in schema and not is_valid(name, schema["propertyNames"], root):
            return False
        listed = [properties[name]] if name in properties else []
        listed += [each for pattern, each in patterns.items() if re.search(pattern, name)]
        if not all(is_valid(inner, each, root) for each in listed or [_other(schema)]):
            return False
    return True


def _other(schema: dict[str, Any]) -> Any:
    return schema.get("additionalProperties", True)


def _is_valid_array(value: list[Any], schema: dict[str, Any], root: Any) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    if schema.get("uniqueItems") and any(
        _same(a, b) for i, a in enumerate(value) for b in value[:i]
    ):
        return False
    first, rest = schema.get("prefixItems", []), schema.get("items", True)
    if isinstance(rest, list):
        first, rest = rest, schema.get("additionalItems", True)
    return all(
        is_valid(each, first[i] if i < len(first) else rest, root) for i, each in enumerate(value)
    )


def _is_valid_number(value: float, schema: dict[str, Any]) -> bool:
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, bool):
        least, above = (None, least) if above else (least, None)
    if isinstance(below, bool):
        most, below = (None, most) if below else (most, None)
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
        and ("multipleOf" not in schema or _decimal(value) % _decimal(schema["multipleOf"]) == 0)
    )


def _decimal(value: float) -> Fraction:
    """Return the number as it is written, which its float may only be close to."""
    return Fraction(repr(value))


def _target(root: Any, reference: str) -> Any:
    assert reference.startswith("#")
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        root = root[int(name)] if isinstance(root, list) else root[name]
    return root


def _is_of(value: Any, kind: str) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "number": is_number,
        "integer": is_number and value % 1 == 0,
        "boolean": isinstance(value, bool),
        "null": value is None,
    }[kind]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    return (type(a) is type(b) and a == b) or (
        isinstance(a, int | float) and isinstance(b, int | float) and a == b
    )


def made_up(skeleton: Skeleton, rng: random.Random) -> str:
    """Return some answer that filling a skeleton could give."""
    text = skeleton.placed[0].before
    for placed in skeleton.placed:
        text += _value(placed, rng) + placed.after
    return text


def _value(placed: PlacedSpan, rng: random.Random) -> str:
    if placed.is_literal:
        return ""
    if placed.texts is not None:
        return rng.choice(placed.texts)
    if placed.span.kind == "free-json":
        return rng.choice(VALUES)
    if placed.span.kind == "free-string":
        text = made_up_text(json_string(), rng)
        return text[1:-1] if placed.in_string else text
    return made_up_text(placed.dfa(), rng)


def made_up_text(dfa: Dfa, rng: random.Random) -> str:
    """Return some text that an automaton accepts: a walk of a while, then the shortest way on."""
    state, data = 0, bytearray()
    steps = rng.choice((0, 3, 10, 40, 150))
    rows = dfa.transitions[:, dfa.classes]
    while len(data) < steps:
        if dfa.accepting[state] and rng.random() < 0.1:
            break
        # Punctuation as often as all letters together: more of the shape is seen.
        alive = [byte for byte in range(256) if rows[state, byte] >= 0]
        if not alive:
            break
        marks = [byte for byte in alive if byte in b'"[]{},:0-.\\']
        byte = rng.choice(marks if marks and rng.random() < 0.5 else alive)
        data.append(byte)
        state = int(rows[state, byte])
    return (bytes(data) + dfa.shortest_completion(state)).decode()


def read(text: str) -> Any:
    """Return the value of a JSON text, as most readers have it."""
    return json.loads(text)
