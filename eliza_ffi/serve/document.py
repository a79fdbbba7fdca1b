"""The OpenAPI document. pydantic writes the schemas of requests and responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from .. import __version__
from .bodies import CODINGS, MAX_BODY, MAX_DEPTH
from .endpoint import Endpoint
from .guard import OPEN_PATHS
from .refusals import SYSTEMONE_PATH

__all__ = ["openapi_document"]

POST_ERRORS = ("400", "413", "415", "422", "429", "500", "501", "504")
"""Error statuses of the endpoints with a body, besides the statuses of all endpoints."""


class ErrorDetails(TypedDict):
    message: str
    type: str
    param: str | None
    code: str


class Error(TypedDict):
    error: ErrorDetails


class Problem(TypedDict):
    loc: list[str | int]
    msg: str
    type: str


class ErrorSummary(TypedDict):
    error_type: str
    message: str


class SystemoneError(Error):
    detail: list[Problem] | ErrorSummary


class ModelFacts(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class NamedModel(TypedDict):
    name: str
    description: str
    release_date: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelFacts]
    models: list[NamedModel]


class Health(TypedDict):
    status: Literal["ok"]


def openapi_document(endpoints: Sequence[Endpoint[Any]]) -> str:
    """Return the document as JSON.

    Parameters
    ----------
    endpoints
        The endpoints with a body.
    """
    types = [Error, SystemoneError, ModelFacts, ModelList, Health, *(e.kind for e in endpoints)]
    types += [e.response for e in endpoints]
    schema_of, definitions = TypeAdapter.json_schemas(
        [(each, "validation", TypeAdapter(each)) for each in dict.fromkeys(types)],
        ref_template="#/components/schemas/{model}",
    )

    def schema(kind: Any) -> dict[str, Any]:
        return schema_of[kind, "validation"]

    as_json = "application/json"
    gets = (
        ("/v1/models", "List the server's model", schema(ModelList), as_json),
        ("/v1/models/{name}", "Describe the model", schema(ModelFacts), as_json),
        ("/health", "Report whether the server accepts requests", schema(Health), as_json),
        ("/metrics", "Metrics for Prometheus", {"type": "string"}, "text/plain"),
        ("/openapi.json", "This document", {"type": "object"}, as_json),
        ("/", "A page to try the model in a browser", {"type": "string"}, "text/html"),
    )
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "eliza-ffi serve",
            "version": __version__,
            "description": "Serves one model: chat, completions, embeddings and decisions. "
            f"A request's body has at most {MAX_BODY} bytes and {MAX_DEPTH} levels of nested JSON. "
            f"It may be compressed with {', '.join(CODINGS)}.",
        },
        "paths": {
            **{e.path: {"post": _post(e, schema(e.kind), schema(e.response))} for e in endpoints},
            **{
                path: {"get": _get(path, summary, kind, media_type)}
                for path, summary, kind, media_type in gets
            },
        },
        "components": {
            "schemas": definitions["$defs"],
            "responses": {
                "Error": {
                    "description": "the error",
                    "content": {"application/json": {"schema": schema(Error)}},
                },
                "SystemoneError": {
                    "description": "the error",
                    "content": {"application/json": {"schema": schema(SystemoneError)}},
                },
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return json.dumps(document)


def _post(endpoint: Endpoint[Any], request: Any, response: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": response}}
    if endpoint.lines:
        content = {"application/jsonl": {"schema": {"type": "string"}}}
    if "stream" in endpoint.kind.model_fields:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "summary": endpoint.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {"description": "the answer", "content": content},
            **_errors(endpoint.path, POST_ERRORS),
        },
    }


def _get(path: str, summary: str, schema: Any, media_type: str) -> dict[str, Any]:
    answer = {"description": summary, "content": {media_type: {"schema": schema}}}
    if "{name}" not in path:
        return {"summary": summary, "responses": {"200": answer, **_errors(path)}}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    responses = {"200": answer, **_errors(path, ("404",))}
    return {"summary": summary, "parameters": [name], "responses": responses}


def _errors(path: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the error responses of an endpoint: its own statuses and those of all endpoints."""
    key = () if path in OPEN_PATHS else ("401",)
    codes = sorted({*own, *key, "403", "421", "500", "503"})
    name = "SystemoneError" if path == SYSTEMONE_PATH else "Error"
    return {code: {"$ref": f"#/components/responses/{name}"} for code in codes}
