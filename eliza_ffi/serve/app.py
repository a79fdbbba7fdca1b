"""The application: its routes, and the responses for errors."""

from __future__ import annotations

import asyncio
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .. import __version__
from ..async_model import AsyncModel
from ..decisions.answers import name_of
from ..terminal import counted
from .admission import Admission
from .chat import CHAT
from .completions import COMPLETIONS
from .decisions import BATCH, DECISIONS, SYSTEMONE
from .document import openapi_document
from .embeddings import EMBEDDINGS
from .endpoint import EndpointApp, Serving
from .guard import Guard
from .metrics import Measured, ServeMetrics
from .page import page_response
from .refusals import FAILED, Refusal
from .responses import RESPONSES
from .settings import ServeSettings

__all__ = ["ENDPOINTS", "admission_for", "make_app"]

ENDPOINTS = (CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS, DECISIONS, BATCH, SYSTEMONE)
"""The endpoints with a body."""


def make_app(
    model: AsyncModel,
    settings: ServeSettings,
    admission: Admission | None = None,
    *,
    generates: bool = True,
) -> ASGIApp:
    """Return the application that serves a model.

    Parameters
    ----------
    model
        An open model. It is not closed here.
    admission
        The limits for running and waiting requests; None = from the settings.
    generates
        Whether the model can generate text. If it can only compute embeddings, pass False: all
        other endpoints then answer with status 501.
    """
    if admission is None:
        admission = admission_for(model, settings)
    metrics = ServeMetrics(
        admission, lambda: model.session.describe().get("passes", {}), settings.sets
    )
    build = model.session.describe().get("llama_cpp", {}).get("commit", "")
    fingerprint = f"{build}-eliza-ffi-{__version__}".removeprefix("-")
    length = 0

    def n_ctx() -> int:
        nonlocal length
        length = length or model.session.describe().get("passes", {}).get("n_ctx", 0)
        return length

    serving = Serving(model, settings, admission, metrics, fingerprint, generates, n_ctx)
    document = openapi_document(ENDPOINTS)
    started = int(time.time())
    description = model.session.describe().get("model", {}).get("description", "")
    described = {settings.name: description} | {
        each.name: f"{counted(len(each.questions), 'question')}: "
        + ", ".join(name_of(question.name, i) for i, question in enumerate(each.questions))
        for each in settings.sets.values()
    }
    facts = {
        name: {"id": name, "object": "model", "created": started, "owned_by": "eliza-ffi"}
        for name in described
    }
    date = time.strftime("%Y-%m-%d", time.gmtime(started))
    named = [
        {"name": name, "description": text, "release_date": date}
        for name, text in described.items()
    ]

    async def list_models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*facts.values()], "models": named})

    async def describe_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in facts:
            raise Refusal(404, f"unknown model: {name!r}", "model_not_found", "model")
        return JSONResponse(facts[name])

    async def health(_: Request) -> Response:
        admission.check_open()
        return JSONResponse({"status": "ok"})

    async def metrics_text(_: Request) -> Response:
        text = await asyncio.to_thread(metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def page(_: Request) -> Response:
        return page_response()

    routes = [
        Route("/", page),
        *(Route(each.path, EndpointApp(each, serving), methods=["POST"]) for each in ENDPOINTS),
        Route("/v1/models", list_models),
        Route("/v1/models/{name:path}", describe_model),
        Route("/health", health),
        Route("/metrics", metrics_text),
        Route("/openapi.json", openapi),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            Refusal: _answer_refusal,
            HTTPException: _answer_http_exception,
            Exception: _answer_failure,
        },
    )
    app.router.redirect_slashes = False
    paths = [route.path for route in routes if "{" not in route.path]
    return Measured(Guard(app, settings), metrics, paths)


def admission_for(model: AsyncModel, settings: ServeSettings) -> Admission:
    """Return the limits for running and waiting requests of a model."""

    def with_prepared(n_running: int) -> int:
        """Add requests that are parsed while others run."""
        return n_running + (n_running + 1) // 2

    n_running = with_prepared(model.session.at_once(None))
    n_decided = with_prepared(model.session.decisions_at_once(None))
    return Admission(n_running, settings.n_waiting, n_decided)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response(request.url.path)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or with a wrong method."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{path}: expected {allowed}, got {request.method}"
        return Refusal(405, message, "method_not_allowed", headers=headers).response(path)
    return Refusal(404, f"unknown path: {path}", "not_found").response(path)


async def _answer_failure(request: Request, _: Exception) -> Response:
    return Refusal(500, FAILED, "internal_error").response(request.url.path)
