"""The description of the endpoints for machines: an OpenAPI document, with the limits in it."""

from __future__ import annotations

import json
from typing import Any

from .. import __version__
from ..decisions.questions import MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS
from .bodies import MAX_BODY, MAX_DEPTH
from .formats import DECISIONS, EXTRAS, SYSTEMONE

__all__ = ["openapi_document"]

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}
NAME: Schema = {"type": ["string", "null"]}
VALUE: Schema = {"type": ["string", "boolean"]}
JSON: Schema = {"description": "a text or other JSON"}

INSTRUCTIONS: Schema = {
    "description": "what is asked: a text, or a list of parts with a text each",
    "oneOf": [TEXT, {"type": "array", "items": {"type": "object"}}],
}


def openapi_document() -> str:
    """Return the document as JSON."""
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "eliza-ffi serve",
            "version": __version__,
            "description": "Typed questions about an input, answered with probabilities. A "
            f"request's body has at most {MAX_BODY} bytes and {MAX_DEPTH} levels of JSON.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "responses": {
                "Error": {
                    "description": "what was wrong, and the limit",
                    "content": _json(_ref("Error")),
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return json.dumps(document)


def _paths() -> Schema:
    refused = {"$ref": "#/components/responses/Error"}
    codes = ("400", "401", "403", "413", "415", "421", "429", "500", "503", "504")
    return {
        DECISIONS.path: {
            "post": _asking("Decisions", "Answer questions, in OpenAI's form", codes, refused)
        },
        SYSTEMONE.path: {
            "post": _asking("Systemone", "Answer questions, in llama-server's form", codes, refused)
        },
        "/v1/models": {"get": _telling("The one model there is", _ref("Models"))},
        "/v1/models/{name}": {
            "get": {
                **_telling("The model, by its name", _ref("Model")),
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": TEXT}],
            }
        },
        "/health": {"get": _telling("Whether requests are answered", _object(status=TEXT))},
        "/metrics": {"get": _telling("Figures for Prometheus", TEXT, "text/plain")},
        "/openapi.json": {"get": _telling("This document", {"type": "object"})},
        "/": {"get": _telling("A page to ask on", TEXT, "text/html")},
    }


def _asking(name: str, summary: str, codes: tuple[str, ...], refused: Schema) -> Schema:
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(_ref(f"{name}Request"))},
        "responses": {
            "200": {"description": "the answers", "content": _json(_ref(f"{name}Response"))},
            **dict.fromkeys(codes, refused),
        },
    }


def _telling(summary: str, schema: Schema, media_type: str = "application/json") -> Schema:
    content = {media_type: {"schema": schema}}
    return {"summary": summary, "responses": {"200": {"description": "it", "content": content}}}


def _schemas() -> Schema:
    return {
        "Error": _object(
            error=_object(message=TEXT, type=TEXT, param=NAME, code=TEXT),
        ),
        "Model": _object(id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT),
        "Models": _object(object={"const": "list"}, data=_several(_ref("Model"), 1, 1)),
        "Timings": _object(passes={"type": "integer"}, decision_ms=NUMBER, queue_ms=NUMBER),
        **_decisions(),
        **_systemone(),
    }


def _decisions() -> Schema:
    option = _object(value=VALUE, _description=TEXT)
    level = _object(label=TEXT, _description=TEXT)
    each = {"type": "array", "items": _object(value=VALUE, probability=PROBABILITY)}
    questions = [
        _question("predicate", _if_true=TEXT, _if_false=TEXT),
        _question("choice", choices=_several(option, 2, MAX_OPTIONS), _none=TEXT),
        _question("score", levels=_several(level, 2, MAX_LEVELS)),
        _question("labels", labels=_several(option, 1, MAX_OPTIONS)),
    ]
    answers = [
        _answer("predicate", name=NAME, probability=PROBABILITY),
        _answer("choice", name=NAME, choice=VALUE, confidence=PROBABILITY, probabilities=each),
        _answer(
            "score",
            name=NAME,
            score=NUMBER,
            confidence=PROBABILITY,
            probabilities={
                "type": "array",
                "items": _object(value=COUNT, label=TEXT, probability=PROBABILITY),
            },
        ),
        _answer(
            "labels",
            name=NAME,
            labels={"type": "array", "items": VALUE},
            probabilities=each,
        ),
    ]
    return {
        "DecisionsRequest": _object(
            _model=TEXT,
            input={
                "oneOf": [TEXT, {"type": "array", "minItems": 1, "items": {"type": "object"}}],
                "description": "a text, or messages, calls and their outputs; images are refused",
            },
            questions=_several({"oneOf": questions}, 1, MAX_QUESTIONS),
            **_besides(),
        ),
        "DecisionsResponse": _object(
            model=TEXT,
            answers={"type": "array", "items": {"oneOf": answers}},
            usage=_object(
                input_tokens=COUNT,
                input_tokens_details=_object(cached_tokens=COUNT, cache_write_tokens=COUNT),
                output_tokens=COUNT,
                output_tokens_details=_object(reasoning_tokens=COUNT),
                total_tokens=COUNT,
            ),
            **_told_besides(),
        ),
    }


def _systemone() -> Schema:
    each = {"type": "object", "additionalProperties": PROBABILITY}
    by_option = {"type": "object", "minProperties": 2, "maxProperties": MAX_OPTIONS}
    questions = [
        _question("noul", _criteria=_object(_true=JSON, _false=JSON)),
        _question("choice", criteria=by_option),
        _question("score", criteria=_several(JSON, 2, MAX_LEVELS)),
    ]
    answers = [
        _answer("noul", noul=PROBABILITY),
        _answer("choice", choice=TEXT, probabilities=each, confidence=PROBABILITY),
        _answer(
            "score",
            score=NUMBER,
            legend={"type": "object", "additionalProperties": TEXT},
            probabilities=each,
            confidence=PROBABILITY,
        ),
    ]
    return {
        "SystemoneRequest": _object(
            _model=TEXT,
            state={"type": ["string", "object", "array"]},
            questions={
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_QUESTIONS,
                "additionalProperties": {"oneOf": questions},
            },
            **_besides(),
        ),
        "SystemoneResponse": _object(
            model=TEXT,
            answers={"type": "object", "additionalProperties": {"oneOf": answers}},
            usage=_object(input_tokens=COUNT, output_tokens=COUNT),
            **_told_besides(),
        ),
    }


def _besides() -> Schema:
    extras = {"type": "array", "items": {"enum": list(EXTRAS)}}
    return {"_include": {**extras, "description": "what the answer is to have besides"}}


def _told_besides() -> Schema:
    return {"_timings": _ref("Timings"), "_prompts": {"type": "array", "items": TEXT}}


def _question(kind: str, **more: Schema) -> Schema:
    name = {} if kind == "noul" else {"_name": TEXT}
    return _object(type={"const": kind}, instructions=INSTRUCTIONS, **name, **more)


def _answer(kind: str, **more: Schema) -> Schema:
    return _object(type={"const": kind}, _option_mass=PROBABILITY, **more)


def _object(**fields: Schema) -> Schema:
    """Return the schema of an object; fields that may be missing begin with an underscore."""
    return {
        "type": "object",
        "properties": {name.removeprefix("_"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.startswith("_")],
    }


def _several(items: Schema, least: int, most: int) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
