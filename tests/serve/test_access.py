"""Tests of the access rules: addresses, keys, hosts and origins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, KEYS, ORIGIN, Served, ask, decisions_body
from starlette.responses import PlainTextResponse

from eliza_ffi import cli
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.serve.guard import SECURITY_HEADERS, Guard
from eliza_ffi.serve.settings import ServeSettings, is_loopback

pytestmark = pytest.mark.slow


def guarded(**settings: Any) -> Guard:
    """Return an application that answers every request that its guard accepts."""
    return Guard(PlainTextResponse("accepted"), ServeSettings("tiny", **settings))


def status_of(app: Guard, host: str, **headers: str) -> int:
    (answer,) = ask(app, ("GET", "/v1/models", None), headers={"host": host, **headers})
    return answer.status_code


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_accepted(keyed: Served, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(keyed.url + DECISIONS, json=decisions_body(), headers=headers)
    assert answer.status_code == 200
    assert httpx.get(f"{keyed.url}/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        *(None, "Bearer", "Bearer \xff", f"Basic {KEYS[0]}"),
        *(f"Bearer {KEYS[0]}x", f"Bearer {KEYS[0][:-1]}"),
    ],
)
def test_without_a_key_only_the_page_and_health_are_served(
    keyed: Served, given: str | None
) -> None:
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    posts = ("chat/completions", "completions", "embeddings", "responses", "systemone", "decisions")
    gets = ("/v1/models", "/metrics", "/openapi.json", "/nowhere")
    for method, path in (
        *(("POST", f"/v1/{name}") for name in posts),
        *(("GET", path) for path in gets),
    ):
        answer = httpx.request(method, keyed.url + path, json={}, headers=headers)
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert KEYS[0] not in answer.text
        if path == "/v1/systemone":
            assert answer.json()["detail"]["error_type"] == "authentication_error"
    for path in ("/", "/health"):
        assert httpx.get(keyed.url + path, headers=headers).status_code == 200


def test_requests_from_an_allowed_origin_are_answered(keyed: Served) -> None:
    headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
    preflight = httpx.options(keyed.url + DECISIONS, headers=headers)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    headers = {"origin": ORIGIN, "authorization": f"Bearer {KEYS[0]}"}
    answer = httpx.post(keyed.url + DECISIONS, json=decisions_body(), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "origin" in answer.headers["vary"].lower()
    body = {"input": "Hi.", "max_output_tokens": 1, "tools": [{"type": "web_search"}]}
    answer = httpx.post(f"{keyed.url}/v1/responses", json=body, headers=headers)
    assert answer.headers["x-ignored-tools"] == "web_search"
    own = {name for name in answer.headers if name.startswith("x-")} - {*SECURITY_HEADERS}
    assert own <= {*answer.headers["access-control-expose-headers"].split(", ")}


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"{ORIGIN}.evil.example", "http://[", ""]
)
def test_requests_from_other_origins_are_rejected(
    keyed: Served, server: Served, origin: str
) -> None:
    for running in (keyed, server):
        headers = {"origin": origin, "authorization": f"Bearer {KEYS[0]}"}
        asked = {**headers, "access-control-request-method": "POST"}
        for answer in (
            httpx.post(running.url + DECISIONS, json=decisions_body(), headers=headers),
            httpx.options(running.url + DECISIONS, headers=asked),
        ):
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "wrong_origin"
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("hosts", [(), ("good.example",)])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.1"])
def test_without_a_key_foreign_hosts_are_rejected_on_every_address(
    address: str, hosts: tuple[str, ...]
) -> None:
    app = guarded(host=address, without_key=True, hosts=hosts)
    for host in ("evil.example:8080", "localhost.evil.example", "good.example.evil.example", "["):
        assert status_of(app, host) == 421
    for host in ("good.example@evil.example", ""):
        assert status_of(app, host) == 421
    for host in ("LOCALHOST:1", "127.0.0.1:80", "192.0.2.1:8080", "[2001:db8::1]", "[::1]:8080"):
        assert status_of(app, host) == 200
    assert status_of(app, "good.example") == (200 if hosts else 421)


def test_allowed_hosts_are_checked_in_addition_to_a_key() -> None:
    app = guarded(keys=("key",), hosts=("good.example",))
    assert status_of(app, "evil.example", authorization="Bearer key") == 421
    assert status_of(app, "GOOD.example.:80", authorization="Bearer key") == 200
    assert status_of(app, "good.example") == 401
    app = guarded(keys=("key",))
    assert status_of(app, "any.example", authorization="Bearer key") == 200


def test_the_servers_own_address_is_an_accepted_host_and_origin() -> None:
    app = guarded(host="127.0.0.2")
    assert status_of(app, "127.0.0.2:8080", origin="http://127.0.0.2:8080") == 200
    assert status_of(app, "127.0.0.2:8080", origin="http://127.0.0.2:8081") == 403


@pytest.mark.parametrize(
    ("setting", "given", "normal"),
    [
        ("hosts", "good.example", "good.example"),
        ("hosts", "GOOD.Example.", "good.example"),
        ("hosts", " my_host ", "my_host"),
        ("hosts", "192.0.2.1", "192.0.2.1"),
        ("cors_origins", "https://b.example", "https://b.example"),
        ("cors_origins", "https://b.example/", "https://b.example"),
        ("cors_origins", "HTTPS://B.example:443", "https://b.example"),
        ("cors_origins", "http://localhost:3000", "http://localhost:3000"),
        ("cors_origins", "http://[::1]:80", "http://[::1]"),
        ("cors_origins", "chrome-extension://abc", "chrome-extension://abc"),
        ("cors_origins", "*", "*"),
    ],
)
def test_hosts_and_origins_are_normalized(setting: str, given: str, normal: str) -> None:
    settings: Any = {setting: (given,)}
    assert getattr(ServeSettings("tiny", **settings), setting) == (normal,)


@pytest.mark.parametrize(
    ("option", "values", "expected"),
    [
        (
            "--allowed-host",
            (
                *("good.example:80", "http://good.example", "good.example/", "*", "*.example", ""),
                "b\xfccher.example",
            ),
            "a host name without scheme, port or path",
        ),
        (
            "--cors-origin",
            (
                *("b.example", "https://b.example/page", "https://somebody@b.example", "null", ""),
                *("https://b.example:99999", "https://*.example"),
            ),
            "an origin such as",
        ),
    ],
)
def test_malformed_hosts_and_origins_are_rejected_at_the_start(
    option: str, values: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        assert cli.main(["serve", "--model", "nowhere.gguf", option, value]) == 2
        message = capsys.readouterr().err
        assert f"{option}: expected {expected}" in message and repr(value) in message


def test_every_response_has_the_security_headers(server: Served) -> None:
    for answer in (
        httpx.get(f"{server.url}/"),
        httpx.get(f"{server.url}/health"),
        httpx.get(f"{server.url}/nowhere"),
        httpx.post(server.url + DECISIONS, json=decisions_body()),
        httpx.get(server.url, headers={"host": "evil.example"}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert len(answer.headers["x-request-id"]) == 32
        assert "server" not in answer.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_a_reachable_address_requires_a_key_or_without_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidArgumentError, match="--api-key-file, or --without-key"):
        ServeSettings("tiny", host=host)
    assert ServeSettings("tiny", host=host, keys=("key",)).host == host
    assert ServeSettings("tiny", host=host, without_key=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_requires_no_key(host: str) -> None:
    assert is_loopback(host) and ServeSettings("tiny", host=host).host == host


@pytest.mark.parametrize("keys", [("",), ("two words",)])
def test_keys_are_printable_ascii(keys: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is empty|printable ASCII"):
        ServeSettings("tiny", keys=keys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--without-key"),
        (["--port", "65536"], "0 to 65535"),
        (["--queue", "-1"], "a whole number of 0 or more"),
        (["--deadline", "0"], "at most 86400"),
        (["--deadline", "nan"], "at most 86400"),
        (["--n-slots", "0"], "--n-slots: expected 1 or more"),
        (["--max-body", "0"], "--max-body must be above 0 and at most 1024 MiB, got"),
        (["--max-body", "1025"], "--max-body must be above 0 and at most 1024 MiB, got"),
        (["--max-options", "1"], "--max-options must be 2 to 100000, got 1"),
        (["--max-options", "100001"], "--max-options must be 2 to 100000, got 100001"),
        (["--max-tools", "-1"], "--max-tools: '-1' is not a whole number of 0 or more"),
        (["--max-tokens", str(2**31)], "--max-tokens"),
        (["--max-tokens", "-1"], "--max-tokens"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "0"], "top_p"),
        (["--min-p", "2"], "min_p"),
        (["--top-k", "-2"], "top_k"),
        (["--then-below", "0.5"], "--then-below requires --then"),
        (["--then", "x", "--learn", "x.labels.csv"], "--then cannot be combined with --learn"),
        (["--then", "x", "--abstain", "risk"], "--then cannot be combined with --abstain"),
    ],
)
def test_wrong_options_are_rejected_before_the_model_is_loaded(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", "--model", "nowhere.gguf", *options]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_key_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys"
    path.write_text("\n \n# the keys\n", encoding="utf-8")
    assert cli.main(["serve", "--api-key-file", str(path)]) == 2
    assert "contains no API key" in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    # Simulate an installation without uvicorn.
    script = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'uvicorn' else found(name)\n"
        "from eliza_ffi.cli import main\n"
        "sys.exit(main(['serve']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 1 and "pip install 'eliza-ffi[serve]'" in done.stderr


@pytest.mark.parametrize(
    ("taken_away", "missing"),
    [
        ("sys.modules['uvicorn.protocols.http.h11_impl'] = None", "H11Protocol"),
        ("import uvicorn; del uvicorn.Server.on_tick", "Server.on_tick"),
    ],
)
def test_an_unsupported_uvicorn_is_named(taken_away: str, missing: str) -> None:
    script = f"import sys\n{taken_away}\nfrom eliza_ffi.cli import main\nsys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"expected a uvicorn that has {missing}, got uvicorn " in done.stderr
