"""Read the JSON object in a request's body, within limits."""

from __future__ import annotations

import asyncio
import sys
import zlib
from typing import Any

import brotli
from pydantic_core import from_json
from starlette.requests import Request

from .refusals import Refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MAX_BODY", "MAX_DEPTH", "json_object", "read_body"]

MAX_BODY = 2**20
"""The maximum length of a request's body in bytes, as it is sent and after it is decompressed."""

CODINGS = ("zstd", "br", "gzip", "deflate")
"""The supported values of the header ``Content-Encoding``, besides ``identity``."""

ZSTD_WINDOW_LOG = 23
"""Zstandard frames may use a window of 8 MiB, the limit for HTTP (RFC 9659)."""

ANY_ZLIB_HEADER = 32 + zlib.MAX_WBITS
"""Tells zlib to detect the header of gzip or of zlib, which HTTP calls ``deflate``."""

MAX_DEPTH = 200
"""The maximum depth of nested JSON in a body, a limit of pydantic's JSON parser."""


async def read_body(request: Request) -> bytes:
    """Read a request's body, and decompress it.

    Raises
    ------
    Refusal
        If the body is too long, is compressed in an unsupported way, or cannot be decompressed.
    ClientDisconnect
        If the client disconnects before the end of the body.
    """
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", *CODINGS):
        raise Refusal(
            415,
            f"expected one of the content encodings {', '.join(CODINGS)}, got {coding[:80]!r}",
            "encoding",
            headers={"accept-encoding": ", ".join(CODINGS)},
        )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise _too_large()
    if coding not in CODINGS:
        return bytes(body)
    return await asyncio.to_thread(_decompressed, bytes(body), coding)


def _decompressed(body: bytes, coding: str) -> bytes:
    """Decompress a body, but only a little more than `MAX_BODY` bytes of it."""
    most = MAX_BODY + 1
    try:
        if coding == "br":
            brotli_reader = brotli.Decompressor()
            found = brotli_reader.process(body, output_buffer_limit=most)
            is_whole = brotli_reader.is_finished()
        else:
            reader: Any
            if coding == "zstd":
                reader = zstd.ZstdDecompressor(
                    options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
                )
            else:
                reader = zlib.decompressobj(ANY_ZLIB_HEADER)
            found = reader.decompress(body, most)
            is_whole = reader.eof and not reader.unused_data
    except (brotli.error, zlib.error, zstd.ZstdError) as error:
        raise Refusal(400, f"the body is not valid {coding} data: {error}", "encoding") from None
    if len(found) > MAX_BODY:
        raise _too_large()
    if not is_whole:
        message = f"the body must be one complete {coding} stream, without data after its end"
        raise Refusal(400, message, "encoding")
    return bytes(found)


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
