"""Places, deadlines and connections, each by itself."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from eliza_ffi import cli
from eliza_ffi.serve import connections
from eliza_ffi.serve.admission import Admission
from eliza_ffi.serve.patience import ClientGone, Deadline, while_wanted
from eliza_ffi.serve.refusals import Refusal
from eliza_ffi.serve.server import listen
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow


async def never_gone() -> Any:
    await asyncio.Event().wait()


def test_places_are_given_in_the_order_of_coming() -> None:
    async def scene() -> None:
        admission, order = Admission(1, 3), []
        hold = asyncio.Event()

        async def come(name: str) -> None:
            async with admission.place() as waited:
                order.append(name)
                assert waited >= 0
                await hold.wait()

        tasks = [asyncio.create_task(come(name)) for name in "abcd"]
        await asyncio.sleep(0)
        assert (admission.n_inside, admission.n_outside) == (1, 3)
        with pytest.raises(Refusal) as full:
            await come("e")
        assert full.value.status == 429
        hold.set()
        await asyncio.gather(*tasks)
        assert order == list("abcd") and admission.is_empty

    asyncio.run(scene())


def test_who_leaves_the_queue_makes_room_in_it() -> None:
    async def scene() -> None:
        admission, hold = Admission(1, 1), asyncio.Event()

        async def come() -> None:
            async with admission.place():
                await hold.wait()

        inside, waiting = asyncio.create_task(come()), asyncio.create_task(come())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (admission.n_inside, admission.n_outside) == (1, 0)
        another = asyncio.create_task(come())
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(inside, another)

    asyncio.run(scene())


def test_a_closed_door_lets_those_go_on_who_are_there() -> None:
    async def scene() -> None:
        admission = Admission(1, 1)
        async with admission.place():
            admission.close()
            with pytest.raises(Refusal) as ending:
                async with admission.place():
                    raise AssertionError("it is closed")
            assert ending.value.status == 503 and not admission.is_empty
        assert admission.is_empty

    asyncio.run(scene())


def test_retry_after_grows_with_what_requests_take() -> None:
    async def scene() -> list[int]:
        admission, told = Admission(1, 0), []
        for _ in range(4):
            async with admission.place():
                with pytest.raises(Refusal) as full:
                    async with admission.place():
                        raise AssertionError("there is no room")
                told.append(int(full.value.headers["retry-after"]))
                admission._note_seconds(20.0)
        return told

    told = asyncio.run(scene())
    assert told[0] == 1 and told == sorted(told) and told[-1] > 1


def test_work_is_cancelled_when_its_deadline_passes_and_has_ended_then() -> None:
    async def scene() -> None:
        ended = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                ended.append(True)

        with pytest.raises(Refusal) as late:
            await while_wanted(work(), never_gone, Deadline(0.05))
        assert late.value.status == 504 and ended

    asyncio.run(scene())


def test_work_is_cancelled_when_the_client_goes() -> None:
    async def gone() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.disconnect"}

    async def scene() -> None:
        with pytest.raises(ClientGone):
            await while_wanted(asyncio.sleep(60), gone, Deadline(60))

    asyncio.run(scene())


def test_what_work_raises_and_returns_is_handed_on() -> None:
    async def fail() -> None:
        raise ValueError("so")

    async def scene() -> None:
        assert await while_wanted(asyncio.sleep(0, 7), never_gone, Deadline(60)) == 7
        with pytest.raises(ValueError, match="so"):
            await while_wanted(fail(), never_gone, Deadline(60))

    asyncio.run(scene())


def test_answers_do_not_wait_for_acknowledgements() -> None:
    async def scene() -> int:
        took: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def come(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            its = writer.get_extra_info("socket")
            took.set_result(its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen(ServeSettings("tiny", port=0)) as listening:
            async with await asyncio.start_server(come, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                found = await took
                writer.close()
        return found

    assert asyncio.run(scene()) != 0


@contextmanager
def running(app: Any, counted: connections.Connections) -> Iterator[tuple[str, int]]:
    """Serve an application whose connections are counted, and return where it listens."""
    config = uvicorn.Config(
        counted.watched(app), http=counted.protocol, log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Return where an application listens whose connections are ended soon."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.3)

    async def much(_: Request) -> Response:
        return PlainTextResponse("x" * 50_000_000)

    async def slow(_: Request) -> Response:
        await asyncio.sleep(0.8)
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/much", much), Route("/slow", slow)])
    with running(app, connections.Connections(100)) as address:
        yield address


def ends_within(connection: socket.socket, seconds: float) -> bool:
    """Return whether the other side ends a connection in time, reading what it says."""
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
def test_a_connection_without_a_whole_head_is_closed(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        assert ends_within(connection, 10)


def test_a_head_that_drips_in_is_not_waited_for(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        begin = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - begin < 10:
                connection.sendall(b"X")
                time.sleep(0.02)


def test_a_slow_answer_is_no_reason_to_close(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        connection.settimeout(10)
        said = b""
        while said.count(b"done") < 2:
            part = connection.recv(4096)
            assert part, said
            said += part


def test_a_client_that_does_not_read_is_let_go(address: tuple[str, int]) -> None:
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
    """Send a request and return what comes, to the end that its answer has."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    connection.settimeout(30)
    said = b""
    while not said.endswith(end):
        part = connection.recv(4096)
        assert part, said
        said += part
    return said


def test_a_new_connection_replaces_the_longest_idle_one() -> None:
    app = PlainTextResponse("done")
    with running(app, connections.Connections(2)) as address:
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

    with running(app, connections.Connections(2)) as address, ThreadPoolExecutor() as threads:
        held = [socket.create_connection(address) for _ in range(2)]
        answers = [threads.submit(answer_of, each, "/", b"done") for each in held]
        assert all(began.acquire(timeout=30) for _ in held)
        for _ in range(3):
            with socket.create_connection(address) as another:
                said = another.makefile("rb").read()
                assert said.startswith(b"HTTP/1.1 503 ") and b'"connections_full"' in said
        end.set()
        assert all(each.result().startswith(b"HTTP/1.1 200 ") for each in answers)
        for each in held:
            each.close()
    (record,) = caplog.records
    assert "the limit of 2 connections is reached" in record.getMessage()


def test_too_few_files_are_said_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert cli.main(["serve", "--model", "nowhere.gguf", "--port", "0"]) == 1
    assert "expected a limit of at least 112 open files, got 100" in capsys.readouterr().err


@pytest.mark.parametrize(("n_files", "most"), [(112, 16), (1024, 928), (4096, 1000), (-1, 1000)])
def test_the_limit_of_connections_leaves_files_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, n_files: int, most: int
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (n_files, n_files))
    assert connections.connection_limit() == most
