"""The application: its routes, and the responses for errors."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..async_model import AsyncModel
from .admission import Admission
from .endpoints import Endpoints
from .formats import DECISIONS, SYSTEMONE
from .guard import Guard
from .metrics import Measured, ServeMetrics
from .openapi import openapi_document
from .page import page_response
from .refusals import Refusal, refusal_response
from .settings import ServeSettings

__all__ = ["make_app"]

_METRICS, _HEALTH, _MODELS, _OPENAPI = "/metrics", "/health", "/v1/models", "/openapi.json"


def make_app(
    model: AsyncModel, settings: ServeSettings, admission: Admission | None = None
) -> ASGIApp:
    """Return the application that serves a model.

    Parameters
    ----------
    model
        An open model. It is not closed here.
    settings
    admission
        The limits for running and waiting requests; None = from the settings.
    """
    if admission is None:
        admission = admission_for(model, settings)
    metrics = ServeMetrics(admission, lambda: model.session.describe().get("passes", {}))
    endpoints = Endpoints(model, settings, admission, metrics)
    document = openapi_document()

    async def decisions(request: Request) -> Response:
        return await endpoints.decide(request, DECISIONS)

    async def systemone(request: Request) -> Response:
        return await endpoints.decide(request, SYSTEMONE)

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def page(_: Request) -> Response:
        return page_response()

    routes = [
        Route("/", page),
        Route(DECISIONS.path, decisions, methods=["POST"]),
        Route(SYSTEMONE.path, systemone, methods=["POST"]),
        Route(_MODELS, endpoints.models),
        Route(f"{_MODELS}/{{name:path}}", endpoints.model),
        Route(_HEALTH, endpoints.health),
        Route(_METRICS, endpoints.metrics),
        Route(_OPENAPI, openapi),
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
    counted = [route.path for route in routes if "{" not in route.path]
    return Measured(Guard(app, settings), metrics, counted)


def admission_for(model: AsyncModel, settings: ServeSettings) -> Admission:
    """Return the limits for running and waiting requests of a model."""
    session = model.session
    n_decided = session.decisions_at_once(None)
    n_prepared = (n_decided + 1) // 2  # additional requests, which are parsed while others run
    return Admission(n_decided + n_prepared, settings.n_waiting)


async def _answer_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refusal_response(error)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or with a wrong method."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{path}: expected {allowed}, got {request.method}"
        return refusal_response(Refusal(405, message, "method_not_allowed", headers=headers))
    return refusal_response(Refusal(404, f"unknown path: {path}", "not_found"))


async def _answer_failure(_: Request, __: Exception) -> Response:
    # The error is only logged, because its message may name files.
    message = "the server failed; its log has the details under this response's x-request-id"
    return refusal_response(Refusal(500, message, "internal_error"))
