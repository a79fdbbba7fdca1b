"""Check the keywords of a JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any
from urllib.parse import urljoin

from ..errors import InvalidArgumentError


@functools.lru_cache(maxsize=128)
def checked_draft(schema_text: str) -> Any:
    """Return jsonschema's class for a schema's draft, after a check of all keywords.

    Each keyword must have a value of the form that the draft's meta-schema demands; otherwise raise
    InvalidArgumentError with the keyword's JSON pointer. A schema without ``$schema`` is of draft
    2020-12, unless it has a form of older drafts that many programs write: lists in ``items``
    (draft 7), or flags in ``exclusiveMinimum`` (draft 4).
    """
    import jsonschema

    schema = json.loads(schema_text)
    draft = _named_draft(schema)
    errors = _errors(draft or jsonschema.Draft202012Validator, schema)
    if errors and draft is None and (draft := _older_draft(errors)):
        errors = _errors(draft, schema)
    if not errors:
        return draft or jsonschema.Draft202012Validator
    error = jsonschema.exceptions.best_match(errors)
    while error.context:  # of the alternatives, the one that the value comes closest to
        error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator == "enum"))
    pointer = "".join(f"/{part}" for part in error.absolute_path)
    raise InvalidArgumentError(f"JSON schema at #{pointer}: {_shortened(error.message)}")


def _named_draft(schema: Any) -> Any:
    """Return jsonschema's class for the draft that ``$schema`` names; None = not named."""
    import jsonschema

    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is not None and not isinstance(named, str):
        raise InvalidArgumentError(
            f"JSON schema at #/$schema: expected a string, got {named!r:.80}"
        )
    return jsonschema.validators.validator_for(schema, None) if named is not None else None


def _older_draft(errors: list[Any]) -> Any:
    """Return the older draft in which keywords have the forms that the errors are about."""
    import jsonschema

    for error in errors:
        name = error.absolute_path[-1] if error.absolute_path else ""
        if name == "items" and isinstance(error.instance, list):
            return jsonschema.Draft7Validator
        if name in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(error.instance, bool):
            return jsonschema.Draft4Validator
    return None


def _errors(draft: Any, schema: Any) -> list[Any]:
    try:
        return list(draft(_meta_schema(draft)).iter_errors(schema))
    except RecursionError:  # the caller's own calls are deep, too
        raise InvalidArgumentError("the JSON schema is nested too deeply to be checked") from None


@functools.cache
def _meta_schema(draft: Any) -> Any:
    """Return the meta-schema of a draft in one piece.

    Since 2019-09, the meta-schemas consist of parts that refer to each other dynamically, for
    extensions. Joined, they check a schema in a fifth of the time.
    """
    from jsonschema_specifications import REGISTRY

    whole = draft.META_SCHEMA
    parts = [
        whole,
        *(REGISTRY.contents(urljoin(whole["$id"], part["$ref"])) for part in _parts(whole)),
    ]
    if len(parts) == 1:
        return whole
    joined: dict[str, Any] = {"$schema": whole["$schema"], "type": whole["type"]}
    for name in ("$defs", "properties"):
        joined[name] = {
            key: _local(each) for part in parts for key, each in part.get(name, {}).items()
        }
    return joined


def _parts(whole: Any) -> list[Any]:
    return [part for part in whole.get("allOf", ()) if "$ref" in part]


def _local(part: Any) -> Any:
    """Return a part of a meta-schema whose references are to the joined meta-schema."""
    if isinstance(part, list):
        return [_local(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for name, each in part.items():
        if name in ("$dynamicRef", "$recursiveRef"):
            found["$ref"] = "#"
        elif name == "$ref":
            found["$ref"] = f"#{each.partition('#')[2]}"
        else:
            found[name] = _local(each)
    return found


def _shortened(message: str) -> str:
    """Cut the value at the beginning of a message, but not the rule after it."""
    return message if len(message) <= 200 else f"{message[:60]}...{message[-120:]}"
