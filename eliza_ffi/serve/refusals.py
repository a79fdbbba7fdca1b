"""Errors in OpenAI's format, with a message, a code, and the part of the request."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

__all__ = ["FAILED", "Refusal", "refusal_response", "unfit"]

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
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

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


def unfit(param: str, problem: str) -> Refusal:
    """Return the error for a field whose value does not fit the rest of the request."""
    return Refusal(400, f"{param}: {problem}", "invalid_value", param)


def refusal_response(refusal: Refusal) -> JSONResponse:
    """Return the HTTP response for an error."""
    return JSONResponse(refusal.body(), refusal.status, refusal.headers)
