"""Run llama-server, built from the same llama.cpp, and use it over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.library.protocol import Tokens

from ..choosing.other_libraries import Peer
from ..model import gbnf_of

HOST = "127.0.0.1"
START_SECONDS = 120.0

SETTLING_SECONDS = 0.5
"""The pause before each method. The previous method's threads keep spinning for a moment."""

UNLABELLED = -1
"""Stands for a generated token whose id the server did not report."""

PROGRAM_VARIABLE = "LLAMA_SERVER"
BUILT = Path(__file__).resolve().parent.parent.parent / "build" / "peers"

# The cheapest greedy sampler: no sorting, no other sampler in the chain.
GREEDY = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1}


def find_llama_server() -> tuple[Path | None, Peer]:
    """Return ``$LLAMA_SERVER`` or the program that ``make peers`` builds, and its version.

    Without a program, the path is None and the `Peer` has the reason.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    places = [Path(named)] if named else [BUILT / "bin" / "llama-server", BUILT / "llama-server"]
    for program in places:
        if program.is_file():
            said = subprocess.run([program, "--version"], capture_output=True, text=True)
            version = re.search(r"^version: *(.+)", said.stderr + said.stdout, re.MULTILINE)
            return program, Peer("llama-server", version[1].strip() if version else "?")
    problem = f"{places[0]} is missing: run 'make peers'"
    return None, Peer("llama-server", None, problem)


@dataclass(frozen=True)
class LlamaServer:
    """A running server. Every call sends one request on a new connection."""

    port: int
    choices: tuple[str, ...]  # the labels; none may be a prefix of another
    pid: int  # the server's process

    def processor_seconds(self) -> float:
        """Return the processor time of all threads so far, on Linux."""
        return time.clock_gettime(~self.pid << 3 | 2)  # clock_getcpuclockid(3)

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Yield tokens as the server sends them.

        While a character is incomplete, the server sends nothing. Later it reports the number of
        the tokens that began the character, but not their ids; they are `UNLABELLED` here.
        """
        seen = 0
        asked = {"n_predict": n_tokens, "stream": True, "return_tokens": True, "ignore_eos": True}
        with self._asking(prompt, asked) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    came = json.loads(line[6:])
                    if "error" in came:
                        raise RuntimeError(str(came["error"]))
                    new = came["tokens_predicted"] - seen
                    if new > 0:
                        told = came["tokens"][-new:]
                        yield [UNLABELLED] * (new - len(told)) + told
                        seen += new

    def choose(self, prompt: Tokens) -> str:
        """Return the label that the server chooses with a grammar of the labels.

        The labels are also stop words. This saves the pass that would generate the end token.
        """
        asked = {"n_predict": 64, "grammar": gbnf_of(self.choices), "stop": [*self.choices]}
        with self._asking(prompt, asked) as response:
            said = json.loads(response.read())
        return chosen_text(said)

    def _asking(
        self, prompt: Tokens, more: dict[str, Any]
    ) -> AbstractContextManager[http.client.HTTPResponse]:
        asked = {"prompt": [int(token) for token in prompt], "cache_prompt": False}
        return asking(self.port, "/completion", {**asked, **GREEDY, **more})


@contextmanager
def asking(port: int, path: str, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
    """Send a request on a new connection and yield the response; its status must be 200."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=600.0)) as connection:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise RuntimeError(f"llama-server: {response.status} {response.read()[:200]!r}")
        yield response


def asked(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return the JSON of the response, as `asking`."""
    with asking(port, path, body) as response:
        return dict(json.loads(response.read()))


def chosen_text(answer: dict[str, Any]) -> str:
    """Return the label in a completion whose stop words are the labels."""
    return str(answer.get("stopping_word") or answer["content"])


@contextmanager
def serving(
    program: Path,
    model: Path,
    n_slots: int,
    n_ctx: int,
    n_threads: int,
    choices: Sequence[str],  # the labels of `LlamaServer.choose`
    more: Sequence[str] = (),  # more command line arguments of the server
) -> Iterator[LlamaServer]:
    """Run a server on a free port of the loopback interface."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [program, "--model", model, "--host", HOST, "--port", port, "--no-webui"]
    command += ["--parallel", n_slots, "--ctx-size", n_ctx, "--log-disable"]
    command += ["--threads", n_threads, "--threads-batch", n_threads]
    command += ["--cache-ram", 0]  # no copies of old prompts: they are never used again
    silent = subprocess.DEVNULL
    server = subprocess.Popen([*map(str, command), *more], stdout=silent, stderr=silent)
    try:
        _wait_until_ready(server, port)
        yield LlamaServer(port, tuple(choices), server.pid)
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=10.0)
        server.kill()  # does nothing if the server has ended
        server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"llama-server exited with {server.returncode}")
        with suppress(OSError, http.client.HTTPException):  # URLError is an OSError
            urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5.0).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"llama-server was not ready after {START_SECONDS:.0f} seconds")
