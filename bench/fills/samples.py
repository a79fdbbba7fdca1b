"""A few typical schemas, written for this benchmark."""

from __future__ import annotations

from typing import Any


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _matching(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def _between(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_SHORT = {"type": "string", "maxLength": 24}
_MAIL = _matching("^[a-z]{1,9}@[a-z]{1,9}\\.org$")
_NAMES = {"type": "array", "items": _SHORT, "maxItems": 3}
_DATE = _matching("^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")
_ITEM = _object(sku=_matching("^[A-Z]{2}[0-9]{2}$"), count=_between(1, 9))
_ITEMS = {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 3}

SAMPLES: dict[str, Any] = {
    "route": _object(action={"enum": ["reply", "ignore", "stop"]}, urgent={"type": "boolean"}),
    "ticket": _object(
        title=_SHORT,
        kind={"enum": ["bug", "question", "wish"]},
        severity=_between(1, 5),
        labels={"type": "array", "items": {"enum": ["ui", "api", "docs"]}, "maxItems": 3},
    ),
    "contact": _object(
        name=_SHORT,
        email={"anyOf": [_MAIL, {"type": "null"}]},
        phone=_matching("^[0-9]{3}-[0-9]{4}$"),
    ),
    "order": {"$defs": {"item": _ITEM}, **_object(items=_ITEMS)},
    "call": _object(
        function={"const": "search_documents_by_keyword"},
        arguments=_object(query=_SHORT, most_results={"enum": [5, 10, 20]}),
    ),
    "person": _object(name=_SHORT, age=_between(0, 120), member={"type": "boolean"}),
    "event": _object(
        title=_SHORT,
        date=_DATE,
        place={"anyOf": [_object(city=_SHORT, room=_between(1, 99)), {"type": "null"}]},
    ),
    "review": _object(
        sentiment={"enum": ["positive", "neutral", "negative"]},
        stars=_between(1, 5),
        praise=_NAMES,
        summary={"type": "string", "maxLength": 60},
    ),
    "verdict": _object(
        spam={"type": "boolean"},
        topic={"enum": ["billing", "login", "shipping", "other"]},
        priority={"enum": ["low", "normal", "high", "urgent"]},
        answer={"type": "boolean"},
    ),
    "notes": {"type": "array", "items": _object(day=_DATE, text=_SHORT), "maxItems": 2},
}
"""Schemas by name. Their strings and lists have a maximum length, so every answer ends."""
