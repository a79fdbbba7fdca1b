"""The compared processes: two versions of this package, and llama-server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.library.loading import LIBRARY_VARIABLE
from eliza_ffi.structured.schema import COMPACT

from ..together.llama_server import GREEDY, asked

MOST_TOKENS = 400
"""The most tokens of an answer."""

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Answered:
    """The figures of several simultaneous answers.

    Attributes
    ----------
    seconds : float
        The time from the first request to the last answer.
    tokens : int
        The tokens of all answers.
    passes : int
        The passes of all answers, after their prompts; 0 = not known.
    n_cut : int
        Answers that were truncated after `MOST_TOKENS` tokens.
    """

    seconds: float
    tokens: int
    passes: int = 0
    n_cut: int = 0


@dataclass(frozen=True)
class Version:
    """A version of this package.

    Attributes
    ----------
    folder : Path
        Its checkout.
    library : Path or None
        Its library; None = the library that this version finds itself.
    """

    folder: Path = ROOT
    library: Path | None = None


class Worker:
    """A process that runs one version of this package."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.n_threads = int(self._told()["threads"])

    def fill(self, way: str, prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        """Generate an answer for each prompt and its schema, all of them at once.

        Parameters
        ----------
        way
            ``"fill"`` or ``"masks"``.

        Raises
        ------
        RuntimeError
            If an answer failed.
        """
        asked = {"way": way, "prompts": prompts, "schemas": schemas, "most": MOST_TOKENS}
        assert self._process.stdin is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        told = self._told()
        if "problem" in told:
            raise RuntimeError(told["problem"])
        tokens, passes = (sum(each) for each in zip(*told["answers"], strict=True))
        return Answered(told["seconds"], tokens, passes)

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker process exited with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def worker(version: Version, model: Path, n_ctx: int, n_slots: int) -> Iterator[Worker]:
    """Start a worker, and stop it at the end of the block."""
    path = os.pathsep.join(filter(None, (str(version.folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    if version.library is not None:
        environment[LIBRARY_VARIABLE] = str(version.library)
    command = [sys.executable, str(PROGRAM), str(model), str(n_ctx), str(n_slots)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Worker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


@dataclass(frozen=True)
class ServerFiller:
    """llama-server, with its own implementation of JSON Schema.

    If llama-server was built with llguidance, it lets the model add unlimited white space, unless
    the schema forbids it. The schemas here forbid it, so all methods generate compact JSON.
    """

    port: int

    def fill(self, prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        """As `Worker.fill`."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as threads:
            said = list(threads.map(self._fill, prompts, schemas))
        tokens, cut = (sum(each) for each in zip(*said, strict=True))
        return Answered(time.perf_counter() - begin, tokens, n_cut=cut)

    def _fill(self, prompt: str, schema: Any) -> tuple[int, bool]:
        """Return the number of tokens of an answer, and whether the answer was truncated."""
        compact = {**schema, "x-guidance": COMPACT}
        body = {"prompt": prompt, "json_schema": compact, "n_predict": MOST_TOKENS, **GREEDY}
        said = asked(self.port, "/completion", body)
        return int(said["tokens_predicted"]), said["stop_type"] == "limit"
