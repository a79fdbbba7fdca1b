"""The JSON Schemas of requests, one for each wire format.

The OpenAPI document publishes these schemas, and :func:`~eliza_ffi.serve.fields.check_fields`
checks requests against them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..decisions.questions import MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS, NOT_TEXT

__all__ = [
    "DECISIONS_REQUEST",
    "EXTRAS",
    "SYSTEMONE_MEDIA",
    "SYSTEMONE_REQUEST",
    "TEXT",
    "Schema",
    "list_of",
    "object_of",
]

Schema: TypeAlias = dict[str, Any]

EXTRAS = ("option_mass", "prompts", "timings")
"""Additional fields of an answer, which a request names in `include`."""

SYSTEMONE_MEDIA = ("images", "files")
"""Fields of ``/v1/systemone`` in other servers, which are not supported here."""

TEXT: Schema = {"type": "string"}
NOT_BLANK: Schema = {"type": "string", "pattern": r"\S"}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
JSON: Schema = {"description": "a string or other JSON"}
NO_EFFECT: Schema = {"description": "accepted, without effect"}


def object_of(**fields: Schema) -> Schema:
    """Return the schema of an object that has only these fields.

    To make a field optional, prefix its name with an underscore.
    """
    return {
        "type": "object",
        "properties": {name.removeprefix("_"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.startswith("_")],
        "additionalProperties": False,
    }


def list_of(items: Schema, least: int = 0, most: int | None = None) -> Schema:
    """Return the schema of a list."""
    limits = {"minItems": least} if most is None else {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **limits}


def _described(description: str, schema: Schema) -> Schema:
    return {**schema, "description": description}


def _one_of(*schemas: Schema) -> Schema:
    return {"oneOf": list(schemas)}


def _typed(*kinds: str, **fields: Schema) -> Schema:
    """Return the schema of an object with a field `type`."""
    return object_of(type={"enum": list(kinds)}, **fields)


_TEXT_PART = _typed(
    *("input_text", "output_text", "text"),
    text=TEXT,
    _prompt_cache_breakpoint=NO_EFFECT,
    _annotations=NO_EFFECT,
    _logprobs=NO_EFFECT,
)
_REFUSAL_PART = _typed("refusal", refusal=TEXT)
_JSON_PART = _typed("input_json", data=_one_of({"type": "object"}, list_of({"type": "object"})))

_CONTENT = _one_of(TEXT, list_of(_one_of(_TEXT_PART, _REFUSAL_PART, _JSON_PART)))

_OF_ITEMS = {"_id": NO_EFFECT, "_status": NO_EFFECT}

_MESSAGE = object_of(
    _type={"enum": ["message"], "default": "message"},
    role={"enum": ["user", "developer", "system", "assistant"]},
    content=_CONTENT,
    _tool_calls=list_of({"type": "object"}),
    _phase=NO_EFFECT,
    **_OF_ITEMS,
)
_FUNCTION_CALL = _typed(
    "function_call", name=TEXT, arguments=TEXT, call_id=TEXT, _namespace=NO_EFFECT, **_OF_ITEMS
)
_CUSTOM_CALL = _typed(
    "custom_tool_call", name=TEXT, input=TEXT, call_id=TEXT, _namespace=NO_EFFECT, **_OF_ITEMS
)
_OUTPUT = _typed(
    "function_call_output", "custom_tool_call_output", call_id=TEXT, output=_CONTENT, **_OF_ITEMS
)

_INCLUDE: Schema = {
    "type": ["array", "null"],
    "items": {"enum": list(EXTRAS)},
    "description": "additional fields of the answer",
}

# ---- /v1/decisions -----------------------------------------------------------------------------

_PARTS = {
    **list_of(_one_of(_TEXT_PART, _JSON_PART), 1),
    "contains": {
        "anyOf": [
            {"required": ["text"], "properties": {"text": NOT_BLANK}},
            {"required": ["data"]},
        ]
    },
}
_INSTRUCTIONS = _described(
    "the question: a string, or a list of parts; it must not be blank",
    _one_of(NOT_BLANK, _PARTS),
)


def _question(kind: str, **fields: Schema) -> Schema:
    name = {"type": ["string", "null"], "minLength": 1}
    return _typed(kind, instructions=_INSTRUCTIONS, _name=name, **fields)


_OPTION = object_of(
    value={"type": ["string", "boolean"], "pattern": r"\S"}, _description=OPTIONAL_TEXT
)
_LEVEL = object_of(label=NOT_BLANK, _description=OPTIONAL_TEXT)

DECISIONS_REQUEST = object_of(
    _model=TEXT,
    input=_described(
        "a string, or messages, calls and their outputs; only text is supported",
        _one_of(TEXT, list_of(_one_of(_MESSAGE, _FUNCTION_CALL, _CUSTOM_CALL, _OUTPUT), 1)),
    ),
    questions=_described(
        "The names of questions must be unique; the default name of a question is its index. The "
        "values of options and the labels of levels must be unique within a question. Every label "
        "of a question of the type `labels` counts as a question, and `none` counts as an option "
        f"({MAX_OPTIONS} at most).",
        list_of(
            _one_of(
                _question("predicate", _if_true=OPTIONAL_TEXT, _if_false=OPTIONAL_TEXT),
                _question(
                    "choice",
                    choices=list_of(_OPTION, 2, MAX_OPTIONS),
                    _none={"type": ["string", "null"], "pattern": r"\S"},
                ),
                _question("score", levels=list_of(_LEVEL, 2, MAX_LEVELS)),
                _question("labels", labels=list_of(_OPTION, 1, MAX_OPTIONS)),
            ),
            1,
            MAX_QUESTIONS,
        ),
    ),
    _include=_INCLUDE,
    _prompt_cache_key=NO_EFFECT,
    _prompt_cache_options=NO_EFFECT,
    _safety_identifier=NO_EFFECT,
)

# ---- /v1/systemone -----------------------------------------------------------------------------

_NOT_TEXT_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": list(NOT_TEXT)}},
}
_JSON_INSTRUCTIONS = {
    "type": ["string", "object", "array"],
    "pattern": r"\S",
    "items": {"not": _NOT_TEXT_PART},
    "description": "the question: a string that is not blank, or other JSON",
}
_NO_MEDIA: Schema = {
    "type": ["array", "null"],
    "maxItems": 0,
    "description": "must be empty: images and files are answered with status 501",
}


def _asked(kind: str, **fields: Schema) -> Schema:
    return _typed(kind, instructions=_JSON_INSTRUCTIONS, **fields)


SYSTEMONE_REQUEST = object_of(
    _model=TEXT,
    state=_described(
        "a string or other JSON; images, sound and files are answered with status 501",
        {"type": ["string", "object", "array"]},
    ),
    questions={
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_QUESTIONS,
        "propertyNames": {"minLength": 1},
        "additionalProperties": _one_of(
            _asked(
                "noul", _criteria={**object_of(_true=JSON, _false=JSON), "type": ["object", "null"]}
            ),
            _asked(
                "choice",
                criteria={
                    "type": "object",
                    "minProperties": 2,
                    "maxProperties": MAX_OPTIONS,
                    "propertyNames": {"pattern": r"\S"},
                    "additionalProperties": JSON,
                },
            ),
            _asked(
                "score",
                criteria={
                    **list_of({"pattern": r"\S"}, 2, MAX_LEVELS),
                    "description": "unique levels: strings that are not blank, or other JSON",
                },
            ),
        ),
        "description": "the questions, with their ids as keys",
    },
    _include=_INCLUDE,
    **{f"_{name}": _NO_MEDIA for name in SYSTEMONE_MEDIA},
)
