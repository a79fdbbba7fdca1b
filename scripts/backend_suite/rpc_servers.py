"""Run servers of llama.cpp's RPC backend on the loopback interface, for tests."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 20.0


@dataclass(frozen=True)
class RpcServer:
    endpoint: str  # ``"127.0.0.1:PORT"``, a value of the option ``rpc``
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def rpc_servers(program: Path, count: int) -> Iterator[list[RpcServer]]:
    """Run servers on free ports until the context ends."""
    with ExitStack() as running:
        servers = []
        for _ in range(count):
            servers.append(_started(program))
            running.callback(servers[-1].kill)
        yield servers


def _started(program: Path) -> RpcServer:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    silent = subprocess.DEVNULL
    server = RpcServer(f"127.0.0.1:{port}", subprocess.Popen(command, stdout=silent, stderr=silent))
    deadline = time.monotonic() + START_LIMIT_S
    while server.process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return server
        time.sleep(0.05)
    server.kill()
    raise RuntimeError(f"{program} did not start")
