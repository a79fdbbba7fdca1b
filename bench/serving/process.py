"""Start the server in its own process, with options that the command line does not have.

Also read the metrics and the resource use of that process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eliza_ffi.cli.questions import read_question_file
from eliza_ffi.model import Model
from eliza_ffi.serve.server import listen, serve
from eliza_ffi.serve.settings import QuestionSet, ServeSettings


class ServerProcess:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.address = ("127.0.0.1", int(process.stdout.readline()))  # its host and port

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
def running_server(
    model: str | None,  # the path of the model; None = the embedded model
    batching: str,  # the model's option ``batching``
    n_waiting: int,  # the most waiting requests
    deadline: float,  # the deadline of a request in seconds
    n_slots: int | None = None,  # as for `Model`; None and 0 = the default
    n_ctx: int = 0,
    n_threads: int = 0,
    kv_unified: str = "on",  # the model's option ``kv_unified``
    questions: Path | None = None,  # a file of questions, which requests name like the file
) -> Iterator[ServerProcess]:
    """Run a server in a process of its own."""
    command = [sys.executable, "-m", "bench.serving.process", "--batching", batching]
    command += ["--queue", str(n_waiting), "--deadline", str(deadline), "--ctx", str(n_ctx)]
    command += ["--threads", str(n_threads), "--kv-unified", kv_unified]
    command += [] if n_slots is None else ["--slots", str(n_slots)]
    command += [] if model is None else ["--model", model]
    command += [] if questions is None else ["--questions", str(questions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve a model on a free port and print the port.")
    parser.add_argument("--model")
    parser.add_argument("--batching", default="auto")
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--deadline", type=float, default=60.0)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--ctx", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--kv-unified", default="on")
    parser.add_argument("--questions", type=Path)
    given = parser.parse_args()
    sets = {}
    if given.questions is not None:
        name = given.questions.stem
        sets[name] = QuestionSet(name, read_question_file(given.questions), {})
    settings = ServeSettings(
        "measured", port=0, n_waiting=given.queue, deadline=given.deadline, sets=sets
    )
    options = {"batching": given.batching, "kv_unified": given.kv_unified}
    with (
        listen(settings) as listening,
        Model(
            given.model,
            n_slots=given.slots,
            n_ctx=given.ctx,
            n_threads=given.threads,
            options=options,
        ) as model,
    ):
        print(listening.getsockname()[1], flush=True)
        serve(model, settings, listening)
    return 0


if __name__ == "__main__":
    sys.exit(main())
