"""Read the body of a request: its bytes within limits, its JSON, and its fields."""

from __future__ import annotations

import asyncio
import json
import reprlib
import sys
import zlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, TypeVar

import brotli
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json
from starlette.requests import Request

from .http_error import HTTPError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("zstd", "br", "gzip", "deflate")
"""The supported values of the header ``Content-Encoding``, besides ``identity``."""

ZSTD_WINDOW_LOG = 23  # windows of 8 MiB, the limit for HTTP (RFC 9659)
ANY_ZLIB_HEADER = 32 + zlib.MAX_WBITS  # of gzip, or of zlib, which HTTP calls deflate

MAX_DEPTH = 200
"""The maximum depth of nested JSON in a body, a limit of pydantic's JSON parser."""

MAX_NAME_LENGTH = 40
"""Messages and suggestions use at most this many characters of a field's name."""

# ---- Bytes and JSON -----------------------------------------------------------------------------


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body, and decompress it.

    `limit` is its maximum length in bytes, as it is sent and after it is decompressed.
    """
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", *CODINGS):
        raise HTTPError(
            415,
            f"expected one of the content encodings {', '.join(CODINGS)}, got {coding[:80]!r}",
            "encoding",
            headers={"accept-encoding": ", ".join(CODINGS)},
        )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    if coding not in CODINGS:
        return bytes(body)
    return await asyncio.to_thread(_decompressed, bytes(body), coding, limit)


def _decompressed(body: bytes, coding: str, limit: int) -> bytes:
    """Decompress a body, but only a little more than `limit` bytes of it."""
    most = limit + 1
    try:
        if coding == "br":
            brotli_reader = brotli.Decompressor()
            found = brotli_reader.process(body, output_buffer_limit=most)
            is_whole = brotli_reader.is_finished()
        else:
            reader: Any = zlib.decompressobj(ANY_ZLIB_HEADER)
            if coding == "zstd":
                window: dict[int, int] = {
                    zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG
                }
                reader = zstd.ZstdDecompressor(options=window)
            found = reader.decompress(body, most)
            is_whole = reader.eof and not reader.unused_data
    except (brotli.error, zlib.error, zstd.ZstdError) as error:
        raise HTTPError(400, f"the body is not valid {coding} data: {error}", "encoding") from None
    if len(found) > limit:
        raise _too_large(limit)
    if not is_whole:
        message = f"the body must be one complete {coding} stream, without data after its end"
        raise HTTPError(400, message, "encoding")
    return bytes(found)


def _too_large(limit: int) -> HTTPError:
    message = f"expected a body of at most {limit} bytes, got a longer one"
    return HTTPError(413, message, "body_too_large")


def json_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object in a body. Its strings are valid Unicode."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            message = f"the body is nested deeper than {MAX_DEPTH} levels"
            raise HTTPError(400, message, "too_deep") from None
        raise HTTPError(400, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(value, dict):
        raise HTTPError(400, "the body must be a JSON object", "invalid_json")
    return value


# ---- Fields -------------------------------------------------------------------------------------

KINDS = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
"""The names of the kinds of JSON values."""

NoEffect: TypeAlias = Annotated[Any, Field(default=None, description="accepted, without effect")]
"""A field that clients send in ordinary use, and that has no effect here."""

NotBlank: TypeAlias = Annotated[str, Field(pattern=r"\S")]

BY_TYPE = Field(discriminator="type")
"""Selects the alternative of a union of objects by the field ``type``."""


class Body(BaseModel):
    """An object in a request. It has only the listed fields, and values are not converted.

    Other fields may be null: clients write the fields that they know and do not use as null.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_nulls(cls, value: Any) -> Any:
        if cls.model_config["extra"] != "forbid" or not isinstance(value, dict):
            return value
        if None not in value.values():
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: each for name, each in value.items() if each is not None or name in known}

    @property
    def ignored_tools(self) -> Sequence[str]:
        """The names of tools that the server leaves out."""
        return ()


B = TypeVar("B", bound=Body)
S = TypeVar("S")
T = TypeVar("T")


