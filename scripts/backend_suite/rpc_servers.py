"""Run servers of llama.cpp's RPC backend on the loopback interface, for tests."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 20.0
START_ATTEMPTS = 3


@dataclass(frozen=True)
class RpcServer:
    """A running server."""

    endpoint: str  # ``"127.0.0.1:PORT"``, a value of the option ``rpc``
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill the server, to simulate a crash."""
        self.process.kill()
        self.process.wait()


@contextmanager
def rpc_servers(program: Path, count: int) -> Iterator[list[RpcServer]]:
    """Run servers on free ports until the context ends."""
    with ExitStack() as running:
        servers = []
        for _ in range(count):
            server = _started(program)
            running.callback(server.kill)
            servers.append(server)
        yield servers


def _started(program: Path) -> RpcServer:
    # Another program may take the free port before the server does, so try several times.
    for _ in range(START_ATTEMPTS):
        server = _start(program)
        if _answers(server):
            return server
        server.kill()
    raise RuntimeError(f"{program} did not start in {START_ATTEMPTS} attempts")


def _start(program: Path) -> RpcServer:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "--host", "127.0.0.1", "--port", str(port), "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return RpcServer(f"127.0.0.1:{port}", process)


def _answers(server: RpcServer) -> bool:
    host, port = server.endpoint.split(":")
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        else:
            return server.process.poll() is None
