"""Check the keywords of a JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any

from ..errors import InvalidArgumentError

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
