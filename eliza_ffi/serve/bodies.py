"""Read a request's body and parse its JSON, within limits."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from .patience import ClientGone, Deadline
from .refusals import Refusal

__all__ = ["MAX_BODY", "MAX_DEPTH", "json_object", "read_body"]

MAX_BODY = 2**20
"""The maximum length of a request's body, in bytes."""

MAX_DEPTH = 64
"""The maximum depth of nested JSON in a body."""


async def read_body(request: Request, deadline: Deadline) -> bytes:
    """Read a request's body.

    Raises
    ------
    Refusal
        If the body is too long or compressed, or does not arrive before the deadline.
    ClientGone
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
    try:
        return await deadline.before_end(_collect(request))
    except ClientDisconnect:
        raise ClientGone from None


async def _collect(request: Request) -> bytes:
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
        given = json.loads(body.decode(), parse_constant=_no_number)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(given, dict):
        raise Refusal(400, "the body must be a JSON object", "invalid_json")
    _check(given)
    return given


def _check(given: dict[str, Any]) -> None:
    """Check that the JSON is not too deep and that its strings are Unicode, without recursion."""
    level: list[Any] = [given]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_text(value)
            elif isinstance(value, dict):
                for key in value:
                    _check_text(key)
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        if not inner:
            return
        level = inner
    if any(isinstance(value, dict | list) for value in level):
        raise _too_deep()
    for value in level:
        if isinstance(value, str):
            _check_text(value)


def _check_text(text: str) -> None:
    # JSON escapes can spell half of a surrogate pair, which is not valid Unicode.
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refusal(
                400, f"the body has a string that is not valid Unicode: {error}", "invalid_json"
            ) from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _too_large() -> Refusal:
    return Refusal(
        413, f"expected a body of at most {MAX_BODY} bytes, got a longer one", "body_too_large"
    )


def _too_deep() -> Refusal:
    return Refusal(400, f"the body is nested deeper than {MAX_DEPTH} levels", "too_deep")
