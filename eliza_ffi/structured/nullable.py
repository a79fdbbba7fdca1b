"""OpenAPI 3.0's ``nullable``, which many clients write in the schemas of their requests."""

from __future__ import annotations

import json
from typing import Any

from .schema_walk import OF_SAME_VALUE, SchemaDocument, rules_of

KEYWORD = "nullable"


def with_null(text: str) -> str:
    """Allow null where ``nullable`` is true, which JSON Schema does not know, in a schema as
    JSON."""
    if f'"{KEYWORD}"' not in text:
        return text
    schema = json.loads(text)
    for _, part in list(SchemaDocument(schema).parts()):
        if part.get(KEYWORD) is True:
            del part[KEYWORD]
            _allow_null(part)
    return json.dumps(schema, ensure_ascii=False)


def _allow_null(part: dict[str, Any]) -> None:
    if part.keys() & OF_SAME_VALUE:
        inner = {key: part.pop(key) for key in [*part] if key in rules_of(part)}
        part["anyOf"] = [inner, {"type": "null"}]
        return
    if "const" in part:
        part["enum"] = [part.pop("const")]
    for key, null in (("type", "null"), ("enum", None)):
        if key in part:
            allowed = part[key] if isinstance(part[key], list) else [part[key]]
            part[key] = [*allowed, *([] if null in allowed else [null])]
