"""The OpenAPI document, which describes the endpoints and their limits."""

from __future__ import annotations

import json

from .. import __version__
from .bodies import MAX_BODY, MAX_DEPTH
from .formats import DECISIONS, SYSTEMONE, WireFormat
from .guard import OPEN_PATHS
from .schemas import TEXT, Schema, list_of, object_of

__all__ = ["openapi_document"]

NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}
NAME: Schema = {"type": ["string", "null"]}
VALUE: Schema = {"type": ["string", "boolean"]}

ASKING_ERRORS = ("400", "413", "415", "429", "500", "501", "504")
"""Error statuses of the endpoints for decisions, besides the statuses of all endpoints."""


def openapi_document() -> str:
    """Return the document as JSON."""
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "eliza-ffi serve",
            "version": __version__,
            "description": "Answers typed questions about an input, with probabilities. The body "
            f"of a request has at most {MAX_BODY} bytes and {MAX_DEPTH} levels of nested JSON.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "responses": {
                "Error": {
                    "description": "the error",
                    "content": _json(_ref("Error")),
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return json.dumps(document)


def _paths() -> Schema:
    health = object_of(status=TEXT)
    named = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    return {
        DECISIONS.path: {"post": _post(DECISIONS, "Decisions", "OpenAI")},
        SYSTEMONE.path: {"post": _post(SYSTEMONE, "Systemone", "llama-server")},
        "/v1/models": {"get": _get("/v1/models", "List the server's model", _ref("Models"))},
        "/v1/models/{name}": {
            "get": {
                **_get("/v1/models", "Describe the model", _ref("Model"), errors=("404",)),
                "parameters": [named],
            }
        },
        "/health": {"get": _get("/health", "Report whether the server accepts requests", health)},
        "/metrics": {"get": _get("/metrics", "Metrics for Prometheus", TEXT, "text/plain")},
        "/openapi.json": {"get": _get("/openapi.json", "This document", {"type": "object"})},
        "/": {"get": _get("/", "A page to ask questions in a browser", TEXT, "text/html")},
    }


def _post(wire: WireFormat, name: str, owner: str) -> Schema:
    return {
        "summary": f"Answer questions, in the format of {owner}",
        "requestBody": {"required": True, "content": _json(_ref(f"{name}Request"))},
        "responses": {
            "200": {"description": "the answers", "content": _json(_ref(f"{name}Response"))},
            **_errors(wire.path, ASKING_ERRORS),
        },
    }


def _get(
    path: str,
    summary: str,
    schema: Schema,
    media_type: str = "application/json",
    errors: tuple[str, ...] = (),
) -> Schema:
    answer = {"description": summary, "content": {media_type: {"schema": schema}}}
    return {"summary": summary, "responses": {"200": answer, **_errors(path, errors)}}


def _errors(path: str, own: tuple[str, ...]) -> Schema:
    """Return the error responses of an endpoint: its own statuses and those of all endpoints."""
    key = () if path in OPEN_PATHS else ("401",)
    codes = sorted({*own, *key, "403", "421", "500", "503"})
    return {code: {"$ref": "#/components/responses/Error"} for code in codes}


def _schemas() -> Schema:
    return {
        "Error": object_of(
            error=object_of(message=TEXT, type=TEXT, param=NAME, code=TEXT),
        ),
        "Model": object_of(id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT),
        "Models": object_of(object={"const": "list"}, data=list_of(_ref("Model"), 1, 1)),
        "Timings": object_of(passes={"type": "integer"}, decision_ms=NUMBER, queue_ms=NUMBER),
        **_decisions(),
        **_systemone(),
    }


def _decisions() -> Schema:
    each = list_of(object_of(value=VALUE, probability=PROBABILITY))
    level = object_of(value=COUNT, label=TEXT, probability=PROBABILITY)
    answers = [
        _answer("predicate", name=NAME, probability=PROBABILITY),
        _answer("choice", name=NAME, choice=VALUE, confidence=PROBABILITY, probabilities=each),
        _answer(
            "score",
            name=NAME,
            score=NUMBER,
            confidence=PROBABILITY,
            probabilities=list_of(level),
        ),
        _answer("labels", name=NAME, labels=list_of(VALUE), probabilities=each),
    ]
    return {
        "DecisionsRequest": DECISIONS.schema,
        "DecisionsResponse": object_of(
            model=TEXT,
            answers=list_of({"oneOf": answers}),
            usage=object_of(
                input_tokens=COUNT,
                input_tokens_details=object_of(cached_tokens=COUNT, cache_write_tokens=COUNT),
                output_tokens=COUNT,
                output_tokens_details=object_of(reasoning_tokens=COUNT),
                total_tokens=COUNT,
            ),
            **_included(),
        ),
    }


def _systemone() -> Schema:
    each = {"type": "object", "additionalProperties": PROBABILITY}
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
        "SystemoneRequest": SYSTEMONE.schema,
        "SystemoneResponse": object_of(
            model=TEXT,
            answers={"type": "object", "additionalProperties": {"oneOf": answers}},
            usage=object_of(input_tokens=COUNT, output_tokens=COUNT),
            **_included(),
        ),
    }


def _included() -> Schema:
    return {"_timings": _ref("Timings"), "_prompts": list_of(TEXT)}


def _answer(kind: str, **fields: Schema) -> Schema:
    return object_of(type={"const": kind}, _option_mass=PROBABILITY, **fields)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
