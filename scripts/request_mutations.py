"""Generate requests with mistakes for all endpoints of ``eliza-ffi serve``."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import brotli
from jsonschema_specifications import REGISTRY

from eliza_ffi.serve.app import ENDPOINTS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
DECISIONS, SYSTEMONE = "/v1/decisions", "/v1/systemone"

RIGHT: dict[str, dict[str, Any]] = {
    "/v1/decisions": {
        "model": "any",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Hello."},
                    {"type": "input_json", "data": {"a": [1]}},
                ],
            },
            {"type": "function_call", "name": "find", "call_id": "1", "arguments": "{}"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ],
        "questions": [
            {
                "type": "choice",
                "name": "team",
                "instructions": [{"type": "input_text", "text": "Which?"}],
                "choices": [{"value": "a", "description": "d"}, {"value": True}],
                "none": "neither",
            },
            {"type": "predicate", "instructions": "So?", "if_true": "y", "if_false": "n"},
            {
                "type": "score",
                "instructions": "How?",
                "levels": [{"label": "l", "description": "e"}, {"label": "m"}],
            },
            {"type": "labels", "instructions": "Q?", "labels": [{"value": "a"}, {"value": "b"}]},
        ],
        "include": ["timings", "option_mass", "prompts"],
    },
    "/v1/systemone": {
        "model": "any",
        "state": {"a": [1, {"b": None}]},
        "questions": {
            "q": {
                "type": "choice",
                "instructions": {"ask": 1},
                "criteria": {"x": None, "y": {"d": 1}},
            },
            "n": {"type": "noul", "instructions": "I", "criteria": {"true": "t", "false": "f"}},
            "s": {"type": "score", "instructions": "I", "criteria": ["l", {"m": 1}, 3]},
        },
        "include": ["timings"],
    },
    "/v1/chat/completions": {
        "model": "any",
        "messages": [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "find", "arguments": '{"a": 1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "found"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "description": "Finds.",
                    "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}}},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "find"}},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 1,
        "stop": ["x"],
        "n": 2,
        "max_tokens": 40,
        "logit_bias": {"5": 1},
        "chat_template_kwargs": {"enable_thinking": False},
    },
    "/v1/completions": {
        "model": "any",
        "prompt": ["Hello", "Once"],
        "guided_json": {"type": "object", "properties": {"a": {"enum": ["b"]}}},
        "max_tokens": 40,
        "n": 2,
        "seed": 3,
    },
    "/v1/embeddings": {"model": "any", "input": ["a", "b"], "encoding_format": "base64"},
    "/v1/responses": {
        "model": "any",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
            {"type": "function_call", "name": "find", "call_id": "1", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "found"},
        ],
        "instructions": "Be short.",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"enum": ["a", "b"]}}},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "reasoning": {"effort": "low"},
        "max_output_tokens": 40,
        "metadata": {"a": "b"},
    },
}
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**30, [], {}, [[]], {"": ""}),
    *("", "a", " ", "\0", "\n\n", "true", "é𝄞", "<|im_end|>", "input_image", "text", "A" * 300),
]
VALUES += [{"type": "input_image"}, {"type": "input_text", "text": " "}, {"type": "function_call"}]
KEYS = [
    *("type", "name", "value", "label", "criteria", "role", "content", "none", "", "x"),
    *("images", "files", "description", "if_true", "instructions", "data", "text", "include"),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in JSON with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def spoil(given: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(given)
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = list(places(changed))
        if not found:
            break
        container, key = draw.choice(found)
        how = draw.random()
        if how < 0.6:
            container[key] = copy.deepcopy(draw.choice(VALUES))
        elif how < 0.8:
            del container[key]
        elif isinstance(container, dict):
            container[draw.choice(KEYS)] = copy.deepcopy(draw.choice(VALUES))
        else:
            container.append(copy.deepcopy(draw.choice(VALUES)))
    return changed


# ---- Raw JSON -----------------------------------------------------------------------------------

MARK = "\x00raw\x00"
"""Stands for a raw text in a value, until the value is written as JSON."""


def written(body: Any, raw: str = "") -> bytes:
    """Write JSON; `raw` replaces `MARK`."""
    return json.dumps(body).replace(json.dumps(MARK), raw).encode()


@dataclass(frozen=True)
class Sent:
    """A request.

    Attributes
    ----------
    kind : str
        The kind of its mistakes, one of `KINDS`.
    """

    kind: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


Parts = tuple[str, bytes, dict[str, str]]
"""The path, the body and the headers of a request."""


def plain(draw: random.Random, path: str) -> dict[str, Any]:
    """Return a right request for a path with a short answer, sometimes as a stream."""
    body = copy.deepcopy(RIGHT[path])
    for name in ("max_tokens", "max_output_tokens"):
        if name in body:
            body[name] = draw.choice((1, 4, 16))
    if path not in (DECISIONS, SYSTEMONE, EMBEDDINGS) and draw.random() < 0.2:
        body["stream"] = True
    return body


def simple(draw: random.Random, path: str) -> dict[str, Any]:
    """Return a right request for text without tools and limits on the answer."""
    given = "input" if path == RESPONSES else "prompt"
    body: dict[str, Any] = {given: "Hello.", "max_tokens": draw.choice((1, 4, 16))}
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    if path == RESPONSES:
        body["max_output_tokens"] = body.pop("max_tokens")
    if draw.random() < 0.2:
        body["stream"] = True
    return body


def any_path(draw: random.Random) -> str:
    return draw.choice(list(RIGHT))


def text_path(draw: random.Random) -> str:
    return draw.choice((CHAT, RESPONSES, COMPLETIONS))


def put_somewhere(draw: random.Random, body: dict[str, Any], value: Any) -> None:
    """Replace a value anywhere in a request, or set one of its fields."""
    found = list(places(body))
    if draw.random() < 0.5:
        container, key = draw.choice(found)
        container[key] = value
    else:
        body[draw.choice(fields_of(draw.choice(ENDPOINTS).path))] = value


@cache
def fields_of(path: str) -> list[str]:
    """Return the names of all fields of a request."""
    kind = next(each.kind for each in ENDPOINTS if each.path == path)
    return [each.alias or name for name, each in kind.model_fields.items()]


def a_few_fields(draw: random.Random) -> Parts:
    path = any_path(draw)
    return path, written(spoil(plain(draw, path), draw)), {}


def fields_of_all_endpoints(draw: random.Random) -> Parts:
    path = any_path(draw)
    body = plain(draw, path)
    for _ in range(draw.choice((1, 2, 3))):
        names = fields_of(path if draw.random() < 0.8 else any_path(draw))
        body[draw.choice(names)] = copy.deepcopy(draw.choice(VALUES))
    return path, written(body), {}


def deep_or_long_values(draw: random.Random) -> Parts:
    path = any_path(draw)
    body = plain(draw, path)
    put_somewhere(draw, body, MARK)
    return path, written(body, deep_or_long(draw)), {}


def deep_or_long(draw: random.Random) -> str:
    """Return JSON with many levels, digits or characters."""
    n = draw.choice((100, 190, 201, 5000, 100_000))
    before, after = draw.choice((("[", "]"), ('{"a":', "}"), ('[{"type":', "}]"), ('{"":[', "]}")))
    make: Callable[[], str] = draw.choice(
        (
            lambda: before * n + "1" + after * n,
            lambda: before * n,
            lambda: "9" * n,
            lambda: "-" + "9" * n,
            lambda: "0." + "1" * n,
            lambda: "1e" + "9" * n,
            lambda: "1e-" + "9" * n,
            lambda: "1" + "0" * n,
            lambda: json.dumps("a" * n),
            lambda: json.dumps("9" * n),
            lambda: json.dumps("[" * n + "]" * n),
            lambda: json.dumps([draw.choice("ab")] * n),
            lambda: json.dumps({str(i): i for i in range(n // 2)}),
            lambda: draw.choice(("NaN", "Infinity", "-Infinity", "1e400", "-0", "5e-324", "0x1")),
        )
    )
    return make()


def damaged_bytes(draw: random.Random) -> Parts:
    path = any_path(draw)
    body = bytearray(written(plain(draw, path)))
    for _ in range(draw.choice((1, 1, 2, 8))):
        i = draw.randrange(len(body))
        how = draw.randrange(4)
        if how == 0:
            body[i] = draw.randrange(256)
        elif how == 1:
            del body[i : i + draw.choice((1, 5, 50))]
        elif how == 2:
            body[i:i] = draw.choice(
                (b"\xff", b"\0", b"\xed\xa0\x80", b'"', b"\\", b"{", b"]", b"\xef\xbb\xbf", b",")
            )
        else:
            del body[i:]
        if not body:
            break
    return path, bytes(body), {}


SURROGATES = (
    *(r"\ud800", r"a\udfffb", r"\ude00\ud83d", r"\ud83d", r"\u0000", r"\uffff", r"\ud800\u0041"),
    *("\\ud83d\\ude00", r"\ud8", r"\uXYZW"),
)


def lone_surrogates(draw: random.Random) -> Parts:
    path = any_path(draw)
    body = plain(draw, path)
    text = f'"{draw.choice(SURROGATES)}"'
    if draw.random() < 0.3:  # as a key
        put_somewhere(draw, body, {MARK: draw.choice((1, "a", None))})
    else:
        put_somewhere(draw, body, MARK)
    return path, written(body, text), {}


def duplicate_keys(draw: random.Random) -> Parts:
    path = any_path(draw)
    body = plain(draw, path)
    objects = [body, *(c[k] for c, k in places(body) if isinstance(c[k], dict) and c[k])]
    chosen = draw.choice(objects)
    key = draw.choice(list(chosen))
    value = chosen[key] if draw.random() < 0.3 else draw.choice(VALUES)
    chosen[MARK] = 1
    pairs = [f"{json.dumps(key)}: {json.dumps(value)}"] * draw.choice((1, 2, 1000))
    text = json.dumps(body).replace(f"{json.dumps(MARK)}: 1", ", ".join(pairs))
    return path, text.encode(), {}


def unknown_fields(draw: random.Random) -> Parts:
    path = draw.choice((SYSTEMONE, SYSTEMONE, any_path(draw)))
    body = plain(draw, path)
    names = draw.choice(
        (
            ["x"],
            ["", " ", "\r\nset-cookie: a"],
            ["\x7f", "größe", "\ud83d\ude00", "%00"],
            ["a" * 10_000],
            [f"x{i}" for i in range(2000)],
            ["__class__", "model_config", "self", "model_fields", "__dict__"],
            [*fields_of(any_path(draw))],
        )
    )
    objects = [body, *(c[k] for c, k in places(body) if isinstance(c[k], dict))]
    for chosen in [body] if draw.random() < 0.6 else [draw.choice(objects)]:
        chosen.update({name: draw.choice(VALUES) for name in names if name not in chosen})
    return path, written(body), {}


# ---- Compressed bodies --------------------------------------------------------------------------


def raw_deflate(data: bytes) -> bytes:
    writer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return writer.compress(data) + writer.flush()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstd.compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": raw_deflate,
    "br": brotli.compress,
}


@cache
def bomb(name: str) -> bytes:
    """Return few bytes that are 64 MiB of JSON when they are decompressed."""
    return COMPRESSORS[name](b'{"a": "' + b"a" * 2**26 + b'"}')


def compressed_bodies(draw: random.Random) -> Parts:
    path = any_path(draw)
    name = draw.choice(list(COMPRESSORS))
    coding = name.removeprefix("raw ")
    data = COMPRESSORS[name](written(plain(draw, path)))
    how = draw.randrange(9)
    if how == 0:
        data = bomb(name)
    elif how == 1:
        data = data[: draw.randrange(len(data))]
    elif how == 2:
        data += draw.choice((data, b"\0", b"{}"))
    elif how == 3:
        broken = bytearray(data)
        for _ in range(draw.choice((1, 3))):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        data = bytes(broken)
    elif how == 4:
        coding = draw.choice(
            (
                "identity",
                "x-gzip",
                "gzip, br",
                "",
                "GZIP",
                " br ",
                "zstd;q=1",
                "\xff",
                "compress",
                "*",
            )
        )
    elif how == 5:
        data = COMPRESSORS[name](data if draw.random() < 0.5 else bomb(name))
    elif how == 6:
        data = COMPRESSORS[name](damaged_bytes(draw)[1])
    return path, data, {"content-encoding": coding}


# ---- Limits on the answer -----------------------------------------------------------------------

KEYWORDS = sorted(
    {
        keyword
        for uri in REGISTRY
        if isinstance(contents := REGISTRY.contents(uri), dict)
        for keyword in contents.get("properties", {})
    }
    | {"nullable", "x-guidance", "discriminator", "x", ""}
)
"""The keywords of all drafts of JSON Schema, and a few others."""

TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")

SCHEMA_VALUES: list[Any] = [
    *VALUES,
    *(
        "#",
        "#/$defs/a",
        "#/properties/a",
        "https://a.b/c",
        "(",
        "^(a+)+$",
        "^a{99999}$",
        "[a-",
        "(",
    ),
    *(
        "date-time",
        "integer",
        "object",
        "\\p{L}",
        r"^\d{3,1}$",
        "https://json-schema.org/draft-04/schema#",
    ),
    *(1e308, -1e308, 5e-324, 2**31, 2**63, -(2**63), 2**64, 10**400, -1.5, 0.1),
    *([None], [1], ["a", "a"], [{}], [True, False], [{"type": "string"}], [{"$ref": "#"}], [["a"]]),
    *({"a": 1}, {"a": None}, {"a": {}}, {"a": True}, {"a": {"type": 5}}, {"": {"type": "string"}}),
    *({"a": ["b"]}, {"a": [1]}, {"$ref": "#"}, {"$ref": 1}, {"type": "string"}, {"type": []}),
    *({"(": {}}, {"^a": False}, {"not": {}}, {"enum": []}, {"const": {"a": [1.0, None]}}),
    *({"minimum": 3, "maximum": 1}, {"pattern": "("}, {"if": True}, {"required": ["a", 1]}),
    *TYPES,
    [*TYPES],
]


def some_schema(draw: random.Random, depth: int = 0) -> Any:
    """Return a schema with random keywords and values, few of which fit each other."""
    if depth > 2 or (depth and draw.random() < 0.2):
        return copy.deepcopy(draw.choice(SCHEMA_VALUES))
    inner = [some_schema(draw, depth + 1) for _ in range(draw.randrange(3))]
    schema: dict[str, Any] = draw.choice(
        (
            {"type": "object", "properties": dict(zip("ab", inner, strict=False))},
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"type": "array", "items": inner[0] if inner else {}, "maxItems": 2},
            {"anyOf": inner or [{}]},
            {"allOf": inner or [{}]},
            {"enum": ["a", 1, None, {"b": []}]},
            {"$ref": "#/$defs/a", "$defs": {"a": inner[0] if inner else True}},
            {"type": draw.choice(TYPES)},
            {"type": "string", "maxLength": 5},
            {},
        )
    )
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        keyword = draw.choice(KEYWORDS)
        as_schema = depth < 2 and draw.random() < 0.3
        schema[keyword] = (
            some_schema(draw, depth + 1) if as_schema else copy.deepcopy(draw.choice(SCHEMA_VALUES))
        )
    return schema


def wrong_keywords(draw: random.Random) -> Parts:
    """One keyword with a wrong value, so that no other error comes first."""
    schema: dict[str, Any] = draw.choice(
        ({}, {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}})
    )
    schema = copy.deepcopy(schema)
    inside = schema.get("properties", {}).get("a", schema)
    draw.choice((schema, inside))[draw.choice(KEYWORDS)] = copy.deepcopy(draw.choice(SCHEMA_VALUES))
    return with_schema(draw, schema)


def wrong_schemas(draw: random.Random) -> Parts:
    return with_schema(draw, some_schema(draw))


def with_schema(draw: random.Random, schema: Any) -> Parts:
    """Return a request whose answer has a schema, in one of all fields that can have one."""
    path = text_path(draw)
    body = simple(draw, path)
    where = draw.randrange(3 if path == COMPLETIONS else 8)
    if where < 3:
        body.update(
            (
                {"guided_json": schema},
                {"structured_outputs": {"json": schema}},
                {"json_schema": schema},
            )[where]
        )
    elif where < 6:
        named = {"name": "a", "schema": schema, "strict": True}
        flat = named if path == RESPONSES else {"json_schema": named}
        form: dict[str, Any] = {"type": "json_schema", **flat}
        if where == 5:
            form = {"type": "json_object", "schema": schema}
        body.update({"text": {"format": form}} if path == RESPONSES else {"response_format": form})
    else:
        function = {"name": "find", "parameters": schema}
        nested: Any = {"function": function} if path == CHAT else function
        chosen: Any = {"function": {"name": "find"}} if path == CHAT else {"name": "find"}
        body["tools"] = [{"type": "function", **nested}]
        body["tool_choice"] = draw.choice(("auto", "required", {"type": "function", **chosen}))
    if draw.random() < 0.1:
        body["logprobs"] = path == CHAT or 2
    return path, written(body), {}


PIECES = (
    *"()[]{}*+?|^$.\\/-,:=\"' \n01",
    *("a", "[^a]", "\\p{L}", "(?i)", "(?=a)", "(?<=a)", "(?!a)", "\\1", "{1000}", "{2,1}", "\\d"),
    *(
        "\\x",
        "\\u{110000}",
        "::=",
        "root",
        "root ::= ",
        '"a"',
        "\\",
        "[a-",
        "é",
        "\0",
        "\ud83d\ude00",
    ),
    *(
        "start: ",
        "/a/",
        "%ignore",
        "%json {}",
        "<|im_end|>",
        "# ",
        "(a|b)",
        "(a*)*",
        "root ::= root",
    ),
)


def wrong_expressions(draw: random.Random) -> Parts:
    path = text_path(draw)
    body = simple(draw, path)
    text = "".join(draw.choice(PIECES) for _ in range(draw.choice((1, 2, 4, 12))))
    if draw.random() < 0.3:
        text = draw.choice(("root ::= ", "^", "root ::= a\na ::= ")) + text
    if draw.random() < 0.05:
        text *= 10_000
    labels = draw.choice(
        ([text, "b"], [text, text + "b"], [text * 2, text], [str(i) for i in range(900)])
    )
    how = draw.randrange(5)
    if how == 0:
        body["structured_outputs"] = {draw.choice(("regex", "choice")): text}
    elif how == 1:
        body["structured_outputs"] = {"choice": labels}
    else:
        name, value = (("guided_choice", labels), ("guided_regex", text), ("grammar", text))[
            how - 2
        ]
        body[name] = value
    if draw.random() < 0.1:
        body["stop"] = draw.choice((text, [text, "a"]))
    return path, written(body), {}


# ---- Settings of text ---------------------------------------------------------------------------

NAMES = (
    *(
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "bos_token",
    ),
    *(
        "eos_token",
        "enable_thinking",
        "self",
        "loop",
        "caller",
        "varargs",
        "kwargs",
        "range",
        "dict",
    ),
    *(
        "namespace",
        "raise_exception",
        "strftime_now",
        "tojson",
        "lipsum",
        "cycler",
        "joiner",
        "true",
    ),
    *("none", "__class__", "__init__", "super", "context", "environment", "", " ", "a b", "1", "é"),
    *(
        "if",
        "for",
        "import",
        "message",
        "content",
        "role",
        "system_message",
        "x" * 10_000,
        "template",
    ),
    *(
        "tokenize",
        "messages ",
        "conversation",
        "chat_template",
        "builtin_tools",
        "reasoning_effort",
    ),
)


def template_variables(draw: random.Random) -> Parts:
    path = draw.choice((CHAT, CHAT, RESPONSES))
    body = simple(draw, path) if draw.random() < 0.7 else plain(draw, path)
    chosen = draw.sample(NAMES, draw.choice((1, 1, 2, 5)))
    given = {name: copy.deepcopy(draw.choice(VALUES)) for name in chosen}
    if draw.random() < 0.05:
        given = {f"x{i}": i for i in range(20_000)}
    body["chat_template_kwargs"] = given
    if draw.random() < 0.1:
        body["chat_template_kwargs"][chosen[0]] = MARK
        return path, written(body, deep_or_long(draw)), {}
    return path, written(body), {}


def tool_arguments(draw: random.Random) -> Parts:
    path = draw.choice((CHAT, CHAT, RESPONSES, DECISIONS))
    body = plain(draw, path)
    raw = draw.choice(
        (deep_or_long(draw), json.dumps(draw.choice(VALUES)), draw.choice(SURROGATES))
    )
    if draw.random() < 0.7:
        raw = draw.choice(('{"a": %s}', '{"a": 1, "a": %s}', '{"a": {"b": [%s]}}', "{%s: 1}")) % raw
    text: Any = raw[:400_000] if draw.random() < 0.9 else draw.choice(VALUES)
    if path == CHAT:
        function = body["messages"][2]["tool_calls"][0]["function"]
        function["arguments"] = text
        if draw.random() < 0.3:
            function["name"] = draw.choice(("", "é", "a" * 1000, '"', "<|im_end|>", "find", None))
    else:
        body["input"][1]["arguments"] = text
    if draw.random() < 0.3 and path != DECISIONS:
        body["tool_choice"] = draw.choice(("none", "auto"))
    return path, written(body), {}


def biases(draw: random.Random) -> Parts:
    path = text_path(draw)
    body = simple(draw, path)
    keys = (
        *("5", "-1", "+5", " 5", "5.0", "1e3", "", "a", "٣", "²", "05", "000000000", "999999999"),
        *("2147483648", "9" * 30, "9" * 5000, "1" * 100_000, "x" * 100_000, "1_000", "\0", "0x5"),
    )
    numbers: tuple[Any, ...] = (1, -1, 0, 100, 1e6, 1.1e6, -1e300, 5e-324, 10**400)
    found: dict[str, Any] = {str(draw.randrange(2000)): draw.uniform(-100, 100) for _ in range(3)}
    if draw.random() < 0.7:
        found[draw.choice(keys)] = draw.choice((*numbers, None, "a", True, [], {}))
    if draw.random() < 0.1:
        n = draw.choice((1000, 1900, 50_000))
        found = {str(i): draw.choice((1, -100, 50.5)) for i in range(n)}
    body["logit_bias"] = found if draw.random() < 0.9 else draw.choice(VALUES)
    if draw.random() < 0.2:
        body["guided_choice"] = ["a", "b"]
    return path, written(body), {}


NUMBERS = (
    *(0, 1, -1, 2, 0.5, 1e-6, 1e-45, 5e-324, 1e38, 1e39, 1e308, 2**31 - 1, 2**31, 2**32 - 2, 2**63),
    *(2**64, 10**30, -0.0, 0.999999, 20, 16, 64, None, True, "1", -(2**31), 1.0),
)
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "seed"),
    *("n", "repeat_penalty", "repetition_penalty", "logprobs", "top_logprobs", "max_tokens"),
    *("echo", "max_completion_tokens", "max_output_tokens"),
)


def sampling_settings(draw: random.Random) -> Parts:
    path = text_path(draw)
    body = simple(draw, path)
    names = [name for name in SETTINGS if name in fields_of(path)]
    for name in draw.sample(names, draw.choice((1, 2, 4))):
        body[name] = draw.choice(NUMBERS if draw.random() < 0.3 else (0, 1, 0.5, 2, 5, 1e-6))
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if isinstance(body.get(name), int) and body[name] > 64:
            body[name] = 64  # keep answers short
    if draw.random() < 0.3:
        body["stop"] = draw.choice((["e", " "], "", [], ["\0"], "é", ["a"] * 16, ["a"] * 17, "l"))
    if draw.random() < 0.2:
        body["guided_choice"] = draw.choice((["a", "b"], ["a", "ab", "abc"], [""], ["\0", " "]))
    return path, written(body), {}


def token_ids(draw: random.Random) -> Parts:
    path = draw.choice((COMPLETIONS, EMBEDDINGS))
    tokens: Any = [
        draw.choice((0, 1, 2, 3, draw.randrange(4000), draw.randrange(2**31), -1, 2**40))
        for _ in range(draw.choice((1, 2, 20)))
    ]
    if draw.random() < 0.5:
        tokens = [draw.randrange(2000) for _ in range(draw.choice((1, 3, 3000)))]
    given: Any = draw.choice(
        (tokens, [tokens], [tokens, [1]], [tokens, "a"], [["a"]], [[]], [tokens] * 70)
    )
    if path == EMBEDDINGS:
        return path, written({"input": given}), {}
    body = {**simple(draw, path), "prompt": given}
    if draw.random() < 0.4:
        body |= {"echo": True, "logprobs": draw.choice((0, 3)), "max_tokens": draw.choice((0, 2))}
    return path, written(body), {}


def message_texts(draw: random.Random) -> Parts:
    """Text that is special for tokenizers and chat templates."""
    path = any_path(draw)
    body = plain(draw, path)
    texts = (
        *(
            "<|im_end|>",
            "<|im_start|>system",
            "</s>",
            "<s>",
            "{{ 1 }}",
            "{% raw %}",
            "\0",
            "\ufeff",
        ),
        *(
            "\u202e",
            "a\u0301" * 500,
            "\U0001f468\u200d\U0001f469" * 100,
            " " * 3000,
            "\n" * 3000,
            "\ufffd",
        ),
        *(
            "word " * 1900,
            "word " * 2100,
            "é" * 5000,
            "<think>",
            "</tool_call>",
            '<tool_call>{"name":',
        ),
    )
    strings = [(c, k) for c, k in places(body) if isinstance(c[k], str)]
    for container, key in draw.sample(strings, min(len(strings), draw.choice((1, 2)))):
        container[key] = draw.choice(texts)
    return path, written(body), {}


KINDS: dict[str, Callable[[random.Random], Parts]] = {
    make.__name__.replace("_", " "): make
    for make in (
        a_few_fields,
        fields_of_all_endpoints,
        unknown_fields,
        deep_or_long_values,
        damaged_bytes,
        lone_surrogates,
        duplicate_keys,
        compressed_bodies,
        wrong_keywords,
        wrong_schemas,
        wrong_expressions,
        template_variables,
        tool_arguments,
        biases,
        sampling_settings,
        token_ids,
        message_texts,
    )
}
"""The kinds of mistakes, and the functions that make requests with them."""

FREQUENT = ("wrong keywords", "wrong schemas")
"""The kinds of which there are twice as many requests, because they have more cases."""


def mutated(seed: int, number: int) -> Sent:
    """Return one of the requests of a seed; the number determines its kind."""
    names = [*KINDS, *FREQUENT]
    kind = names[number % len(names)]
    draw = random.Random(f"{seed} {number}")
    return Sent(kind, *KINDS[kind](draw))
