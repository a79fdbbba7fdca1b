"""Tests of a server under load: waiting, rejected and cancelled requests, and bad clients."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, ROUNDING, Served, choice, decisions_body, served, slow_body

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

RUNNING = 'eliza_queue_requests{state="running"}'
WAITING = 'eliza_queue_requests{state="waiting"}'
GONE = 'eliza_requests_total{code="499",endpoint="/v1/decisions"}'


def head_of(body: bytes) -> bytes:
    return (
        f"POST {DECISIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


@pytest.fixture(scope="module")
def narrow(library: Library) -> Iterator[Served]:
    """Return a server with one slot, where two requests run and one can wait."""
    with served("--n-slots", "1", "--queue", "1") as running:
        yield running


def post(server: Served, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + DECISIONS, json=body, timeout=120)


def test_requests_beyond_the_queue_are_rejected_with_retry_after(narrow: Served) -> None:
    with ThreadPoolExecutor() as threads:
        slow = [threads.submit(post, narrow, slow_body(2)) for _ in range(2)]
        narrow.wait_for(RUNNING, 2)
        slow.append(threads.submit(post, narrow, slow_body(2)))
        narrow.wait_for(WAITING, 1)
        refused = post(narrow, decisions_body())
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "the queue is full: 1 requests are waiting" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert httpx.get(f"{narrow.url}/health").status_code == 200
        assert [each.result().status_code for each in slow] == [200, 200, 200]
    assert post(narrow, decisions_body()).status_code == 200


def test_a_client_that_disconnects_ends_its_forward_passes(narrow: Served) -> None:
    narrow.wait_until_idle()
    before = narrow.figures().get(GONE, 0.0)
    body = json.dumps(slow_body(60)).encode()  # half a minute of work
    with socket.create_connection(narrow.address) as connection:
        connection.sendall(head_of(body) + body)
        narrow.wait_for(RUNNING, 1)
        time.sleep(0.3)  # its forward passes are running
    begin = time.monotonic()
    narrow.wait_until_idle()
    assert time.monotonic() - begin < 10
    assert narrow.figures()[GONE] == before + 1
    passes = narrow.figures()["eliza_passes_total"]
    time.sleep(0.5)
    assert narrow.figures()["eliza_passes_total"] == passes
    assert post(narrow, decisions_body()).status_code == 200


def test_a_client_that_disconnects_leaves_the_queue(narrow: Served) -> None:
    narrow.wait_until_idle()
    body = json.dumps(slow_body(60)).encode()
    connections = []
    for name, least in ((RUNNING, 1), (RUNNING, 2), (WAITING, 1)):
        connections.append(socket.create_connection(narrow.address))
        connections[-1].sendall(head_of(body) + body)
        narrow.wait_for(name, least)
    for connection in reversed(connections):
        connection.close()
    narrow.wait_until_idle(20)
    assert post(narrow, decisions_body()).status_code == 200


def test_a_deadline_ends_longer_requests(library: Library) -> None:
    with served("--deadline", "0.7") as server:
        begin = time.monotonic()
        answer = post(server, slow_body(60))
        assert answer.status_code == 504 and time.monotonic() - begin < 10
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        assert "0.7 s" in answer.json()["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"
        server.wait_until_idle(10)
        with socket.create_connection(server.address) as slow:  # the body is never sent
            slow.sendall(head_of(b"{}"))
            assert b"504" in slow.recv(4096)
        assert post(server, decisions_body()).status_code == 200


def test_sigterm_finishes_running_requests_and_rejects_new_ones(library: Library) -> None:
    with (
        served("--n-slots", "1") as server,
        server.client() as client,
        ThreadPoolExecutor() as threads,
    ):
        assert client.get("/health").status_code == 200  # and stays connected
        slow = [threads.submit(post, server, slow_body(2)) for _ in range(3)]
        server.wait_for(WAITING, 1)
        server.process.send_signal(signal.SIGTERM)
        while client.get("/health").status_code == 200:
            pass
        refused = client.post(DECISIONS, json=decisions_body())
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert refused.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 503
        assert client.get("/v1/models").status_code == 200
        assert [each.result().status_code for each in slow] == [200, 200, 200]
        assert server.process.wait(30) == 0 and server.logged() == ""
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url)


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_second_signal_closes_connections_without_a_response(
    library: Library, sig: signal.Signals, code: int
) -> None:
    with (
        served("--n-slots", "1") as server,
        server.client() as client,
        ThreadPoolExecutor() as threads,
    ):
        client.get("/health")
        slow = [threads.submit(post, server, slow_body(100)) for _ in range(3)]  # minutes of work
        server.wait_for(WAITING, 1)
        server.process.send_signal(sig)
        while client.get("/health").status_code == 200:
            pass
        assert server.process.poll() is None
        server.process.send_signal(sig)
        assert server.process.wait(30) == code
        for each in slow:
            assert isinstance(each.exception(), httpx.NetworkError | httpx.RemoteProtocolError)
        assert server.logged() == ""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_idle_connections_over_the_file_limit_do_not_stop_the_server(library: Library) -> None:
    n_files = 256
    with served(n_files=n_files) as server, ExitStack() as idle:
        for _ in range(2 * n_files):
            idle.enter_context(socket.create_connection(server.address))
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert server.n_files() < n_files
        assert post(server, decisions_body()).status_code == 200
        server.stop()
        (line,) = server.logged().splitlines()
        assert "limit of 160 connections is reached" in line


def test_requests_that_fill_the_context_leave_the_log_empty(library: Library) -> None:
    def body(i: int) -> dict[str, Any]:
        asked = {**choice("billing", "support", "sales"), "instructions": f"Which team, {i}?"}
        return decisions_body(f"Mail {i % 4}: " + "word " * 375, asked)

    with served("--n-ctx", "512") as server, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: post(server, body(i)), range(32)))
        assert [each.status_code for each in answers] == [200] * len(answers)
        server.stop()
        assert server.logged() == ""


def test_bad_requests_and_clients_do_not_change_other_answers(server: Served) -> None:
    inputs = [f"The parcel of order {i} has not come." for i in range(12)]
    expected = [post(server, decisions_body(each)).json()["answers"] for each in inputs]
    leaving = json.dumps(slow_body(30)).encode()

    def send_bad(i: int) -> None:
        if i % 3 == 0:
            assert post(server, {"input": "no questions"}).status_code == 400
        elif i % 3 == 1:
            assert post(server, decisions_body("word " * 5000)).status_code == 400
        else:
            with socket.create_connection(server.address) as connection:
                connection.sendall(head_of(leaving) + leaving)
                time.sleep(0.2)

    with ThreadPoolExecutor(16) as threads:
        bad = [threads.submit(send_bad, i) for i in range(12)]
        answers = list(threads.map(lambda each: post(server, decisions_body(each)), inputs))
        assert all(each.result() is None for each in bad)
    for answer, (one,) in zip(answers, expected, strict=True):
        (other,) = answer.json()["answers"]
        assert other["choice"] == one["choice"]
        assert other["confidence"] == pytest.approx(one["confidence"], abs=ROUNDING)
    server.wait_until_idle()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Content-Length: 6\r\n\r\n{}",
        b"POST /v1/decisions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    ],
)
def test_malformed_http_is_rejected_and_the_connection_closed(server: Served, sent: bytes) -> None:
    with socket.create_connection(server.address, timeout=30) as connection:
        received = b""
        with suppress(OSError):  # the server may close it before everything is sent
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(4096):
                received += part
    assert not received.startswith(b"HTTP/1.1 2") and b" 500 " not in received
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    bodies = [
        json.dumps(decisions_body("Hi.", choice("a", "a", name=name))).encode() for name in "xy"
    ]
    ask = b"".join(head_of(body) + body for body in bodies)
    with socket.create_connection(server.address, timeout=30) as connection:
        connection.sendall(ask + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'{"status":"ok"}' not in received:
            received += connection.recv(4096)
    assert received.count(b"HTTP/1.1 400") == 2  # two options have the same value
    assert received.index(b"question 'x'") < received.index(b"question 'y'")
