"""The processes whose answers are compared: two versions of this package, and llama-server."""

from __future__ import annotations

import http.client
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
from typing import Any, Protocol

from eliza_ffi.library.loading import LIBRARY_VARIABLE
from eliza_ffi.structured.schema import COMPACT

from ..together.llama_server import GREEDY, HOST

__all__ = ["MOST_TOKENS", "Answered", "Filler", "ServerFiller", "Version", "Worker", "worker"]

MOST_TOKENS = 400
"""Of an answer."""

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Answered:
    """Answers that were asked for together.

    Attributes
    ----------
    seconds : float
        From the first question to the last answer.
    tokens : int
        Of all answers.
    passes : int
        Of all answers, behind their prompts; 0 if that is not known.
    n_cut : int
        Answers that `MOST_TOKENS` ended.
    """

    seconds: float
    tokens: int
    passes: int = 0
    n_cut: int = 0


class Filler(Protocol):
    """Something that answers schemas."""

    def fill(self, prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        """Answer each prompt by its schema, all of them at once.

        Raises
        ------
        RuntimeError
            If an answer failed.
        """


@dataclass(frozen=True)
class Version:
    """A version of this package.

    Attributes
    ----------
    folder : Path
        Its checkout.
    library : Path or None
        Its library; None = the one that it finds by itself.
    """

    folder: Path = ROOT
    library: Path | None = None


class Worker:
    """A process that answers with one version of this package.

    Parameters
    ----------
    process
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.n_threads = int(self._told()["threads"])

    def fill(self, way: str, prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        """As `Filler.fill`; `way` is ``"fill"`` or ``"masks"``."""
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
            raise RuntimeError(f"the process ended with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def worker(version: Version, model: Path, n_ctx: int, n_slots: int) -> Iterator[Worker]:
    """Run a worker for a while."""
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
    """llama-server, which has its own way with a schema.

    A build with llguidance leaves white space to the model, without end, unless the schema says
    otherwise. It does: JSON without white space is what all write.

    Attributes
    ----------
    port : int
    """

    port: int

    def fill(self, prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        begin = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as threads:
            said = list(threads.map(self._fill, prompts, schemas))
        tokens, cut = (sum(each) for each in zip(*said, strict=True))
        return Answered(time.perf_counter() - begin, tokens, n_cut=cut)

    def _fill(self, prompt: str, schema: Any) -> tuple[int, bool]:
        """Return how many tokens an answer has, and whether the limit ended it."""
        compact = {**schema, "x-guidance": COMPACT}
        asked = {"prompt": prompt, "json_schema": compact, "n_predict": MOST_TOKENS, **GREEDY}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=600.0)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/completion", json.dumps(asked), headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise RuntimeError(f"llama-server: {response.status} {body[:200]!r}")
        finally:
            connection.close()
        said = json.loads(body)
        return int(said["tokens_predicted"]), said["stop_type"] == "limit"
