"""llama-server, built from the same llama.cpp, as its clients see it over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.library.protocol import Tokens

from ..choosing.other_libraries import Peer
from ..model import gbnf_of
from .batch_loop import UNTOLD

__all__ = ["LlamaServer", "chosen_text", "find_llama_server", "serving"]

HOST = "127.0.0.1"
START_SECONDS = 120.0

PROGRAM_VARIABLE = "LLAMA_SERVER"
BUILT = Path(__file__).resolve().parent.parent.parent / "build" / "peers"

# The cheapest way to take the most likely token: no sorting, no other sampler.
GREEDY = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1}


def find_llama_server() -> tuple[Path | None, Peer]:
    """Return the program that ``make peers`` builds, or ``$LLAMA_SERVER``, and what it is."""
    named = os.environ.get(PROGRAM_VARIABLE)
    places = [Path(named)] if named else [BUILT / "bin" / "llama-server", BUILT / "llama-server"]
    for program in places:
        if program.is_file():
            said = subprocess.run([program, "--version"], capture_output=True, text=True)
            lines = (said.stderr + said.stdout).splitlines()
            version = next((line for line in lines if line.startswith("version")), "")
            return program, Peer(
                "llama-server", version.removeprefix("version:").strip() or "?", None
            )
    problem = f"{places[0]} is not there: run 'make peers'"
    return None, Peer("llama-server", None, problem)


@dataclass(frozen=True)
class LlamaServer:
    """A server that is running; every call is one request on a connection of its own.

    Attributes
    ----------
    port : int
    choices : tuple of str
        The answers; none may begin with another.
    reuse : bool
        Whether it may use what its slots hold of a prompt.
    """

    port: int
    choices: tuple[str, ...]
    reuse: bool = False

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Yield tokens as the server sends them.

        It sends nothing while a character is incomplete, and never which tokens began it, but it
        counts them: they are `UNTOLD`.
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
                        yield [UNTOLD] * (new - len(told)) + told
                        seen += new

    def choose(self, prompt: Tokens) -> str:
        """Return the answer that a grammar of the answers leaves.

        An answer is a stop word, too, which saves the pass that would find the end of the text.
        """
        asked = {"n_predict": 64, "grammar": gbnf_of(self.choices), "stop": [*self.choices]}
        with self._asking(prompt, asked) as response:
            said = json.loads(response.read())
        return chosen_text(said)

    @contextmanager
    def _asking(self, prompt: Tokens, more: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        asked = {"prompt": [int(token) for token in prompt], "cache_prompt": self.reuse}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=600.0)
        try:
            body = json.dumps({**asked, **GREEDY, **more})
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise RuntimeError(f"llama-server: {response.status} {response.read()[:200]!r}")
            yield response
        finally:
            connection.close()


def chosen_text(answer: dict[str, Any]) -> str:
    """Return the choice in a completion whose stop words the choices are."""
    return str(answer.get("stopping_word") or answer["content"])


@contextmanager
def serving(
    program: Path,
    model: Path,
    n_slots: int,
    n_ctx: int,
    n_threads: int,
    choices: Sequence[str],
    more: Sequence[str] = (),
) -> Iterator[LlamaServer]:
    """Run a server on the loopback interface alone, on a port that the system chooses.

    Parameters
    ----------
    program, model, n_slots, n_ctx, n_threads
    choices
        What the server is asked to choose from.
    more
        Further arguments.
    """
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [program, "--model", model, "--host", HOST, "--port", str(port)]
    command += ["--parallel", str(n_slots), "--ctx-size", str(n_ctx), "--no-webui"]
    command += ["--threads", str(n_threads), "--threads-batch", str(n_threads)]
    command += ["--cache-ram", "0"]  # no copies of prompts that nobody asks for again
    command += ["--log-disable", *more]
    server = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_ready(server, port)
        yield LlamaServer(port, tuple(choices))
    finally:
        server.terminate()
        try:
            server.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"llama-server ended with {server.returncode}")
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status == http.client.OK:
                    return
            finally:
                connection.close()
        time.sleep(0.1)
    raise RuntimeError(f"llama-server was not ready after {START_SECONDS:.0f} seconds")
