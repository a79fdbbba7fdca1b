"""Tests of admission, deadlines and connections, each separately."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from eliza_ffi import cli
from eliza_ffi.serve import server
from eliza_ffi.serve.admission import Admission
from eliza_ffi.serve.app import admission_for
from eliza_ffi.serve.deadline import Deadline, while_wanted
from eliza_ffi.serve.http_error import HTTPError
from eliza_ffi.serve.server import listen
from eliza_ffi.serve.settings import ServeSettings

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


async def never_gone() -> Any:
    await asyncio.Event().wait()


class Requests:
    """Requests that run until `end` is set; `begun` has the names of those that began."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.begun: list[str] = []
        self.end = asyncio.Event()

    async def run(self, name: str) -> None:
        async with self.admission.place() as place:
            self.begun.append(name)
            assert place.waited >= 0
            await self.end.wait()

    async def start(self, names: str) -> dict[str, asyncio.Task[None]]:
        tasks = {name: asyncio.create_task(self.run(name)) for name in names}
        await asyncio.sleep(0)
        return tasks


async def test_requests_run_in_order_of_arrival() -> None:
    admission = Admission(1, 3)
    requests = Requests(admission)
    tasks = await requests.start("abcd")
    assert (admission.n_running, admission.n_waiting) == (1, 3)
    with pytest.raises(HTTPError) as full:
        await requests.run("e")
    assert full.value.status == 429
    tasks["d"].cancel()
    await asyncio.wait([tasks.pop("d")])
    tasks |= await requests.start("f")  # in the place of `d`
    requests.end.set()
    await asyncio.gather(*tasks.values())
    assert requests.begun == list("abcf") and admission.is_empty


async def test_neither_decisions_nor_other_requests_starve() -> None:
    """Of 40 requests that arrive in turns, both kinds begin at the same pace, each in order."""
    admission, begun = Admission(2, 40, 1), list[tuple[str, int]]()

    async def run_request(kind: str, number: int) -> None:
        async with admission.place(kind == "decision"):
            begun.append((kind, number))
            for _ in range(3):
                await asyncio.sleep(0)

    kinds = ("decision", "chat")
    await asyncio.gather(*(run_request(kind, i) for i in range(20) for kind in kinds))
    for kind in kinds:
        assert [number for each, number in begun if each == kind] == list(range(20))
        assert sum(each == kind for each, _ in begun[:20]) in range(7, 14)


async def test_a_place_given_to_a_cancelled_request_is_given_to_the_next() -> None:
    """Two requests are cancelled just before and just after a place becomes free for them."""
    requests = Requests(Admission(1, 9))
    tasks = await requests.start("abcd")
    requests.end.set()
    tasks["b"].cancel()
    await asyncio.sleep(0)  # `a` ends and lets `c` in; neither `b` nor `c` has run
    tasks["c"].cancel()
    await asyncio.wait(tasks.values(), timeout=9)
    assert requests.begun == ["a", "d"] and requests.admission.is_empty
    assert tasks["b"].cancelled() and tasks["c"].cancelled()


async def test_retry_after_grows_with_the_duration_of_requests() -> None:
    admission, seconds = Admission(1, 0), []
    for _ in range(4):
        async with admission.place():
            with pytest.raises(HTTPError) as full:
                await Requests(admission).run("a")
            seconds.append(int(full.value.headers["retry-after"]))
            admission._note_seconds(20.0)
    assert seconds[0] == 1 and seconds == sorted(seconds) and seconds[-1] > 1
    admission._note_seconds(1e9)
    async with admission.place():
        with pytest.raises(HTTPError) as full:
            await Requests(admission).run("a")
    assert full.value.headers["retry-after"] == "60"


@pytest.mark.parametrize(("n_decided", "n_places"), [(8, 12), (2, 3), (1, 2)])
async def test_further_requests_are_prepared_while_others_run(
    n_decided: int, n_places: int
) -> None:
    session = SimpleNamespace(decisions_at_once=lambda _: n_decided, at_once=lambda _: 8)
    model: Any = SimpleNamespace(session=session)
    admission = admission_for(model, ServeSettings("m"))
    async with AsyncExitStack() as running:
        for _ in range(n_places):
            await running.enter_async_context(admission.place(decides=True))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(running.enter_async_context(admission.place(decides=True)), 0.01)


async def test_work_is_cancelled_and_has_ended_when_its_deadline_passes() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    with pytest.raises(HTTPError) as late:
        await while_wanted(work(), never_gone, Deadline(0.05))
    assert late.value.status == 504 and ended


