"""Models are split across RPC servers on the loopback interface.

Most tests need ``make build BACKEND=rpc``.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from backend_suite.rpc_servers import RpcServer, rpc_servers
from checkout import ROOT

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError, NativeFaultError
from eliza_ffi.library.loading import Library, library_file_name
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

BUILD = ROOT / "build" / "rpc"
CHOICES = ["SEND_MAIL", "SEND_NOTE", "READ_MAIL"]

needs_rpc = pytest.mark.skipif(
    not (BUILD / "rpc-server").is_file(), reason="missing: run 'make build BACKEND=rpc'"
)


@pytest.fixture(scope="session")
def rpc_library() -> Library:
    return Library(BUILD / library_file_name())


@pytest.fixture
def servers() -> Iterator[list[RpcServer]]:
    with rpc_servers(BUILD / "rpc-server", 2) as running:
        yield running


def on_servers(library: Library, *endpoints: str) -> Model:
    options = {"rpc": ",".join(endpoints)}
    return Model(default_model_path(), library=library, n_threads=1, options=options)


@needs_rpc
def test_a_model_split_across_two_servers_gives_the_same_results_as_the_cpu(
    rpc_library: Library, servers: list[RpcServer], tiny_model: Model
) -> None:
    with on_servers(rpc_library, *(server.endpoint for server in servers)) as model:
        placed = model.describe()["model"]["placement"]
        assert [part["description"] for part in placed] == [each.endpoint for each in servers]
        assert sum(part["layers"] for part in placed) == model.describe()["model"]["n_layer"] + 1
        for prompt in ("Next: ", "The user asks to read a note. Action: "):
            expected = tiny_model.choose(prompt, CHOICES, probabilities=True)
            choice = model.choose(prompt, CHOICES, probabilities=True)
            assert choice.value == expected.value
            assert choice.probabilities == pytest.approx(expected.probabilities, abs=0.02)
        ours = model.generate("Once upon a time", max_tokens=8).tokens
        assert ours == tiny_model.generate("Once upon a time", max_tokens=8).tokens


@needs_rpc
@pytest.mark.parametrize("victim", [0, 1])
def test_a_server_that_dies_between_two_passes_raises_an_error(
    rpc_library: Library, servers: list[RpcServer], victim: int
) -> None:
    with on_servers(rpc_library, *(server.endpoint for server in servers)) as model:
        model.choose("Next: ", CHOICES)
        servers[victim].kill()
        for _ in range(2):  # the model stays unusable
            with pytest.raises(
                NativeFaultError, match=f"RPC server {servers[victim].endpoint}: .+"
            ):
                model.choose("And then: ", CHOICES)
    with pytest.raises(NativeFaultError, match="restart this program to use it again"):
        on_servers(rpc_library, servers[victim].endpoint)
    with on_servers(rpc_library, servers[1 - victim].endpoint) as model:
        assert model.choose("Next: ", CHOICES).value in CHOICES


@needs_rpc
def test_a_server_that_dies_during_a_pass_raises_an_error(
    rpc_library: Library, servers: list[RpcServer]
) -> None:
    with on_servers(rpc_library, *(server.endpoint for server in servers)) as model:
        killer = threading.Timer(0.3, servers[1].kill)
        killer.start()
        deadline = time.monotonic() + 30
        with pytest.raises(NativeFaultError, match=f"RPC server {servers[1].endpoint}: "):
            while time.monotonic() < deadline:
                model.generate("Once upon a time", max_tokens=400)
        killer.join()


@needs_rpc
def test_a_prompt_is_not_saved_after_a_server_was_lost(
    rpc_library: Library, servers: list[RpcServer], tmp_path: Path
) -> None:
    endpoints = [server.endpoint for server in servers]
    with (
        on_servers(rpc_library, *endpoints) as model,
        closing(model.binding.open(model.session.ctx, StreamConfig())) as stream,
    ):
        model.binding.prefill(stream, model.tokenize("Next: "))
        servers[0].kill()
        with pytest.raises(NativeFaultError, match=f"RPC server {endpoints[0]}: "):
            model.binding.save_slot(stream, tmp_path / "slot")
        assert not (tmp_path / "slot").exists()


@needs_rpc
def test_an_unreachable_server_raises_an_error_each_time(
    rpc_library: Library, servers: list[RpcServer]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no program listens on this port
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        for _ in range(2):
            with pytest.raises(
                NativeFaultError,
                match=rf"{endpoint}: cannot be reached: Connection refused \(status",
            ):
                on_servers(rpc_library, endpoint)
    with pytest.raises(NativeFaultError, match="cannot be looked up"):
        on_servers(rpc_library, "host.invalid:50052")


@needs_rpc
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answered with .* bytes, expected 28"),
        ((28).to_bytes(8, "little") + bytes([9, 1]) + bytes(26), "speaks version 9.1"),
    ],
)
def test_another_program_in_place_of_a_server_raises_an_error(
    rpc_library: Library, answer: bytes, reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                # Read the whole greeting, because unread bytes would reset the connection.
                connection.recv(1 + 8 + 24, socket.MSG_WAITALL)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(NativeFaultError, match=reason):
            on_servers(rpc_library, f"127.0.0.1:{listening.getsockname()[1]}")
        server.join()


def test_device_none_uses_only_the_cpu_and_an_unknown_device_is_rejected(library: Library) -> None:
    with Model(default_model_path(), library=library, options={"device": "none"}) as model:
        placed = model.describe()["model"]["placement"]
        assert [part["device"] for part in placed] == ["CPU"]
    with pytest.raises(ElizaError, match='unknown device "GPU9"; known devices: auto, none, CPU'):
        Model(default_model_path(), library=library, options={"device": "GPU9"})
