"""Tests of a server's start: what it answers while it loads the model, and where it listens."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, KEYS, Served, ask, decisions_body, rejected

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.serve.server import answering_while_loading, listen
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

READY, LIVE = ("/health", "/healthz", "/readyz"), "/livez"


def test_requests_are_rejected_at_once_while_the_model_is_loaded() -> None:
    settings = ServeSettings("tiny", port=0, keys=("secret",))
    with listen(settings) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with answering_while_loading(listening, settings):
            for path in READY:
                answer = httpx.get(url + path)
                assert rejected(answer, 503)["code"] == "loading"
                assert answer.headers["retry-after"] == "1"
                assert len(answer.headers["x-request-id"]) == 32
            assert httpx.get(url + LIVE).status_code == 200
            assert httpx.get(f"{url}/metrics").status_code == 401
            key = {"authorization": "Bearer secret"}
            answer = httpx.post(url + DECISIONS, json=decisions_body(), headers=key)
            assert rejected(answer, 503)["code"] == "loading"
        # The socket still accepts connections, for the server itself.
        socket.create_connection(listening.getsockname()).close()


def test_an_error_while_loading_ends_the_answers() -> None:
    settings = ServeSettings("tiny", port=0)
    with listen(settings) as listening:
        address = listening.getsockname()
        with (
            pytest.raises(InvalidArgumentError, match="no such model"),
            answering_while_loading(listening, settings),
        ):
            raise InvalidArgumentError("no such model")
    with pytest.raises(ConnectionError):
        socket.create_connection(address)


def test_all_names_of_health_checks_are_answered_without_a_key(keyed: Served) -> None:
    for path in (*READY, LIVE):
        answer = httpx.get(keyed.url + path)
        assert answer.status_code == 200 and answer.json() == {"status": "ok"}


@pytest.mark.skipif(sys.platform == "win32", reason="Python has no Unix sockets there")
def test_a_server_listens_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "eliza.sock"
    settings = ServeSettings("tiny", host=str(path))  # needs no key
    for _ in range(2):  # the file of a server that has ended is replaced
        with listen(settings) as listening, answering_while_loading(listening, settings):
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, base_url="http://localhost") as client:
                assert client.get(LIVE).status_code == 200
            with pytest.raises(OSError, match="in use"):
                listen(settings)
    path.unlink()
    path.write_text("not a socket")
    with pytest.raises(OSError, match="in use"):
        listen(settings)
    assert path.read_text() == "not a socket"


@pytest.mark.parametrize("header", ["api-key", "x-api-key", "X-Api-Key"])
def test_a_key_may_be_in_the_headers_of_other_services(keyed: Served, header: str) -> None:
    for key, status in ((KEYS[1], 200), ("wrong", 401), ("", 401)):
        answer = httpx.get(f"{keyed.url}/v1/models", headers={header: key})
        assert answer.status_code == status


def test_the_log_has_the_names_of_keys(
    app_of: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "eliza_ffi.serve")
    path = tmp_path / "keys"
    path.write_text("# the keys\nalice  key-of-alice\nkey-of-nobody\nthe bot key-of-bot\n")
    app = app_of("--api-key-file", str(path), "--log-requests")
    for key, name in (("key-of-alice", "alice"), ("key-of-bot", "the bot"), ("key-of-nobody", "")):
        caplog.clear()
        (answer,) = ask(app, ("GET", "/v1/models", None), headers={"x-api-key": key})
        assert answer.status_code == 200
        (line,) = (record.getMessage() for record in caplog.records)
        assert line.endswith(f" ms, key {name}" if name else " ms") and "key-of" not in line


def test_the_limit_of_a_body_can_be_set(app_of: Callable[..., Any]) -> None:
    app = app_of("--max-body", "2")
    fits, too_long = ({**decisions_body(), "model": "x" * n} for n in (3 * 2**19, 2**21))
    answers = ask(app, ("POST", DECISIONS, fits), ("POST", DECISIONS, too_long))
    assert answers[0].status_code == 200
    assert "at most 2097152 bytes" in rejected(answers[1], 413)["message"]
