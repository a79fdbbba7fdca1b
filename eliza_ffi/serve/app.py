"""The application: its routes, the responses for errors, and its web page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .. import __version__
from ..async_model import AsyncModel
from ..decisions.answers import name_of
from ..decisions.wire import question_to
from ..evidence.cascade import Cascade
from ..terminal import counted
from .admission import Admission
from .chat import CHAT
from .completions import COMPLETIONS, EMBEDDINGS
from .decisions import BATCH, DECISIONS, SYSTEMONE
from .endpoint import EndpointApp, ServerState
from .guard import LIVE_PATH, READY_PATHS, Guard
from .http_error import HTTPError, failure
from .labels import BACK, LABELS, NEXT, UNDO
from .learner import SetLearner
from .metrics import ServeMetrics
from .openapi import openapi_document
from .rerank import RERANK
from .responses import RESPONSES
from .settings import ServeSettings

DECIDING = (DECISIONS, BATCH, SYSTEMONE, LABELS, NEXT, UNDO, BACK)
ENDPOINTS = (CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS, RERANK, *DECIDING)
"""The endpoints with a body."""


def make_app(
    model: AsyncModel,
    settings: ServeSettings,
    admission: Admission | None = None,
    learners: Mapping[str, SetLearner] = MappingProxyType({}),
    cascade: Cascade | None = None,
) -> ASGIApp:
    """Return the application that serves an open model.

    `learners` are the sets that learn, and `cascade` decides instead of the model. By default, the
    limits for running and waiting requests come from the settings. Endpoints that need generated
    text answer with 501 if the model is an encoder or a reranker.
    """
    limits = admission_for(model, settings) if admission is None else admission
    models = _models(model, settings)
    document = openapi_document(ENDPOINTS, settings.max_body)
    page = _page_response()

    def with_length(model: dict[str, Any]) -> dict[str, Any]:
        """Add the length of the context in tokens, under vLLM's name, once it is known."""
        return {**model, "max_model_len": n_ctx()} if n_ctx() else model

    def table_of(name: str) -> dict[str, bool]:
        """Say whether the page can label rows of a table for a set."""
        return {"has_table": True} if name in learners and learners[name].table else {}

    async def list_models(_: Request) -> Response:
        facts = [
            {"name": each["id"], "description": text, "release_date": date, **table_of(each["id"])}
            for each, text, date in models.values()
        ]
        data = [with_length(each) for each, _, _ in models.values()]
        return JSONResponse({"object": "list", "data": data, "models": facts})

    async def describe_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in models:
            raise HTTPError(404, f"unknown model: {name!r}", "model_not_found", "model")
        facts = with_length(models[name][0])
        if question_set := settings.sets.get(name):
            facts = {**facts, "questions": [*map(question_to, question_set.questions)]}
        return JSONResponse(facts)

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def show_page(_: Request) -> Response:
        return page

    pages = {"/": show_page, "/v1/models": list_models, "/openapi.json": openapi}
    paths = [*pages, *WATCHED_PATHS, *(path for each in ENDPOINTS for path in each.paths)]
    metrics = ServeMetrics(
        limits,
        lambda: model.session.describe().get("passes", {}),
        paths,
        settings.deadline,
        learners,
    )
    build = model.session.describe().get("llama_cpp", {}).get("commit", "")
    fingerprint = f"{build}-eliza-ffi-{__version__}".removeprefix("-")
    length = 0

    def n_ctx() -> int:
        nonlocal length
        length = length or model.session.describe().get("passes", {}).get("n_ctx", 0)
        return length

    state = ServerState(model, settings, limits, metrics, fingerprint, n_ctx, learners, cascade)
    app = Starlette(
        routes=[
            *(Route(path, answer) for path, answer in pages.items()),
            *routes_to_watch(limits, metrics),
            Route("/v1/models/{name:path}", describe_model),
            *(
                Route(path, EndpointApp(each, state), methods=["POST"])
                for each in ENDPOINTS
                for path in each.paths
            ),
        ],
        exception_handlers={
            HTTPError: answer_error,
            HTTPException: answer_error,
            Exception: answer_error,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, settings, metrics.count_request)


WATCHED_PATHS = (*READY_PATHS, LIVE_PATH, "/metrics")


def routes_to_watch(admission: Admission, metrics: ServeMetrics) -> list[Route]:
    """Return the routes with which operators watch a server."""

    async def ready(_: Request) -> Response:
        admission.check_open()
        return JSONResponse({"status": "ok"})

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics_text(_: Request) -> Response:
        text = await asyncio.to_thread(metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    health = [Route(path, ready) for path in READY_PATHS]
    return [*health, Route(LIVE_PATH, live), Route("/metrics", metrics_text)]


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


async def answer_error(request: Request, error: Exception) -> Response:
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
