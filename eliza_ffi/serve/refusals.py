"""Errors in OpenAI's form: what was wrong, with which part of the request, and the limit."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

__all__ = ["Refusal", "refusal_response"]


class Refusal(Exception):  # noqa: N818 - an answer
    """A request is answered with an error.

    Parameters
    ----------
    status
        Of HTTP.
    message
        What is wrong, naming the thing and the limit.
    code
        The same for programs.
    param
        The part of the request.
    headers
        More headers of the answer.
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
        """The kind of error, as OpenAI's clients know it."""
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def body(self) -> dict[str, Any]:
        """Return the answer's JSON."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def refusal_response(refusal: Refusal) -> JSONResponse:
    """Return the answer that says so."""
    return JSONResponse(refusal.body(), refusal.status, refusal.headers)
