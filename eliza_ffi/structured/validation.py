"""Validate finished values against the user's JSON Schema with jsonschema-rs. It cannot be
interrupted, so a value whose validation would take too many steps is rejected."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from ..errors import InvalidArgumentError
from .json_text import json_parts, read_json
from .meta_schema import checked_draft, main_error, message_of
from .patterns import translate_patterns
from .schema_walk import OF_SAME_VALUE, SchemaDocument

MAX_STEPS = 50_000
"""The maximum number of times that a schema is applied to a part of one value.

A few definitions that refer to each other several times can lead to millions of steps."""

MAX_EXPLAINED = 5_000
"""The maximum number of steps for which an error names the place: jsonschema-rs collects the errors
of all alternatives, each with the value."""

MAX_DEPTH = 200
"""The maximum depth of schemas that are applied to each other's value or to a part of it.

jsonschema-rs needs up to 10 kB of stack for each."""

MAX_BACKTRACKS = 10_000
"""The maximum number of steps back in a pattern with lookaround. Other patterns need none."""

MAX_PATTERN_BYTES = 2**25
"""The maximum memory for all patterns of a schema together; one pattern gets a quarter at most."""

_PATTERN = re.compile(r"/pattern(Properties/[^/]*)?$")
_IN_VALUE = re.compile(r"/(const|default|enum|examples)(/|$)")
_REFERENCES = ("$dynamicRef", "$recursiveRef", "$ref")
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_MULTIPLIES = re.compile(r'"(\$ref|\$dynamicRef|\$recursiveRef|unevaluated\w+)"')
_SAME_VALUE = OF_SAME_VALUE.union(_REFERENCES)


def schema_validator(schema_text: str) -> Callable[[str], Any]:
    """Return a function that returns the value of a JSON text, or raises InvalidArgumentError if it
    does not match the schema, which is given as JSON."""

    def value(text: str) -> Any:
        read = read_json(text)
        problem = _problem(schema_text, text)
        if problem is not None:
            raise InvalidArgumentError(problem)
        return read

    return value


def _problem(schema_text: str, text: str) -> str | None:
    """Return a description of the main problem with a value, or None if it is valid."""
    try:
        validator, steps = _validator(schema_text)
        value = _exact(text)
        if _MULTIPLIES.search(schema_text):
            steps.of_value(value)
        if validator.is_valid(value):
            return None
        if steps.of_value(value) > MAX_EXPLAINED:
            return "the value does not match the schema"
        error = main_error(validator, value)
    except (RecursionError, ValueError) as failure:
        return f"cannot validate the answer: {getattr(failure, 'message', str(failure)):.500}"
    pointer = "".join(f"/{part}" for part in error.instance_path)
    keyword = "".join(f"/{part}" for part in error.schema_path)
    return f"at #{pointer}: {message_of(error):.500} (schema keyword #{keyword})"


@functools.lru_cache(maxsize=16)
def _validator(schema_text: str) -> tuple[Any, _Steps]:
    from jsonschema_rs import FancyRegexOptions

    draft = checked_draft(schema_text)
    schema = _exact(schema_text)
    steps = _Steps(schema)
    steps.check_unevaluated()
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # `draft` is that draft, and other drafts are unknown
    n_patterns = 0
    for pointer, part in json_parts(schema):
        n_patterns += _PATTERN.search(pointer) is not None
        if isinstance(part, dict) and not _IN_VALUE.search(pointer):
            translate_patterns(part)
    n_bytes = MAX_PATTERN_BYTES // max(n_patterns, 4)
    options = FancyRegexOptions(MAX_BACKTRACKS, n_bytes, n_bytes)
    made = draft(schema, offline=True, validate_formats=False, pattern_options=options)
    return made, steps


def _exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


class _Steps:
    """Counts how often jsonschema-rs applies a part of a schema to a part of a value, at most."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._document = SchemaDocument(schema, _REFERENCES)

    def of_value(self, value: Any) -> int:
        return self._count(self._schema, value, 0, {})[0]

    def check_unevaluated(self) -> None:
        """Raise ValueError if preparing all ``unevaluated`` keywords exceeds a limit, because they
        need all schemas for the same value."""
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for _, part in json_parts(self._schema):
            if isinstance(part, dict) and not part.keys().isdisjoint(_UNEVALUATED):
                self._count(part, None, 0, known)
        _check_steps(sum(n for n, _ in known.values()))

    def _count(
        self, part: Any, value: Any, depth: int, known: dict[tuple[int, int], tuple[int, int]]
    ) -> tuple[int, int]:
        """Return the number of steps for a part of a schema, and the number of levels below it;
        there are `depth` levels above. `known` has the results for parts and values."""
        if not isinstance(part, dict):
            return 1, 0
        key = id(part), id(value)
        if key not in known and depth <= MAX_DEPTH:
            known[key] = MAX_STEPS, 0  # if the part refers to itself for the same value
            # An `unevaluated` keyword applies the schemas for the value again, nested ones twice.
            times = 1 if part.keys().isdisjoint(_UNEVALUATED) else 3
            n, levels = times, 0
            for keyword, pointer, each in self._document.inner("", part):
                for there in _values_of(keyword, pointer, part, value):
                    more, below = self._count(each, there, depth + 1, known)
                    n, levels = n + times * more, max(levels, below + 1)
                    _check_steps(n)
            known[key] = n, levels
        n, levels = known.get(key, (1, 1))
        if depth + levels > MAX_DEPTH:
            raise ValueError(
                f"expected schemas and references of at most {MAX_DEPTH} levels, got more"
            )
        return n, levels


def _values_of(keyword: str, pointer: str, part: Mapping[str, Any], value: Any) -> Iterator[Any]:
    """Yield the values that the schema at a pointer of a part is applied to."""
    name = pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    if keyword in _SAME_VALUE:
        yield value
    elif isinstance(value, dict):
        if keyword != "properties":
            yield from value.values()
        elif name in value:
            yield value[name]
    elif isinstance(value, list):
        is_place = keyword == "prefixItems" or isinstance(part[keyword], list)
        yield from value[int(name) : int(name) + 1] if is_place else value


def _check_steps(n: int) -> None:
    if n > MAX_STEPS:
        raise ValueError(f"expected at most {MAX_STEPS} steps to validate the value, got more")