def _either(names: Iterable[str]) -> str:
    """Join names: ``a, b or c``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _kind_of(value: Any) -> str:
    return KINDS[type(value)]


def _with_article(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind in ("array", "object") else f"a {kind}"


def by_kind(*kinds: str) -> Discriminator:
    """Select the alternative of a union by the kind of the JSON value; each kind is a tag."""
    expected = f"expected {_either(_with_article(kind) for kind in kinds)}"
    return Discriminator(_kind_of, custom_error_type="unfit", custom_error_message=expected)


StringOrArray: TypeAlias = Annotated[
    Annotated[S, Tag("string")] | Annotated[T, Tag("array")], by_kind("string", "array")
]
StringOrObject: TypeAlias = Annotated[
    Annotated[S, Tag("string")] | Annotated[T, Tag("object")], by_kind("string", "object")
]


def read_fields(kind: type[B], body: dict[str, Any]) -> B:
    """Read a JSON object as a model.

    If a field does not fit, the message of the HTTPError names the field, what was expected and
    what was found.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _http_error(kind, body, error) from None


def _http_error(kind: type[Body], body: dict[str, Any], failed: ValidationError) -> HTTPError:
    """Return the response for one error: the first unknown field, otherwise the first error.

    An unknown field comes first because it may be the cause of all other errors.
    """
    errors = failed.errors(include_url=False)
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    path, value = _path(body, error["loc"], error["type"])
    context: dict[str, Any] = error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        known = kind.model_fields if len(path) == 1 else ()
        close = get_close_matches(str(path[-1])[:MAX_NAME_LENGTH], known, n=1)
        problem = "this field is not supported" + (f"; did you mean {close[0]}?" if close else "")
    elif error["type"] == "missing":
        problem = "this field is missing"
    elif error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
        problem = "this field is missing"
        if error["type"] == "union_tag_invalid":
            tags = _either(context["expected_tags"].replace("'", "").split(", "))
            problem = f"expected {tags}, got {_shown(value['type'])}"
    elif error["type"] == "value_error":
        problem = str(context["error"])
    else:
        is_length = error["type"] in ("too_short", "too_long")
        problem = f"expected {_expected(error['type'], error['msg'], context)}, got "
        problem += str(len(value)) if is_length else _shown(value)
    param = str(path[0])[:MAX_NAME_LENGTH] if path else None
    code = "unknown_parameter" if error["type"] == "extra_forbidden" else "invalid_value"
    return HTTPError(400, f"{_written(path)}: {problem}", code, param, path=path)


def _path(value: Any, steps: tuple[int | str, ...], kind: str) -> tuple[tuple[Any, ...], Any]:
    """Return the path of an error and the value there.

    pydantic puts the tags of unions between the names and indices. They are left out.
    """
    path: list[Any] = []
    for i, step in enumerate(steps):
        is_last = i == len(steps) - 1
        if isinstance(value, dict) and (step in value or (is_last and kind == "missing")):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        elif step == "[key]":
            value = path[-1]
            continue
        else:
            continue
        path.append(step)
    return tuple(path), value


_EXPECTED = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "none_required": "null",
    "string_pattern_mismatch": "a string that is not blank",
    "string_too_short": "a string that is not empty",
    "string_type": "a string",
}


def _expected(kind: str, message: str, context: dict[str, Any]) -> str:
    """Return what was expected instead of a wrong value."""
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "unfit":
        return message.removeprefix("expected ")
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "")
        return {"True": "true", "False": "false"}.get(expected, expected)
    items = "fields" if context.get("field_type") == "Dictionary" else "items"
    if kind == "too_short":
        return f"{context['min_length']} or more {items}"
    if kind == "too_long":
        return f"at most {context['max_length']} {items}"
    expected = message.removeprefix("Input should be ")
    for long, short in (("greater", "at least"), ("less", "at most")):
        expected = expected.replace(f"{long} than or equal to", short)
    return expected


def _written(path: tuple[Any, ...]) -> str:
    """Format a path, such as ``questions[0].name``."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= MAX_NAME_LENGTH:
            text += f".{step}" if text else step
        else:
            text += f"[{reprlib.repr(step)}]"
    return text or "the request"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _with_article(_kind_of(value))
    return reprlib.repr(value) if isinstance(value, str) else json.dumps(value)
