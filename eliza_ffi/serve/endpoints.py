"""The handlers of the endpoints."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..async_model import AsyncModel
from ..errors import BusyError, ContextFullError, InvalidArgumentError, NotSupportedError
from .admission import Admission
from .bodies import json_object, read_body
from .formats import DecisionRequest, WireFormat
from .metrics import CLIENT_GONE, ServeMetrics
from .patience import ClientGone, Deadline, while_wanted
from .refusals import Refusal
from .settings import ServeSettings

__all__ = ["Endpoints"]

LONG_BODY = 2**15
"""Bodies of this many bytes or more are parsed in a thread, so as not to delay other requests."""


class Endpoints:
    """The handlers of one server.

    Parameters
    ----------
    model
    settings
    admission
    metrics
    """

    def __init__(
        self,
        model: AsyncModel,
        settings: ServeSettings,
        admission: Admission,
        metrics: ServeMetrics,
    ) -> None:
        self._model = model
        self._settings = settings
        self._admission = admission
        self._metrics = metrics
        self._started = int(time.time())

    async def decide(self, request: Request, wire: WireFormat) -> Response:
        """Answer questions about an input."""
        deadline = Deadline(self._settings.deadline)
        try:
            body = await read_body(request, deadline)
            answer = await while_wanted(
                self._answer(body, wire, deadline), request.receive, deadline
            )
        except ClientGone:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(answer)

    async def models(self, _: Request) -> Response:
        """List the server's model."""
        return JSONResponse({"object": "list", "data": [self._model_facts()]})

    async def model(self, request: Request) -> Response:
        """Describe the model with the given name."""
        name = request.path_params["name"]
        if name != self._settings.name:
            raise Refusal(404, f"unknown model: {name!r}", "model_not_found", "model")
        return JSONResponse(self._model_facts())

    async def health(self, _: Request) -> Response:
        """Report whether the server accepts requests."""
        self._admission.check_open()
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        text = await asyncio.to_thread(self._metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _answer(self, body: bytes, wire: WireFormat, deadline: Deadline) -> dict[str, Any]:
        async with self._admission.place() as waited:
            self._metrics.count_wait(waited)
            decision_request = await _read(body, wire)
            try:
                return await self._decide(decision_request, wire, waited, deadline)
            except ContextFullError as error:
                if not deadline.left:  # it might have fitted once other requests freed the context
                    raise deadline.passed() from None
                raise Refusal(400, str(error), "context_length_exceeded", wire.input_name) from None
            except InvalidArgumentError as error:
                raise Refusal(400, str(error), "invalid_value") from None
            except NotSupportedError as error:
                raise Refusal(501, str(error), "not_supported") from None
            except BusyError:
                raise deadline.passed() from None

    async def _decide(
        self, request: DecisionRequest, wire: WireFormat, waited: float, deadline: Deadline
    ) -> dict[str, Any]:
        settings = self._settings
        decision = await self._model.decide(
            request.input,
            request.questions,
            labels=settings.labels,
            orders=settings.orders,
            scoring=settings.scoring,
            option_mass="option_mass" in request.include,
            wait=deadline.left,
        )
        self._metrics.count_decision(request.questions, decision)
        answer = {"model": settings.name, **wire.write(decision)}
        if "timings" in request.include:
            answer["timings"] = {
                "passes": decision.usage.passes,
                "decision_ms": round(decision.usage.seconds * 1e3, 3),
                "queue_ms": round(waited * 1e3, 3),
            }
        if "prompts" in request.include:
            answer["prompts"] = await self._model.decision_prompts(
                request.input, request.questions, labels=settings.labels, orders=settings.orders
            )
        return answer

    def _model_facts(self) -> dict[str, Any]:
        return {
            "id": self._settings.name,
            "object": "model",
            "created": self._started,
            "owned_by": "eliza-ffi",
        }


async def _read(body: bytes, wire: WireFormat) -> DecisionRequest:
    """Parse and check a body. A long body is parsed in another thread."""
    if len(body) < LONG_BODY:
        return wire.read(json_object(body))
    return await asyncio.to_thread(lambda: wire.read(json_object(body)))