async def test_accepted_connections_have_tcp_nodelay() -> None:
    option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        option.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen(ServeSettings("tiny", port=0)) as listening:
        async with await asyncio.start_server(accept, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            assert await option != 0
            writer.close()


@contextmanager
def running(app: Any, counted: server.Connections) -> Iterator[tuple[str, int]]:
    """Serve an application with counted connections, and yield its address."""
    config = uvicorn.Config(
        counted.watched(app), http=counted.protocol, log_config=None, lifespan="off", ws="none"
    )
    uvicorn_server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            uvicorn_server.should_exit = True
            thread.join(30)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Return the address of an application with short time limits for connections."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.3)

    async def much(_: Request) -> Response:
        return PlainTextResponse("x" * 50_000_000)

    async def slow(_: Request) -> Response:
        await asyncio.sleep(0.8)
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/much", much), Route("/slow", slow)])
    with running(app, server.Connections(100)) as address:
        yield address


def ends_within(connection: socket.socket, seconds: float) -> bool:
    """Return whether the server closes a connection in time; read everything it sends."""
    connection.settimeout(seconds)
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("sent", [b"", b"GET /slow HTTP/1.1\r\nHost: a\r\n"])
def test_a_connection_without_a_complete_head_is_closed(
    address: tuple[str, int], sent: bytes
) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        assert ends_within(connection, 10)
    with socket.create_connection(address) as connection, pytest.raises(ConnectionError):
        end = time.monotonic() + 10
        while time.monotonic() < end:  # the head is sent too slowly
            connection.sendall(b"X")
            time.sleep(0.02)


def test_a_slow_response_does_not_close_the_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        connection.settimeout(10)
        received = b""
        while received.count(b"done") < 2:
            part = connection.recv(4096)
            assert part, received
            received += part


def test_a_client_that_does_not_read_is_disconnected(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(1.5)
        connection.settimeout(10)
        n_bytes = 0
        try:
            while part := connection.recv(2**20):
                n_bytes += len(part)
        except ConnectionError:
            pass
        assert n_bytes < 50_000_000


def answer_of(connection: socket.socket, path: str, end: bytes) -> bytes:
    """Send a request and return the response, which ends with `end`."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    connection.settimeout(30)
    received = b""
    while not received.endswith(end):
        part = connection.recv(4096)
        assert part, received
        received += part
    return received


def test_a_new_connection_replaces_the_longest_idle_connection() -> None:
    app = PlainTextResponse("done")
    with running(app, server.Connections(2)) as address:
        first = socket.create_connection(address)
        answer_of(first, "/", b"done")
        with first, socket.create_connection(address) as second:
            answer_of(second, "/", b"done")
            with socket.create_connection(address) as third:
                answer_of(third, "/", b"done")
                assert ends_within(first, 10)
                answer_of(second, "/", b"done")


def test_connections_with_requests_are_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    began, end = threading.Semaphore(0), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        began.release()
        await asyncio.to_thread(end.wait, 30)
        await PlainTextResponse("done")(scope, receive, send)

    with running(app, server.Connections(2)) as address, ThreadPoolExecutor() as threads:
        held = [socket.create_connection(address) for _ in range(2)]
        answers = [threads.submit(answer_of, each, "/", b"done") for each in held]
        assert all(began.acquire(timeout=30) for _ in held)
        for _ in range(3):
            with socket.create_connection(address) as another:
                received = another.makefile("rb").read()
                assert received.startswith(b"HTTP/1.1 503 ") and b'"connections_full"' in received
        end.set()
        assert all(each.result().startswith(b"HTTP/1.1 200 ") for each in answers)
        for each in held:
            each.close()
    (record,) = caplog.records
    assert "the limit of 2 connections is reached" in record.getMessage()


def test_a_low_file_limit_is_reported_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert cli.main(["serve", "--model", "nowhere.gguf", "--port", "0"]) == 1
    assert "expected a limit of at least 112 open files, got 100" in capsys.readouterr().err


@pytest.mark.parametrize(("n_files", "most"), [(112, 16), (1024, 928), (4096, 1000), (-1, 1000)])
def test_the_connection_limit_reserves_files_for_other_uses(
    monkeypatch: pytest.MonkeyPatch, n_files: int, most: int
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (n_files, n_files))
    assert server.connection_limit() == most


async def test_after_close_running_requests_finish_and_new_ones_are_rejected() -> None:
    admission = Admission(1, 1)
    async with admission.place():
        admission.close()
        with pytest.raises(HTTPError) as rejected:
            await Requests(admission).run("a")
        assert rejected.value.status == 503 and not admission.is_empty
    assert admission.is_empty


async def test_work_is_cancelled_when_the_client_disconnects() -> None:
    async def gone() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await while_wanted(asyncio.sleep(60), gone, Deadline(60))
