"""Compile JSON Schemas to llguidance grammars: strictly, or else in its lenient mode, which ignores
unsupported keywords. Keywords that neither mode supports are approximated."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from urllib.parse import quote

from ..errors import InvalidArgumentError
from .compile_time import check_time, limited_time
from .json_limit import longest_number
from .json_text import json_parts, pointer_part
from .limits import check_references
from .number_values import LIMITS, is_number, without_exclusive_bounds, without_large_integers
from .patterns import translate_patterns, without_lookaround
from .schema_walk import (
    DEFINITIONS,
    Part,
    SchemaDocument,
    is_impossible,
    may_repeat_names,
    prepare,
    rules_of,
)

COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
"""Options for JSON without white space, so that most of the fixed text is forced. A schema's own
``x-guidance`` takes precedence."""

MAX_STATES = 10**5
"""The maximum number of states for all ``multipleOf`` of a schema, which compile in a second."""

MAX_FIELD_SETS = 64
"""The maximum number of sets of fields that can satisfy a ``minProperties``."""

MAX_TRIAL_BYTES = 2**22
"""The maximum size of all parts together that are compiled separately, for example to find the
location of an error."""

MIN_TRIAL_BYTES = 2**14
"""A smaller part counts as this many bytes."""

LOWEST = -(2.0**63)
"""llguidance 1.9 overflows its stack, which ends the process, if a constant in a schema rounds to
this number."""

_COUNTS = ("Items", "Length", "Properties")
_NOT_ENFORCED = "is not enforced"

LONGEST_TIME = 35
"""The maximum length of a time, or a date with a time, in characters, unless the schema has its own
limit. These formats allow any number of digits, and small models write them without end. 35
characters are enough for a date, a time with nine digits after the second, and a zone."""

_TIME = "T(NH(NM(NS)?)?|NM(NS)?|NS)"  # N = a number
_DATE = "(ND|NM(ND)?|NY(NM(ND)?)?)"
DURATION = f"^P(NW|{_DATE}({_TIME})?|{_TIME})$".replace("N", "[0-9]{1,6}")
"""The durations of RFC 3339 whose numbers have at most six digits, for the same reason. Python's
`timedelta` is large enough for them."""

_LIMITS_OF_TEXT = frozenset(("const", "enum", "maxLength", "minLength", "pattern"))

_TIMES = re.compile(r" \(\d+ times\)$")
_UNKNOWN_KEYS = re.compile(r"Unimplemented keys: (\[.*\])")
_UNKNOWN_FORMAT = re.compile(r"Unknown format: (.*)", re.DOTALL)


Compiles = Callable[[Part], bool]
Relaxations = Iterable[tuple[str, str]]
Rule = Callable[[Part, Compiles], Relaxations]


@dataclass(frozen=True)
class SchemaGrammar:
    """A schema as a grammar that llguidance compiles."""

    grammar: str  # in llguidance's own format
    relaxed: tuple[str, ...]  # the keywords that the grammar does not enforce, with reasons
    max_digits: int  # of a number, which the grammar does not enforce either
    repeats_names: bool  # whether it could write a name twice in an object
    # as llguidance compiles it, approximated where it supports a part in neither mode
    schema: dict[str, Any]
    prepared: str  # as JSON: the schema with stricter rules where llguidance would allow more


@functools.lru_cache(maxsize=128)
def grammar_of_text(text: str) -> SchemaGrammar:
    """Compile a JSON Schema, given as the text that :func:`.limits.checked_schema` returned. Raise
    InvalidArgumentError with the location of the problem if a keyword cannot be approximated."""
    with limited_time():
        return _grammar(json.loads(text), text)


def _grammar(schema: Any, text: str) -> SchemaGrammar:
    if schema is True:
        schema = {}
    if schema is False:
        raise InvalidArgumentError("unsupported JSON schema at #: false allows no value")
    if not isinstance(schema, dict):
        raise InvalidArgumentError(f"expected a JSON schema as an object, got {text:.80}")
    document = SchemaDocument(schema)
    check_references(document)
    max_digits = longest_number(schema)
    repeats_names = may_repeat_names(schema)
    prepare(document)
    prepared = json.dumps(schema)
    parts = [part for _, part in document.parts()]
    for part in parts:
        without_large_integers(part)
        without_exclusive_bounds(part)
    trials, errors = _Trials(), set[str]()

    def change(rule: Rule) -> tuple[str, ...]:
        return tuple(
            f"#{pointer}/{name}: {reason}"
            for pointer, part in list(document.parts())
            for name, reason in rule(part, lambda part: not trials.error(part))
        )

    relaxed = _without_lowest_bounds(schema)
    relaxed += without_large_multiples(document)
    for part in parts:
        translate_patterns(part)
    relaxed += change(_limit_times) + change(functools.partial(_least_fields, only_closed=True))
    trial = _best(schema)
    while trial.error:
        found = next((rule for begin, rule in _RULES if trial.error.startswith(begin)), None)
        if found is None or trial.error in errors:
            raise InvalidArgumentError(_error_with_location(document, trial.error))
        errors.add(trial.error)
        relaxed += change(found)
        trial = _best(schema)
    if is_impossible(document):
        raise InvalidArgumentError(
            "no text can match the schema: each value would contain another one, without end"
        )
    for warning in trial.warnings:
        relaxed += tuple(_relaxed(document, warning)) or (f"#: {warning}",)
    return SchemaGrammar(
        trial.grammar, tuple(dict.fromkeys(relaxed)), max_digits, repeats_names, schema, prepared
    )


@dataclass(frozen=True)
class _Trial:
    grammar: str
    error: str
    warnings: tuple[str, ...]


def _best(schema: dict[str, Any]) -> _Trial:
    strict = _compiled(schema)
    return _compiled(schema, lenient=True) if strict.error else strict


class _Trials:
    """Compiles parts of a schema within a budget of bytes, so that results do not depend on
    speed."""

    def __init__(self) -> None:
        self._n_bytes = MAX_TRIAL_BYTES
        self._errors: dict[tuple[str, bool], str] = {}

    def error(self, part: dict[str, Any], lenient: bool = True) -> str | None:
        """Return the error for a part, "" if it is supported, or None if the budget is used up."""
        if self._n_bytes < 0:
            return None
        key = json.dumps(part), lenient
        if key not in self._errors:
            self._n_bytes -= len(key[0]) + MIN_TRIAL_BYTES
            if self._n_bytes < 0:
                return None
            self._errors[key] = _compiled(part, lenient).error
        return self._errors[key]


def _compiled(schema: Any, lenient: bool = False) -> _Trial:
    from llguidance import LLMatcher

    check_time()
    options = {**COMPACT, "lenient": True} if lenient else COMPACT
    try:
        # Passed as text, because llguidance rejects a dict with integers above 64 bits.
        text = json.dumps(schema, ensure_ascii=False)
        grammar = LLMatcher.grammar_from_json_schema(text, options)  # type: ignore[arg-type]
        is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    except ValueError as error:
        return _Trial("", str(error), ())
    lines = tuple(_TIMES.sub("", line).strip() for line in messages)
    return _Trial(grammar, lines[0] if is_error else "", () if is_error else lines)


def _relaxed(document: SchemaDocument, warning: str) -> Iterator[str]:
    """Yield the places that a warning of llguidance is about, each with the reason."""
    unknown_keys = _UNKNOWN_KEYS.match(warning)
    unknown_format = _UNKNOWN_FORMAT.match(warning)
    names = json.loads(unknown_keys.group(1)) if unknown_keys else []
    if warning.startswith("min/maxProperties"):
        names = ["minProperties", "maxProperties"]
    trials = _Trials()
    for pointer, part in document.parts():
        for name in filter(part.__contains__, names):
            yield f"#{pointer}/{name}: {name} {_NOT_ENFORCED}"
        if unknown_format and part.get("format") == unknown_format.group(1):
            yield f"#{pointer}/format: the format {part['format']!r} is unknown"
        if warning.startswith("oneOf") and "oneOf" in part:
            alone = _with_definitions(document.root, {"oneOf": part["oneOf"]})
            if trials.error(alone, lenient=False) != "":
                yield f"#{pointer}/oneOf: is treated as anyOf"


def _with_definitions(root: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    kept = {name: root[name] for name in ("$schema", *DEFINITIONS) if name in root}
    return {**kept, **part}


def _error_with_location(document: SchemaDocument, error: str) -> str:
    """Return the message for a schema that llguidance rejects. Compiling parts of the schema
    separately shows which keyword is the reason."""
    reason, _, uri = error.partition("\n  while processing ")
    pointer, part = "", document.root
    found = document.target(f"#{uri.partition('#')[2]}") if "#" in uri else None
    if isinstance(found, dict):
        pointer, part = uri.partition("#")[2], found
    trials = _Trials()

    def fails(trial: dict[str, Any]) -> bool | None:
        message = trials.error(_with_definitions(document.root, trial))
        if message is None:
            return None
        return message.partition("\n  while processing ")[0] == reason

    seen = {pointer}
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for _, inner_pointer, inner in document.inner(pointer, part):
            if inner_pointer not in seen and isinstance(inner, dict) and fails(inner):
                seen.add(inner_pointer)
                pointer, part, is_smaller = inner_pointer, inner, True
                break
    # Try the type last, because most other keywords have no effect without it.
    for name in sorted(part, key=lambda name: name == "type"):
        without = {key: value for key, value in part.items() if key != name}
        if name not in ("$schema", *DEFINITIONS) and not (still_fails := fails(without)):
            if still_fails is not None:
                pointer = f"{pointer}/{pointer_part(name)}"
            break
    return f"unsupported JSON schema at #{pointer:.200}: {' '.join(reason.split()):.300}"


# ---- rules that change a part of a schema ------------------------------------------------------

# Each takes a part, and a function that tells whether a schema compiles. It changes the part in
# place, so that all values that the part allowed are still allowed, and returns the keywords that
# are no longer enforced, each with a reason.


def _limit_times(part: Part, compiles: Compiles) -> Relaxations:
    if _LIMITS_OF_TEXT.isdisjoint(part):
        if part.get("format") in ("date-time", "time"):
            part["maxLength"] = LONGEST_TIME
        elif part.get("format") == "duration":
            del part["format"]
            part["pattern"] = DURATION
    return ()


def _without_lowest_bounds(schema: Any) -> tuple[str, ...]:
    """Remove the bounds that would crash llguidance, and return their places with a reason. Raise
    InvalidArgumentError if ``enum`` or ``const`` has such a number."""
    removed: list[str] = []
    for pointer, part in json_parts(schema):
        if not isinstance(part, dict):
            continue
        for name in filter(part.__contains__, LIMITS):
            if _is_lowest(part[name]):
                del part[name]
                removed.append(f"#{pointer}/{name}: {name} {_NOT_ENFORCED}")
        for name in ("const", "enum"):
            if any(_is_lowest(value) for _, value in json_parts(part.get(name))):
                raise InvalidArgumentError(
                    f"unsupported JSON schema at #{pointer}/{name}: expected numbers that round to "
                    "64-bit floats above -2^63, got a lower number"
                )
    return tuple(removed)


def without_large_multiples(document: SchemaDocument) -> tuple[str, ...]:
    """Remove each ``multipleOf`` whose automaton, of as many states as the least common multiple,
    would compile for seconds; return their places."""
    removed: list[str] = []
    n_states = 1
    for pointer, part in document.parts():
        value = part.get("multipleOf")
        if not is_number(value):
            continue
        digits = str(value).partition("e")[0].replace(".", "").strip("0")
        joined = math.lcm(n_states, int(digits or 1)) if len(digits) < 20 else MAX_STATES + 1
        if joined <= MAX_STATES:
            n_states = joined
        else:
            del part["multipleOf"]
            removed.append(f"#{pointer}/multipleOf: multipleOf {_NOT_ENFORCED}")
    return tuple(removed)


def _is_lowest(value: Any) -> bool:
    return is_number(value) and value <= 0 and (value < -(10**300) or float(value) <= LOWEST)


def _patterns(part: Part, compiles: Compiles) -> Relaxations:
    pattern = part.get("pattern")
    if isinstance(pattern, str) and (shorter := without_lookaround(pattern)) != pattern:
        part["pattern"] = shorter
        yield "pattern", "its lookaround is not enforced"
    if isinstance(part.get("patternProperties"), dict):
        schemas = part["patternProperties"] = dict(part["patternProperties"])
        for pattern in list(schemas):
            schema, shorter = schemas.pop(pattern), without_lookaround(pattern)
            schemas[shorter] = {} if shorter != pattern or shorter in schemas else schema
            if shorter != pattern:
                name = f"patternProperties/{pointer_part(pattern)}"
                yield name, "is not enforced, because it has lookaround"


def _lengths(part: Part, compiles: Compiles) -> Relaxations:
    names = [name for name in ("maxLength", "minLength") if name in part]
    if names and isinstance(part.get("pattern"), str):
        both = {name: part[name] for name in (*names, "pattern")}
        if not compiles({"type": "string", **both}):
            for name in names:
                del part[name]
                yield name, f"{name} {_NOT_ENFORCED}"


def _pattern_properties(part: Part, compiles: Compiles) -> Relaxations:
    """Merge the patterns of properties that may match the same name."""
    patterns = part.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) > 1:
        merged = "|".join(f"(?:{pattern})" for pattern in patterns)
        part["patternProperties"] = {merged: {"anyOf": list(patterns.values())}}
        yield "patternProperties", "several patterns are treated as one"


def _numbers(part: Part, compiles: Compiles) -> Relaxations:
    kind = "integer" if part.get("type") == "integer" else "number"
    for name in (*LIMITS, "multipleOf"):
        value = part.get(name)
        if is_number(value) and not compiles({"type": kind, name: value}):
            del part[name]
            yield name, f"{name} {_NOT_ENFORCED}"


def _counts(part: Part, compiles: Compiles) -> Relaxations:
    for name in (f"{most}{what}" for what in _COUNTS for most in ("min", "max")):
        value = part.get(name)
        if isinstance(value, float) and value.is_integer():
            part[name] = int(value)
    return ()


def _least_fields(part: Part, compiles: Compiles, only_closed: bool = False) -> Relaxations:
    """Replace a least number of optional fields by alternatives that require different fields."""
    fields, required = part.get("properties"), part.get("required", [])
    if "minProperties" not in part or not isinstance(fields, dict):
        return
    is_closed = part.get("additionalProperties") is False
    if only_closed and (not is_closed or part.keys() & {"anyOf", "oneOf"}):
        return
    optional = [name for name in fields if name not in required]
    n_more = int(part["minProperties"]) - len(required)  # 2.0 is a whole number, too
    if n_more <= 0:
        return
    del part["minProperties"]
    if n_more > len(optional) or math.comb(len(optional), n_more) > MAX_FIELD_SETS:
        yield "minProperties", f"minProperties {_NOT_ENFORCED}"
        return
    kept = {name: part.pop(name) for name in ("$schema", *DEFINITIONS) if name in part}
    alternatives = [
        {**part, "required": [*required, *more]} for more in combinations(optional, n_more)
    ]
    part.clear()
    part.update(kept, anyOf=alternatives)


def _references(part: Part, compiles: Compiles) -> Relaxations:
    if isinstance(part.get("$ref"), str):
        for name in sorted(rules_of(part) - {"$ref"}):
            del part[name]
            yield pointer_part(name), f"{name} {_NOT_ENFORCED}"


def _reference_names(part: Part, compiles: Compiles) -> Relaxations:
    """Encode the characters of a reference that are not allowed in a URI."""
    if isinstance(part.get("$ref"), str):
        part["$ref"] = quote(part["$ref"], safe="%/:?#@!$&'()*+,;=~")
    return ()


_RULES: tuple[tuple[str, Rule], ...] = (
    ("regex parse error", _patterns),
    ("lookarounds not supported", _patterns),
    ("Unable to determine if regex is empty", _lengths),
    ("patternProperty regexes", _pattern_properties),
    ("Failed to generate regex for", _numbers),
    ("Value for 'multipleOf'", _numbers),
    ("Expected positive integer", _counts),
    ("Unsatisfiable schema: minProperties", _least_fields),
    ("circular references with sibling keys", _references),
    ("Invalid URI reference", _reference_names),
)
