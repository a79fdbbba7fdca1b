"""The OpenAPI document: schemas of requests by pydantic, and of responses from examples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from .. import __version__
from .endpoint import Endpoint
from .guard import LIVE_PATH, OPEN_PATHS, READY_PATHS
from .http_error import SYSTEMONE_PATH
from .request_body import CODINGS, KINDS, MAX_DEPTH
from .settings import ServeSettings

POST_ERRORS = ("400", "404", "413", "415", "422", "429", "500", "501", "504")
"""Error statuses of the endpoints with a body, besides the statuses of all endpoints."""

PAGES = {
    "/v1/models": "List the server's model",
    "/v1/models/{name}": "Describe the model or a set",
    **dict.fromkeys(READY_PATHS, "Report whether the server accepts requests"),
    LIVE_PATH: "Report that the process is alive",
    "/metrics": "Metrics for Prometheus",
    "/openapi.json": "This document",
    "/": "A page to try the model in a browser",
}
"""The paths without a body, with their summaries."""

TEXTS = {"/metrics": "text/plain", "/": "text/html"}
"""The media types of the pages that are not JSON."""

MAPS = ("answers", "legend", "metadata", "probabilities", "logprobs.top_logprobs[]")
"""The ends of the paths of objects whose keys are not fields."""

UNIONS = ("answers[]", "output[]")
"""The ends of the paths of objects whose fields depend on their `type`."""


def openapi_document(
    endpoints: Sequence[Endpoint[Any]], max_body: int = ServeSettings.max_body
) -> str:
    """Return the document as JSON.

    ``examples.json`` has several examples of each response: a field that is not in all of them is
    optional.
    """
    examples = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
    examples |= dict.fromkeys((*READY_PATHS, LIVE_PATH), examples["/health"])
    kinds: dict[Any, None] = dict.fromkeys(each.kind for each in endpoints)
    schemas, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in kinds],
        ref_template="#/components/schemas/{model}",
    )

    def text(media_type: str) -> dict[str, Any]:
        return {media_type: {"schema": {"type": "string"}}}

    def example(name: str) -> dict[str, Any]:
        first = examples[name][0]
        return {"application/json": {"schema": schema_of(*examples[name]), "example": first}}

    def get(path: str, summary: str) -> dict[str, Any]:
        content = text(TEXTS[path]) if path in TEXTS else example(path)
        responses = {"200": {"description": summary, "content": content}, **_errors(path)}
        if "{name}" not in path:
            return {"summary": summary, "responses": responses}
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        responses |= _errors(path, ("404",))
        return {"summary": summary, "parameters": [name], "responses": responses}

    def post(endpoint: Endpoint[Any]) -> dict[str, Any]:
        content = text("application/jsonl") if endpoint.lines else example(endpoint.path)
        if endpoint.can_stream:
            content |= text("text/event-stream")
        body = {"application/json": {"schema": schemas[endpoint.kind, "validation"]}}
        answer = {"description": "the answer", "content": content}
        return {
            "summary": endpoint.summary,
            "requestBody": {"required": True, "content": body},
            "responses": {"200": answer, **_errors(endpoint.path, POST_ERRORS)},
        }

    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "eliza-ffi serve",
            "version": __version__,
            "description": "Serves one model: chat, completions, embeddings and decisions. "
            f"A request's body has at most {max_body} bytes and {MAX_DEPTH} levels of nested JSON. "
            f"It may be compressed with {', '.join(CODINGS)}. Fields that are in no schema are "
            "ignored if they are null, although the schemas do not allow them.",
        },
        "paths": {
            **{each.path: {"post": post(each)} for each in endpoints},
            **{path: {"get": get(path, summary)} for path, summary in PAGES.items()},
        },
        "components": {
            "schemas": definitions["$defs"],
            "responses": {
                name: {"description": "the error", "content": example(name)}
                for name in ("Error", "SystemoneError")
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return json.dumps(document)


def _errors(path: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the error responses of an endpoint: its own, and the ones all endpoints share."""
    key = () if path in OPEN_PATHS else ("401",)
    codes = sorted({*own, *key, "403", "421", "500", "503"})
    name = "SystemoneError" if path == SYSTEMONE_PATH else "Error"
    return {code: {"$ref": f"#/components/responses/{name}"} for code in codes}


def schema_of(*examples: Any, path: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a value, given examples of it; `path` leads to it."""
    groups: dict[tuple[str, Any], list[Any]] = {}
    for example in examples:
        tag = example["type"] if path.endswith(UNIONS) else None
        kind = "integer" if type(example) is int else KINDS[type(example)]
        groups.setdefault((kind, tag), []).append(example)
    schemas = [_schema_of_kind(*key, group, path) for key, group in groups.items()]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas} if schemas else {}


def _schema_of_kind(kind: str, tag: Any, examples: list[Any], path: str) -> dict[str, Any]:
    if kind == "array":
        items = [item for example in examples for item in example]
        return {"type": kind, "items": schema_of(*items, path=f"{path}[]")}
    if kind != "object":
        return {"type": kind}
    fields: dict[str, list[Any]] = {}
    for example in examples:
        for name, value in example.items():
            fields.setdefault(name, []).append(value)
    if path.endswith(MAPS):
        items = [value for values in fields.values() for value in values]
        return {"type": kind, "additionalProperties": schema_of(*items, path=f"{path}[]")}
    schemas = {name: schema_of(*values, path=f"{path}.{name}") for name, values in fields.items()}
    return {
        "type": kind,
        "properties": schemas if tag is None else {**schemas, "type": {"const": tag}},
        "required": [name for name, values in fields.items() if len(values) == len(examples)],
    }
