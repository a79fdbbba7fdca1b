"""Validate finished values against the user's JSON Schema.

Numbers are compared as exact decimals, so 1.15 is a multiple of 0.01. llguidance matches the
patterns, because a hostile pattern cannot make it slow. A value is rejected if its validation
follows too many references. Documents are never fetched: a ``$ref`` to any document except those of
the JSON Schema standard is an error.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..errors import InvalidArgumentError
from .json_text import json_text, read_json
from .meta_schema import checked_draft
from .patterns import TEXT_END, byte_tokenizer, split_pattern
from .schema import COMPACT

MOST_REFERENCES = 50_000
"""The maximum number of ``$ref`` followed for one value.

A few definitions that refer to each other several times can lead to millions of steps."""

_of_thread = threading.local()
_REFERENCES = frozenset(("$dynamicRef", "$recursiveRef", "$ref"))
_DECIMAL = re.compile(r"Decimal\('([^']*)'\)")


def schema_validator(schema_text: str) -> Callable[[str], Any]:
    """Return a function that reads a JSON text and returns its value, if it is valid.

    The schema is given as JSON. Its ``$schema`` names the draft; the default is 2020-12. The
    function raises InvalidArgumentError, which is a ValueError, if the text is not JSON or not
    valid.
    """

    def value(text: str) -> Any:
        read = read_json(text)
        problem = _problem(schema_text, text)
        if problem is not None:
            raise InvalidArgumentError(problem)
        return read

    return value


def _problem(schema_text: str, text: str) -> str | None:
    """Return a description of the main problem with a value, or None if it is valid."""
    from jsonschema.exceptions import SchemaError, UnknownType, best_match
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator(schema_text)
        _of_thread.n_followed = 0
        error = best_match(validator.iter_errors(_exact(text)))
    except (re.error, RecursionError, SchemaError, TypeError, UnknownType, ValueError) as failure:
        return f"cannot validate the answer: {failure}"
    except Unresolvable as failure:
        return f"cannot validate the answer: {failure} is not part of the schema"
    if error is None:
        return None
    pointer = "".join(f"/{part}" for part in error.absolute_path)
    keyword = "".join(f"/{part}" for part in error.absolute_schema_path)
    message = _DECIMAL.sub(r"\1", error.message)
    return f"at #{pointer}: {message:.500} (schema keyword #{keyword})"


@functools.lru_cache(maxsize=128)
def _validator(schema_text: str) -> Any:
    from jsonschema_specifications import REGISTRY

    schema = _exact(schema_text)
    return _exact_draft(checked_draft(schema_text))(schema, registry=REGISTRY)


@functools.cache
def _exact_draft(draft: Any) -> Any:
    """Return a draft's validator class, with this module's versions of some keywords."""
    import attrs  # of jsonschema
    import jsonschema

    checker = draft.TYPE_CHECKER
    if checker.is_type(1.0, "integer"):  # since draft 6, 1.0 is an integer
        checker = checker.redefine("integer", _is_integer)
    keywords: dict[str, Callable[..., Iterator[Any]]] = {
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    }
    if "unevaluatedProperties" in draft.VALIDATORS:
        keywords["unevaluatedProperties"] = _unevaluated_properties
    for name in _REFERENCES & draft.VALIDATORS.keys():
        keywords[name] = _counted(draft.VALIDATORS[name])
    exact = jsonschema.validators.extend(draft, keywords, type_checker=checker)
    evolve = exact.evolve

    def evolve_exactly(self: Any, **changes: Any) -> Any:
        found = evolve(self, **changes)
        if hasattr(type(found), "is_exact"):
            return found
        # A part of the schema names another draft, for which jsonschema has taken its own class.
        other: Any = type(found)
        fields = [field for field in attrs.fields(other) if field.init]
        return _exact_draft(other)(**{field.alias: getattr(found, field.name) for field in fields})

    exact.evolve = evolve_exactly
    exact.is_exact = True
    return exact


def _counted(follow: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wrap a reference keyword, so that it raises once too many references were followed."""

    def check(validator: Any, reference: Any, value: Any, schema: Any) -> Iterator[Any]:
        _count_reference()
        yield from follow(validator, reference, value, schema) or ()

    return check


def _count_reference() -> None:
    _of_thread.n_followed += 1
    if _of_thread.n_followed > MOST_REFERENCES:
        raise ValueError(f"expected at most {MOST_REFERENCES} references to follow, got more")


def _exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _is_integer(_checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _multiple_of(validator: Any, step: Any, value: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "number") and Fraction(value) % Fraction(step):
        yield ValidationError(f"{value} is not a multiple of {step}")


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, each in value.items():
            if _matches(pattern, name):
                yield from validator.descend(each, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rest: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, each in value.items():
        if name not in known and not any(_matches(pattern, name) for pattern in patterns):
            yield from validator.descend(each, rest, path=name)


def _unevaluated_properties(validator: Any, rest: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known = set(_evaluated(validator, value, schema))
    for name, each in value.items():
        if name not in known:
            yield from validator.descend(each, rest, path=name)


def _evaluated(validator: Any, value: dict[str, Any], schema: Any) -> Iterator[str]:
    """Yield the names of an object that the keywords of a schema evaluate, some more than once.

    As jsonschema does it, except that jsonschema matches the patterns with `re`, which a hostile
    pattern blocks for ever.
    """
    if not isinstance(schema, dict):
        return
    _count_reference()

    def is_valid(part: Any, instance: Any) -> bool:
        return next(validator.descend(instance, part), None) is None

    def inside(part: Any) -> Iterator[str]:
        return _evaluated(validator, value, part)

    for reference in _REFERENCES & schema.keys():
        found = validator._resolver.lookup(schema[reference])
        there = validator.evolve(schema=found.contents, _resolver=found.resolver)
        yield from _evaluated(there, value, found.contents)
    yield from schema.get("properties", {}).keys() & value.keys()
    for pattern in schema.get("patternProperties", {}):
        yield from (name for name in value if _matches(pattern, name))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            yield from (name for name in value if is_valid(schema[keyword], value[name]))
    for name, part in schema.get("dependentSchemas", {}).items():
        if name in value:
            yield from inside(part)
    for keyword in ("allOf", "oneOf", "anyOf"):
        for part in schema.get(keyword, ()):
            if is_valid(part, value):
                yield from inside(part)
    if "if" in schema:
        holds = is_valid(schema["if"], value)
        yield from inside(schema["if"]) if holds else ()
        yield from inside(schema.get("then" if holds else "else", {}))


def _matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a string, in llguidance's dialect."""
    # DEL is the only character that llguidance escapes although JSON does not require it.
    tokens = [*json_text(text).replace("\x7f", "\\u007f").encode(), TEXT_END]
    split = split_pattern(pattern)
    return all(
        (_pattern_matcher(each).deep_copy().validate_tokens(tokens) == len(tokens)) == is_wanted
        for is_wanted, each in ((True, split.main), *split.conditions)
    )


@functools.lru_cache(maxsize=256)
def _pattern_matcher(pattern: str) -> Any:
    from llguidance import LLMatcher

    schema = {"type": "string", "pattern": pattern}
    grammar = LLMatcher.grammar_from_json_schema(schema, COMPACT)  # type: ignore[arg-type]
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    if matcher.is_error():
        raise InvalidArgumentError(f"pattern {pattern!r:.200}: {matcher.get_error()}")
    return matcher
