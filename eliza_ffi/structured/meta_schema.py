"""Check the keywords of a JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any
from urllib.parse import urljoin

from ..errors import InvalidArgumentError

__all__ = ["check_keywords", "draft_of"]


def draft_of(schema: Any) -> Any:
    """Return jsonschema's class for the draft that ``$schema`` names; the default is 2020-12."""
    import jsonschema

    default = jsonschema.Draft202012Validator
    if not isinstance(schema, dict):
        return default
    named = schema.get("$schema")
    if named is not None and not isinstance(named, str):
        raise InvalidArgumentError(
            f"JSON schema at #/$schema: expected a string, got {named!r:.80}"
        )
    return jsonschema.validators.validator_for(schema, default)


@functools.lru_cache(maxsize=128)
def check_keywords(schema_text: str) -> None:
    """Check that every keyword has a value of the form that the draft's meta-schema demands.

    Parameters
    ----------
    schema_text
        The schema as JSON.

    Raises
    ------
    InvalidArgumentError
        With the keyword's JSON pointer.
    """
    from jsonschema.exceptions import best_match

    schema = json.loads(schema_text)
    draft = draft_of(schema)
    try:
        error = best_match(draft(_meta_schema(draft)).iter_errors(schema))
    except RecursionError:  # the caller's own calls are deep, too
        raise InvalidArgumentError("the JSON schema is nested too deeply to be checked") from None
    if error is not None:
        while error.context:  # of the alternatives, the one that the value comes closest to
            error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator == "enum"))
        place = "".join(f"/{part}" for part in error.absolute_path)
        raise InvalidArgumentError(f"JSON schema at #{place}: {_shortened(error.message)}")


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
