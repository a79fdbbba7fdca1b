"""Servers of llama.cpp's RPC backend on the loopback interface, for a test."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RpcServer", "rpc_servers"]

START_LIMIT_S = 20.0


@dataclass(frozen=True)
class RpcServer:
    """A running server.

    Attributes
    ----------
    endpoint : str
        ``"127.0.0.1:PORT"``, as the option ``rpc`` takes it.
    process : subprocess.Popen
    """

    endpoint: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def rpc_servers(program: Path, count: int) -> Iterator[list[RpcServer]]:
    """Run servers, each on a free port; they end with the context."""
    with ExitStack() as running:
        servers = []
        for _ in range(count):
            server = _start(program)
            running.callback(server.kill)
            servers.append(server)
        for server in servers:
            _await(server)
        yield servers


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


def _await(server: RpcServer) -> None:
    host, port = server.endpoint.split(":")
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{server.process.args!r} did not start") from None
            time.sleep(0.05)
