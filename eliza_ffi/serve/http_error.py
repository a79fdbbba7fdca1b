"""Errors in OpenAI's format. Those of ``/v1/systemone`` also have that format's ``detail``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

SYSTEMONE_PATH = "/v1/systemone"

INVALID = ("invalid_json", "invalid_value", "too_deep", "unknown_parameter")
"""The codes of errors that ``/v1/systemone`` answers with status 422 and the place of the error."""

FAILED = "the server failed; its log has the details under this response's x-request-id"
"""The message for a failure of the server. The error itself is only logged, because its message may
name files."""


class HTTPError(Exception):
    """An error that ends a request; the client receives it as the response."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,  # a machine-readable word
        param: str | None = None,  # the field that caused the error; None = no single field
        headers: dict[str, str] | None = None,
        path: tuple[str | int, ...] = (),  # the names and indices that lead to the wrong value
        details: Mapping[str, Any] | None = None,  # more fields of the error
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}
        self._details = details or {}
        self._path = path or (() if param is None else (param,))

    def body(self) -> dict[str, Any]:
        """Return the JSON of the response, with the error type that OpenAI's clients expect."""
        type = "server_error" if self.status >= 500 else "invalid_request_error"
        type = "rate_limit_error" if self.status == 429 else type
        error = {"message": self.message, "type": type, "param": self.param, "code": self.code}
        return {"error": {**error, **self._details}}

    def response(self, path: str) -> JSONResponse:
        """Return the response to a request for a path of the server."""
        status, body = self.status, self.body()
        if path == SYSTEMONE_PATH:
            if self.code in INVALID:
                status = 422 if status == 400 else status
                place = ["body", *self._path]
                body["detail"] = [{"loc": place, "msg": self.message, "type": self.code}]
            else:
                types = {401: "authentication_error", 429: "rate_limit_error"}
                type = types.get(status, self.code)
                body["detail"] = {"error_type": type, "message": self.message}
        return JSONResponse(body, status, self.headers)


def invalid(param: str, problem: str, place: str = "") -> HTTPError:
    """Return the error for a field with a wrong value, or for the `place` in it."""
    return HTTPError(400, f"{place or param}: {problem}", "invalid_value", param)


def failure() -> HTTPError:
    """Return the error for a failure of the server."""
    return HTTPError(500, FAILED, "internal_error")
