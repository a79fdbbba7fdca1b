"""The application: its routes, the responses for errors, its OpenAPI document and its web page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from typing_extensions import NotRequired, TypedDict

from .. import __version__
from ..async_model import AsyncModel
from ..decisions.answers import name_of
from ..decisions.wire import question_to
from ..terminal import counted
from .admission import Admission
from .chat import CHAT
from .completions import COMPLETIONS, EMBEDDINGS
from .decisions import BATCH, DECISIONS, SYSTEMONE
from .endpoint import Endpoint, EndpointApp, ServerState
from .guard import OPEN_PATHS, Guard
from .http_error import SYSTEMONE_PATH, HTTPError, failure
from .metrics import ServeMetrics
from .request_body import CODINGS, MAX_BODY, MAX_DEPTH
from .responses import RESPONSES
from .settings import ServeSettings

ENDPOINTS = (CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS, DECISIONS, BATCH, SYSTEMONE)
"""The endpoints with a body."""


def make_app(
    model: AsyncModel,
    settings: ServeSettings,
    admission: Admission | None = None,
    *,
    generates: bool = True,
) -> ASGIApp:
    """Return the application that serves an open model.

    By default, the limits for running and waiting requests are those of the settings. If the model
    can only compute embeddings, pass ``generates=False``: all other endpoints then answer with 501.
    """
    limits = admission_for(model, settings) if admission is None else admission
    models = _models(model, settings)
    document = openapi_document(ENDPOINTS)

    async def list_models(_: Request) -> Response:
        facts = [
            {"name": each["id"], "description": text, "release_date": date}
            for each, text, date in models.values()
        ]
        data = [each for each, _, _ in models.values()]
        return JSONResponse({"object": "list", "data": data, "models": facts})

    async def describe_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in models:
            raise HTTPError(404, f"unknown model: {name!r}", "model_not_found", "model")
        asked = settings.sets.get(name)
        more = {} if asked is None else {"questions": [*map(question_to, asked.questions)]}
        return JSONResponse({**models[name][0], **more})

    async def health(_: Request) -> Response:
        limits.check_open()
        return JSONResponse({"status": "ok"})

    async def metrics_text(_: Request) -> Response:
        text = await asyncio.to_thread(metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def page(_: Request) -> Response:
        return _page_response()

    pages = {
        "/": page,
        "/v1/models": list_models,
        "/health": health,
        "/metrics": metrics_text,
        "/openapi.json": openapi,
    }
    paths = [*pages, *(each.path for each in ENDPOINTS)]
    metrics = ServeMetrics(
        limits, lambda: model.session.describe().get("passes", {}), settings.sets, paths
    )
    build = model.session.describe().get("llama_cpp", {}).get("commit", "")
    fingerprint = f"{build}-eliza-ffi-{__version__}".removeprefix("-")
    length = 0

    def n_ctx() -> int:
        nonlocal length
        length = length or model.session.describe().get("passes", {}).get("n_ctx", 0)
        return length

    state = ServerState(model, settings, limits, metrics, fingerprint, generates, n_ctx)
    app = Starlette(
        routes=[
            *(Route(path, answer) for path, answer in pages.items()),
            Route("/v1/models/{name:path}", describe_model),
            *(Route(each.path, EndpointApp(each, state), methods=["POST"]) for each in ENDPOINTS),
        ],
        exception_handlers={
            HTTPError: _answer_error,
            HTTPException: _answer_error,
            Exception: _answer_error,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, settings, metrics.count_request)


def admission_for(model: AsyncModel, settings: ServeSettings) -> Admission:
    def with_prepared(n_running: int) -> int:
        """Add requests that are parsed while others run."""
        return n_running + (n_running + 1) // 2

    n_running = with_prepared(model.session.at_once(None))
    n_decided = with_prepared(model.session.decisions_at_once(None))
    return Admission(n_running, settings.n_waiting, n_decided)


def _models(
    model: AsyncModel, settings: ServeSettings
) -> dict[str, tuple[dict[str, Any], str, str]]:
    """Return the model and the sets of questions: what OpenAI says about each, text and date."""
    descriptions = {settings.name: model.session.describe().get("model", {}).get("description", "")}
    for each in settings.sets.values():
        names = ", ".join(name_of(question.name, i) for i, question in enumerate(each.questions))
        descriptions[each.name] = f"{counted(len(each.questions), 'question')}: {names}"
    now = int(time.time())
    date = time.strftime("%Y-%m-%d", time.gmtime(now))
    return {
        name: ({"id": name, "object": "model", "created": now, "owned_by": "eliza-ffi"}, text, date)
        for name, text in descriptions.items()
    }


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer a request with an error; also for an unknown path or a wrong method."""
    path = request.url.path
    if isinstance(error, HTTPError):
        return error.response(path)
    if not isinstance(error, HTTPException):
        return failure().response(path)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{path}: expected {allowed}, got {request.method}"
        return HTTPError(405, message, "method_not_allowed", headers=headers).response(path)
    return HTTPError(404, f"unknown path: {path}", "not_found").response(path)


