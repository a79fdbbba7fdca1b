"""Run ``eliza-ffi serve`` in its own process, and read the metrics of that process."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ServerProcess:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        ready = re.search(r"http://(.*?):(\d+)", process.stdout.readline())
        if ready is None:
            raise RuntimeError("eliza-ffi serve did not start")
        self.process = process
        self.address = ready[1], int(ready[2])  # its host and port

    def figures(self) -> dict[str, float]:
        """Return its metrics from ``/metrics``."""
        host, port = self.address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def holds(self) -> dict[str, int]:
        """Return its memory in MiB, and its numbers of open files and threads.

        Empty on systems other than Linux.
        """
        folder = Path(f"/proc/{self.process.pid}")
        if not folder.is_dir():
            return {}
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return {
            "MiB": int(status["VmRSS"].split()[0]) // 1024,
            "files": len(list((folder / "fd").iterdir())),
            "threads": int(status["Threads"]),
        }


@contextmanager
def running_server(model: str | Path | None, *options: object) -> Iterator[ServerProcess]:
    """Run a server of a model, or of the embedded model, with more options of its command line."""
    command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0", *map(str, options)]
    command += [] if model is None else ["--model", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.terminate()
