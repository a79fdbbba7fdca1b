"""The measured constraints, in each library's notation, and strings that satisfy them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..parts.workload import action_names

ANY_TOKENIZATION = '%llguidance {"no_forcing": true}\n'
"""Makes llguidance allow every tokenization of forced text, not only the tokenizer's own."""

N_CHOICES = 30
N_SAMPLES = 40

SENTENCES = (
    "Please remind me to call the bank tomorrow at nine.",
    "Ana's train is late again, so dinner moves to half past eight; tell the others.",
    'He said "fine", closed the door and never came back.',
    "C:\\Users\\ana\\Documents\\report (final).docx",
    "line one\n\tline two, indented\n\nline four",
    "https://example.org/search?q=token+trie&lang=en#results",
    "Der Bär frisst süße Beeren — täglich, außer montags.",
    "東京は今日も雨です。明日は晴れるでしょう。",
    "Привет, как дела? До завтра, не опаздывай!",
    "SELECT name, price FROM items WHERE price > 9.99 ORDER BY name;",
)
KEYS = ("name", "id", "price", "tags", "created_at", "is active", "größe", "parent", "x", "items")


@dataclass(frozen=True)
class Constraint:
    """A constraint, and strings that satisfy it.

    Attributes
    ----------
    name : str
        Its name in the tables.
    span : dict
        The constraint in eliza-ffi's notation.
    samples : tuple of str
        Strings that satisfy it.
    choices : tuple of str
        The allowed strings; empty if the constraint is a JSON Schema.
    schema : dict or None
        A JSON Schema; ``{}`` allows any value.
    """

    name: str
    span: dict[str, Any]
    samples: tuple[str, ...]
    choices: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None


def constraints() -> list[Constraint]:
    """Return the four constraints of the tables."""
    rng = random.Random(1)
    names = tuple(action_names(N_CHOICES))
    return [
        Constraint(f"one of {N_CHOICES}", {"choices": names}, names, choices=names),
        Constraint("number", {"json": "number"}, _samples(_number, rng), schema={"type": "number"}),
        Constraint(
            "JSON string", {"json": "string"}, _samples(_string, rng), schema={"type": "string"}
        ),
        Constraint("JSON value", {"json": "value"}, _samples(_document, rng), schema={}),
    ]


def lark_of(texts: Sequence[str]) -> str:
    """Return llguidance's grammar for some strings, with every tokenization allowed."""
    start = " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return f"{ANY_TOKENIZATION}start: {start}"


def lark_of_schema(schema: Mapping[str, Any]) -> str:
    """Return llguidance's grammar for a JSON Schema, with every tokenization allowed."""
    return f"{ANY_TOKENIZATION}start: %json {json.dumps(schema)}"


def _samples(make: Any, rng: random.Random) -> tuple[str, ...]:
    return tuple(make(rng) for _ in range(N_SAMPLES))


def _number(rng: random.Random) -> str:
    digits = f"{rng.uniform(-1, 1) * 10 ** rng.randint(0, 9):.{rng.randint(0, 6)}f}"
    return digits + (f"e{rng.randint(-20, 20)}" if rng.random() < 0.3 else "")


def _string(rng: random.Random) -> str:
    text = " ".join(rng.sample(SENTENCES, rng.randint(1, 3)))
    return json.dumps(text, ensure_ascii=False)


def _document(rng: random.Random) -> str:
    value = {key: _value(rng, 3) for key in rng.sample(KEYS, rng.randint(2, 5))}
    return json.dumps(value, ensure_ascii=False, indent=rng.choice([None, None, 2]))


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(7 if depth > 0 else 5)
    if kind == 5:
        return [_value(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    if kind == 6:
        return {key: _value(rng, depth - 1) for key in rng.sample(KEYS, rng.randint(0, 3))}
    plain = (rng.choice(SENTENCES), rng.randint(-999, 99999), rng.uniform(0, 100), True, None)
    return plain[kind]