# ---- The web page -------------------------------------------------------------------------------


def _page_response() -> HTMLResponse:
    """Return the page with a content security policy that allows only its own script and style."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    policy = (
        "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'none'; "
        "frame-ancestors 'none'; img-src data:; "
        f"script-src {_hash_of(text, 'script')}; style-src {_hash_of(text, 'style')}"
    )
    return HTMLResponse(text, headers={"content-security-policy": policy})


def _hash_of(text: str, tag: str) -> str:
    """Return the hash with which the policy allows the page's only `tag` element."""
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digest = hashlib.sha256(inside.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# ---- The OpenAPI document -----------------------------------------------------------------------

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
    questions: NotRequired[list[dict[str, Any]]]  # of a set, in a description


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


PAGES: tuple[tuple[str, str, Any, str], ...] = (
    ("/v1/models", "List the server's model", ModelList, "application/json"),
    ("/v1/models/{name}", "Describe the model or a set", ModelFacts, "application/json"),
    ("/health", "Report whether the server accepts requests", Health, "application/json"),
    ("/metrics", "Metrics for Prometheus", str, "text/plain"),
    ("/openapi.json", "This document", dict[str, Any], "application/json"),
    ("/", "A page to try the model in a browser", str, "text/html"),
)
"""The paths without a body: a summary, the type of the response, and its media type."""


def openapi_document(endpoints: Sequence[Endpoint[Any]]) -> str:
    """Return the document as JSON. pydantic writes the schemas of requests and responses."""
    types = [Error, SystemoneError, *(kind for _, _, kind, _ in PAGES)]
    types += [kind for each in endpoints for kind in (each.kind, each.response)]
    schemas, definitions = TypeAdapter.json_schemas(
        [(each, "validation", TypeAdapter(each)) for each in dict.fromkeys(types)],
        ref_template="#/components/schemas/{model}",
    )

    def content(kind: Any, media_type: str = "application/json") -> dict[str, Any]:
        return {media_type: {"schema": schemas[kind, "validation"]}}

    def get(path: str, summary: str, kind: Any, media_type: str) -> dict[str, Any]:
        answer = {"description": summary, "content": content(kind, media_type)}
        if "{name}" not in path:
            return {"summary": summary, "responses": {"200": answer, **_errors(path)}}
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        responses = {"200": answer, **_errors(path, ("404",))}
        return {"summary": summary, "parameters": [name], "responses": responses}

    def post(endpoint: Endpoint[Any]) -> dict[str, Any]:
        answers = (
            content(str, "application/jsonl") if endpoint.lines else content(endpoint.response)
        )
        if endpoint.can_stream:
            answers |= content(str, "text/event-stream")
        answer = {"description": "the answer", "content": answers}
        return {
            "summary": endpoint.summary,
            "requestBody": {"required": True, "content": content(endpoint.kind)},
            "responses": {"200": answer, **_errors(endpoint.path, POST_ERRORS)},
        }

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
            **{each.path: {"post": post(each)} for each in endpoints},
            **{page[0]: {"get": get(*page)} for page in PAGES},
        },
        "components": {
            "schemas": definitions["$defs"],
            "responses": {
                each.__name__: {"description": "the error", "content": content(each)}
                for each in (Error, SystemoneError)
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return json.dumps(document)


def _errors(path: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the error responses of an endpoint: its own statuses and those of all endpoints."""
    key = () if path in OPEN_PATHS else ("401",)
    codes = sorted({*own, *key, "403", "421", "500", "503"})
    name = "SystemoneError" if path == SYSTEMONE_PATH else "Error"
    return {code: {"$ref": f"#/components/responses/{name}"} for code in codes}
