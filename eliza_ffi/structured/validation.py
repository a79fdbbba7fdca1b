"""Check the keywords of JSON Schemas with jsonschema-rs, and validate finished values. It cannot be
interrupted, so a value whose validation would take too many steps is rejected."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from ..errors import InvalidArgumentError
from .json_text import json_parts, read_json
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


def checked_value(schema_text: str, text: str) -> Any:
    """Return the value of a JSON text; raise InvalidArgumentError if it does not match the schema,
    which is given as JSON."""
    value = read_json(text)
    problem = _problem(schema_text, text)
    if problem is not None:
        raise InvalidArgumentError(problem)
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


_exact = functools.partial(json.loads, parse_float=Decimal)


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


_DRAFTS = {
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
"""jsonschema-rs's class for each draft, by the URI of its meta-schema."""

LONGEST_SHOWN = 2**16
"""Errors about a longer schema do not show the value: jsonschema-rs writes it into a message for
each level of the schema, which could take half a gigabyte."""

_DRAFT_4, _, _DRAFT_7, _, _NEWEST = _DRAFTS


@functools.lru_cache(maxsize=128)
def checked_draft(schema_text: str) -> Any:
    """Return jsonschema-rs's class for a schema's draft, after a check of all keywords. The draft
    is 2020-12 unless ``$schema`` names another one, or the schema has a form of older drafts that
    many programs write: lists in ``items`` (7), or flags in ``exclusiveMinimum`` (4)."""
    import jsonschema_rs

    schema = json.loads(schema_text)
    named = schema.get("$schema", "") if isinstance(schema, dict) else ""
    if not isinstance(named, str):
        raise InvalidArgumentError(
            f"JSON schema at #/$schema: expected a string, got {named!r:.80}"
        )
    named = named.removesuffix("#")
    mask = "the value" if len(schema_text) > LONGEST_SHOWN else None
    draft = named if named in _DRAFTS else _NEWEST
    error = main_error(_meta_schema(draft, mask), schema)
    if error is not None and named not in _DRAFTS and (older := _older_draft(error)):
        draft, error = older, main_error(_meta_schema(older, mask), schema)
    if error is None:
        return getattr(jsonschema_rs, _DRAFTS[draft])
    pointer = "".join(f"/{part}" for part in error.instance_path)
    raise InvalidArgumentError(f"JSON schema at #{pointer}: {_shortened(message_of(error))}")


def main_error(validator: Any, value: Any) -> Any:
    """Return the first error of a value, or of the alternative that it comes closest to; None if
    valid."""
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as failure:
        error = failure
        while inner := [each for errors in getattr(error.kind, "context", ()) for each in errors]:
            error = max(inner, key=lambda e: (len(e.instance_path), e.kind.name == "enum"))
        return error
    return None


def message_of(error: Any) -> str:
    """Return the message of an error, with all values of an ``enum``, not only two."""
    if not (options := getattr(error.kind, "options", ())):
        return str(error.message)
    found, expected = (json.dumps(each, default=str) for each in (error.instance, options))
    return f"{found} is not one of {expected}"


def _older_draft(error: Any) -> str:
    """Return the older draft in which a keyword has the form that an error is about; "" = none."""
    name = error.instance_path[-1] if error.instance_path else ""
    if name == "items" and isinstance(error.instance, list):
        return _DRAFT_7
    is_flag = isinstance(error.instance, bool)
    return _DRAFT_4 if name in ("exclusiveMinimum", "exclusiveMaximum") and is_flag else ""


@functools.cache
def _meta_schema(draft: str, mask: str | None) -> Any:
    """Return a validator of a draft's schemas. In messages, `mask` replaces the value."""
    import jsonschema_rs

    make = getattr(jsonschema_rs, _DRAFTS[draft])
    return make({"$ref": draft}, validate_formats=False, offline=True, mask=mask)


def _shortened(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:60]}...{message[-120:]}"
