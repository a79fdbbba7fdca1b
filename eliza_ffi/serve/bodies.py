"""Reading a request's body: bytes, then JSON, each within its limits."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from .patience import ClientGone, Deadline
from .refusals import Refusal

__all__ = ["MAX_BODY", "MAX_DEPTH", "json_object", "read_body"]

MAX_BODY = 2**20
"""Bytes of a request's body."""

MAX_DEPTH = 64
"""Levels of its JSON."""


async def read_body(request: Request, deadline: Deadline) -> bytes:
    """Return a request's body.

    Raises
    ------
    Refusal
        If it is too long, compressed, or does not come in time.
    ClientGone
        If the client leaves before its end.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Refusal(
            415, f"a body in the encoding {encoding!r} is not read: send it as it is", "encoding"
        )
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > MAX_BODY:
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
    """Return the JSON object in a body.

    Raises
    ------
    Refusal
        If it is none, too deep, or has text that is no Unicode.
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
    """Check the depth of JSON and that its texts are Unicode, without recursion."""
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
    # Half of a surrogate pair, which JSON can write and UTF-8 cannot.
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refusal(
                400, f"the body has a text that is no Unicode: {error}", "invalid_json"
            ) from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _too_large() -> Refusal:
    return Refusal(413, f"the body is longer than {MAX_BODY} bytes", "body_too_large")


def _too_deep() -> Refusal:
    return Refusal(400, f"the body is nested deeper than {MAX_DEPTH} levels", "too_deep")
