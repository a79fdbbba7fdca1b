"""The application: which path is answered by what, and what becomes of errors."""

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
        Open; it is not closed here.
    settings
    admission
        Who is let in; None = as the settings say.
    """
    if admission is None:
        admission = admission_for(model, settings)
    metrics = ServeMetrics(admission, lambda: model.session.describe().get("passes", {}))
    answers = Endpoints(model, settings, admission, metrics)
    document = openapi_document()

    async def decisions(request: Request) -> Response:
        return await answers.decide(request, DECISIONS)

    async def systemone(request: Request) -> Response:
        return await answers.decide(request, SYSTEMONE)

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def page(_: Request) -> Response:
        return page_response()

    routes = [
        Route("/", page),
        Route(DECISIONS.path, decisions, methods=["POST"]),
        Route(SYSTEMONE.path, systemone, methods=["POST"]),
        Route(_MODELS, answers.models),
        Route(f"{_MODELS}/{{name:path}}", answers.model),
        Route(_HEALTH, answers.health),
        Route(_METRICS, answers.metrics),
        Route(_OPENAPI, openapi),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            Refusal: _refused,
            HTTPException: _not_here,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    counted = [route.path for route in routes if "{" not in route.path]
    return Measured(Guard(app, settings), metrics, counted)


def admission_for(model: AsyncModel, settings: ServeSettings) -> Admission:
    """Return who is let in to a model."""
    session = model.session
    n_decided = session.decisions_at_once(None)
    n_prepared = (n_decided + 1) // 2  # while the others run
    return Admission(n_decided + n_prepared, settings.n_waiting)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refusal_response(error)


async def _not_here(request: Request, error: Exception) -> Response:
    """Answer what the routes do not know."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == 405:
        said = f"{path} takes {headers.get('Allow', 'other methods')}, not {request.method}"
        return refusal_response(Refusal(405, said, "method_not_allowed", headers=headers))
    return refusal_response(Refusal(404, f"there is nothing at {path}", "not_found"))


async def _failed(_: Request, __: Exception) -> Response:
    # What it was is in the log, and no client's business: it may name files.
    said = "the server failed; its log has the details under this answer's x-request-id"
    return refusal_response(Refusal(500, said, "internal_error"))
