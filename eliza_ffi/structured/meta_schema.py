"""Check the keywords of a JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any

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
        error = best_match(draft(draft.META_SCHEMA).iter_errors(schema))
    except RecursionError:  # the caller's own calls are deep, too
        raise InvalidArgumentError("the JSON schema is nested too deeply to be checked") from None
    if error is not None:
        while error.context:  # of the alternatives, the one that the value comes closest to
            error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator == "enum"))
        place = "".join(f"/{part}" for part in error.absolute_path)
        raise InvalidArgumentError(f"JSON schema at #{place}: {_shortened(error.message)}")


def _shortened(message: str) -> str:
    """Cut the value at the beginning of a message, but not the rule after it."""
    return message if len(message) <= 200 else f"{message[:60]}...{message[-120:]}"
