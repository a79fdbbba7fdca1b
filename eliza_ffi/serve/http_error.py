"""Errors in OpenAI's format, with a message, a code, and the part of the request.

Errors of ``/v1/systemone`` also have the field ``detail`` of that format's specification.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

__all__ = ["FAILED", "SYSTEMONE_PATH", "Refusal", "unfit"]

SYSTEMONE_PATH = "/v1/systemone"

INVALID = ("invalid_json", "invalid_value", "too_deep", "unknown_parameter")
"""The codes of errors that ``/v1/systemone`` answers with status 422 and the place of the error."""

FAILED = "the server failed; its log has the details under this response's x-request-id"
"""The message for a failure of the server. The error itself is only logged, because its message may
name files."""


class Refusal(Exception):  # noqa: N818 - an answer
    """An error that ends a request; the client receives it as the response.

    Parameters
    ----------
    status
        The HTTP status.
    message
        The cause, with the limit if there is one.
    code
        The cause, as a machine-readable word.
    param
        The field of the request that caused the error; None = no single field.
    headers
        Additional headers of the response.
    place
        The names and indices that lead to the wrong value in the body.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        place: tuple[str | int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}
        self.place = place or (() if param is None else (param,))

    @property
    def type(self) -> str:
        """The error type that OpenAI's clients expect for the status."""
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def body(self) -> dict[str, Any]:
        """Return the JSON of the response."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}

    def _detail(self) -> list[dict[str, Any]] | dict[str, str]:
        """Return the field ``detail`` of errors of ``/v1/systemone``."""
        if self.code in INVALID:
            return [{"loc": ["body", *self.place], "msg": self.message, "type": self.code}]
        types = {401: "authentication_error", 429: "rate_limit_error"}
        return {"error_type": types.get(self.status, self.code), "message": self.message}

    def response(self, path: str) -> JSONResponse:
        """Return the HTTP response to a request for a path."""
        status, body = self.status, self.body()
        if path == SYSTEMONE_PATH:
            status = 422 if self.status == 400 and self.code in INVALID else status
            body["detail"] = self._detail()
        return JSONResponse(body, status, self.headers)


def unfit(param: str, problem: str) -> Refusal:
    """Return the error for a field whose value does not fit the rest of the request."""
    return Refusal(400, f"{param}: {problem}", "invalid_value", param)
