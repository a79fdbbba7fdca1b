"""Tests of rejected requests: their messages, and that they do not affect other requests."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import brotli
import httpx
import pytest
from served import DECISIONS, SYSTEMONE, Served, decisions_body, rejected

from eliza_ffi.serve.http_error import HTTPError
from eliza_ffi.serve.request_body import _decompressed
from eliza_ffi.serve.settings import ServeSettings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.slow

NOUL = {"type": "noul", "instructions": "It is urgent."}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_body_has_at_most_one_mebibyte(server: Served) -> None:
    fits = json.dumps(decisions_body("a")).encode()
    fits += b" " * (2**20 - len(fits))
    assert httpx.post(server.url + DECISIONS, content=fits).status_code == 200
    for content in (fits + b" ", iter([b" " * 2**16] * 17)):  # the second one is chunked
        error = rejected(httpx.post(server.url + DECISIONS, content=content), 413)
        assert "1048576 bytes" in error["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"input": NaN}', "not JSON: expected value"),
        (b'{"input": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"input": "\\ud800"}', "not JSON"),
        (b'{"\\ud800": 1}', "not JSON"),
        (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper than 200 levels"),
        (b'{"input": ' + json.dumps(nested(200)).encode() + b"}", "deeper than 200 levels"),
        (b'{"model": 1}', "model: expected a string, got 1"),
    ],
)
def test_a_malformed_body_is_rejected(server: Served, body: bytes, message: str) -> None:
    assert message in rejected(httpx.post(server.url + DECISIONS, content=body))["message"]


def test_json_with_200_levels_is_accepted(server: Served) -> None:
    body = {"state": nested(199), "questions": {"so": NOUL}}
    assert httpx.post(server.url + SYSTEMONE, json=body).status_code == 200


def zstd_bomb() -> bytes:
    """Return 4 KiB that decompress to 128 MiB: one block after another of the same byte."""
    block = (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b" "
    last = (1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * 1024 + last


COMPRESS = {
    "zstd": zstd.compress,
    "br": brotli.compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


def send_compressed(server: Served, body: bytes, coding: str) -> httpx.Response:
    headers = {"content-encoding": coding}
    return httpx.post(server.url + DECISIONS, content=body, headers=headers, timeout=60)


@pytest.mark.parametrize("coding", COMPRESS)
def test_bodies_may_be_compressed_and_their_limit_counts_decompressed_bytes(
    server: Served, coding: str
) -> None:
    compress = COMPRESS[coding]
    fits = json.dumps(decisions_body("a")).encode()
    fits += b" " * (2**20 - len(fits))
    assert send_compressed(server, compress(fits), coding).status_code == 200
    for too_long in (fits + b" ", fits + b" " * 2**26):
        answer = send_compressed(server, compress(too_long), coding)
        assert "1048576 bytes" in rejected(answer, 413)["message"]


@pytest.mark.parametrize("coding", COMPRESS)
def test_damaged_compressed_bodies_are_rejected(server: Served, coding: str) -> None:
    body = COMPRESS[coding](json.dumps(decisions_body()).encode())
    for damaged in (body[:-1], body + b"more", b"", b"{}", body + body):
        error = rejected(send_compressed(server, damaged, coding))
        assert error["code"] == "encoding" and coding in error["message"]


def test_a_bomb_is_not_decompressed_as_a_whole() -> None:
    bodies = {coding: compress(bytes(2**25)) for coding, compress in COMPRESS.items()}
    bodies["zstd"] = zstd_bomb()
    for coding, bomb in bodies.items():
        tracemalloc.start()
        with pytest.raises(HTTPError) as caught:
            _decompressed(bomb, coding, ServeSettings.max_body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert caught.value.status == 413 and peak < 2**23, coding


def test_zstandard_windows_above_8_mebibytes_are_rejected(server: Served) -> None:
    large = zstd.compress(b" " * 2**25, options={zstd.CompressionParameter.window_log: 25})
    rejected(send_compressed(server, large, "zstd"))


@pytest.mark.parametrize("coding", ["compress", "gzip, gzip", "x" * 500])
def test_other_content_encodings_are_rejected(server: Served, coding: str) -> None:
    answer = send_compressed(server, b"{}", coding)
    assert "zstd, br, gzip, deflate" in rejected(answer, 415)["message"]
    assert answer.headers["accept-encoding"] == "zstd, br, gzip, deflate"


def test_unknown_paths_and_methods_are_rejected(server: Served) -> None:
    assert rejected(httpx.get(f"{server.url}/v2/decisions"), 404)["code"] == "not_found"
    assert rejected(httpx.post(f"{server.url}/v1/decisions/"), 404)
    answer = httpx.get(server.url + DECISIONS)
    assert "expected POST, got GET" in rejected(answer, 405)["message"]
    assert answer.headers["allow"] == "POST"


def test_no_response_contains_file_paths(server: Served) -> None:
    here = str(Path.cwd())
    texts = [
        httpx.get(server.url + path).text
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/nowhere")
    ]
    bodies = [
        {},
        decisions_body("word " * 5000),
        decisions_body([]),
        {**decisions_body(), "include": ["prompts"]},
    ]
    texts += [httpx.post(server.url + DECISIONS, json=body).text for body in bodies]
    body = {"query": "a", "documents": ["b"]}
    texts.append(httpx.post(f"{server.url}/v1/rerank", json=body).text)
    assert "the model eliza-tiny is not a reranker" in texts[-1]
    for text in texts:
        assert ".gguf" not in text and here not in text and "site-packages" not in text
