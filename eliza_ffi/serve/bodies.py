"""Read the JSON object in a request's body, within limits."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from .refusals import Refusal

__all__ = ["MAX_BODY", "MAX_DEPTH", "json_object", "read_body"]

MAX_BODY = 2**20
"""The maximum length of a request's body, in bytes."""

MAX_DEPTH = 200
"""The maximum depth of nested JSON in a body, a limit of pydantic's JSON parser."""


async def read_body(request: Request) -> bytes:
    """Read a request's body.

    Raises
    ------
    Refusal
        If the body is too long or compressed.
    ClientDisconnect
        If the client disconnects before the end of the body.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Refusal(
            415, f"expected an uncompressed body, got the content encoding {encoding!r}", "encoding"
        )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise _too_large()
    return bytes(body)


def json_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object in a body.

    Raises
    ------
    Refusal
        If the body is not a JSON object, is nested too deeply, or has a string that is not valid
        Unicode.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            message = f"the body is nested deeper than {MAX_DEPTH} levels"
            raise Refusal(400, message, "too_deep") from None
        raise Refusal(400, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(given, dict):
        raise Refusal(400, "the body must be a JSON object", "invalid_json")
    return given


def _too_large() -> Refusal:
    return Refusal(
        413, f"expected a body of at most {MAX_BODY} bytes, got a longer one", "body_too_large"
    )
