"""Count the instructions of one decision among 30 tokens in the native library.

A child process loads a model, prefills a prompt, sets a trie and pulls one token; this one walks it
through that pull instruction by instruction (ptrace) and notes in which function each of them is.
So the library is counted as it was built, whatever instructions it uses: valgrind, which would do
the same, knows no AVX-512. Linux on x86-64; a library whose symbols were stripped gives the total
alone.

    $ python -m bench.instructions --docs docs/performance.md
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi

from eliza_ffi.benchmark import Alternatives
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import TRIE_ARGMAX, StreamConfig
from eliza_ffi.model import Model

from .parts.machine import machine_facts, machine_line
from .parts.pages import RESULTS, publish, table
from .parts.workload import MODELS, NOUNS, VERBS

ROOT = Path(__file__).resolve().parent.parent
CANDIDATES = 30
PULL = "eliza_inference_llm_stream_next"

PARTS = {
    PULL: "the whole pull",
    "eliza::Stream::choose_in_span": "the decision, from the place in the trie to the token",
    "eliza::OutputHead::logits": "of it, the logits: 30 rows of the output matrix",
    "eliza::TokenSelector::select_in_span": "of it, argmax and probability",
}

TRACE_ME, SINGLE_STEP, GET_REGISTERS, CONTINUE = 0, 9, 12, 7
REGISTERS = struct.Struct("<27Q")
INSTRUCTION_POINTER, STACK_POINTER = 16, 19


class Ptrace:
    """The system call, by libc."""

    def __init__(self) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef("long ptrace(long, int, void *, void *);")
        self._libc: Any = self._ffi.dlopen(None)
        self._registers = self._ffi.new("char[]", REGISTERS.size)

    def __call__(self, request: int, pid: int, data: Any = None) -> None:
        null = self._ffi.NULL
        if self._libc.ptrace(request, pid, null, null if data is None else data) == -1:
            raise OSError(self._ffi.errno, f"ptrace: {os.strerror(self._ffi.errno)}")

    def place(self, pid: int) -> tuple[int, int]:
        """Return a stopped process's instruction and stack pointers."""
        self(GET_REGISTERS, pid, self._registers)
        registers = REGISTERS.unpack(self._ffi.buffer(self._registers))
        return registers[INSTRUCTION_POINTER], registers[STACK_POINTER]


# ---- the child -----------------------------------------------------------------------------------


def alternatives_that_differ_at_once(model: Model) -> Alternatives:
    """Return `CANDIDATES` action names no two of which begin with the same token."""
    by_token: dict[int, str] = {}
    for verb in VERBS:
        for noun in NOUNS:
            by_token.setdefault(model.tokenize(f"{verb}_{noun}")[0], f"{verb}_{noun}")
    if len(by_token) < CANDIDATES:
        raise RuntimeError(f"the names begin with {len(by_token)} tokens only")
    return Alternatives.of_texts(model, list(by_token.values())[:CANDIDATES])


def be_counted(path: str) -> None:
    """Make one decision between two stops; the first one's line of output says where it begins."""
    with Model(path, n_slots=1, n_threads=1) as model:
        payload = alternatives_that_differ_at_once(model).json
        binding, prompt = model.binding, model.tokenize("The best tool is ", add_special=True)

        def decide(*, counted: bool) -> None:
            stream = binding.open(model.runner.ctx, StreamConfig())
            binding.prefill(stream, prompt)
            binding.set_token_trie(stream, payload, TRIE_ARGMAX)
            if counted:
                os.kill(os.getpid(), signal.SIGSTOP)
            binding.next(stream)
            if counted:
                os.kill(os.getpid(), signal.SIGSTOP)
            stats = binding.stats(stream)
            if (stats.decisions, stats.candidates_seen) != (1, CANDIDATES):
                raise RuntimeError(f"not one decision among {CANDIDATES}: {stats}")
            binding.close(stream)

        decide(counted=False)  # loads and allocates what the first one must
        function = cffi.FFI().cast("intptr_t", getattr(binding.library.lib, PULL))
        print(int(function), model.describe()["model"]["n_vocab"], flush=True)
        Ptrace()(TRACE_ME, 0)
        decide(counted=True)


# ---- the parent ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Where the child stood before an instruction."""

    instruction: int
    stack: int


def steps_of_pull(pid: int, begin: int) -> Iterator[Step]:
    """Step a stopped child through the call of the function at `begin`."""
    ptrace = Ptrace()
    returned_at: int | None = None
    while True:
        instruction, stack = ptrace.place(pid)
        if returned_at is None and instruction == begin:
            returned_at = stack
        if returned_at is not None:
            if stack > returned_at:
                return
            yield Step(instruction, stack)
        ptrace(SINGLE_STEP, pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
            raise RuntimeError("the child did not get to the end of the call")


def functions_of(library: Path, base: int) -> dict[int, str]:
    """Return the library's functions by their address in memory, without their parameters."""
    listed = subprocess.run(
        ["nm", "--demangle", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    functions = {}
    for line in listed.splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "tT":
            functions[base + int(address, 16)] = name.partition("(")[0]
    return functions


def inclusive_counts(steps: Sequence[Step], functions: dict[int, str]) -> dict[str, int]:
    """Return the instructions of each of `PARTS` that was called, with those of its callees."""
    counts = {PULL: len(steps)}
    for place, step in enumerate(steps):
        name = functions.get(step.instruction)
        if name in PARTS and name not in counts:
            end = next((i for i in range(place, len(steps)) if steps[i].stack > step.stack), None)
            counts[name] = (len(steps) if end is None else end) - place
    return counts


def base_of(library: Path, pid: int) -> int:
    """Return where a process has mapped the library."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(str(library)):
            return int(line.partition("-")[0], 16)
    raise RuntimeError(f"{library} is not mapped")


def count(path: Path) -> dict[str, Any]:
    """Count a decision with a model."""
    library = Library().path.resolve()
    command = [sys.executable, "-m", "bench.instructions", "--be-counted", str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with child:
        try:
            assert child.stdout is not None
            begin, n_vocab = map(int, child.stdout.readline().split())
            os.waitpid(child.pid, 0)  # until its first stop
            functions = functions_of(library, base_of(library, child.pid))
            steps = list(steps_of_pull(child.pid, begin))
            Ptrace()(CONTINUE, child.pid)
            os.waitpid(child.pid, 0)  # until its second
            Ptrace()(CONTINUE, child.pid)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise RuntimeError("the child did not decide what it should")
    return {"n_vocab": n_vocab, "parts": inclusive_counts(steps, functions)}


def is_supported() -> bool:
    """Return whether this system's registers are known here, and where libraries are loaded."""
    known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    return known and Path("/proc/self/maps").exists()


def markdown(results: dict[str, Any]) -> str:
    """Return the table."""
    counted = results["counted"]
    rows = [
        [label, *(f"{each['parts'][name]:,}" if name in each["parts"] else "-" for each in counted)]
        for name, label in PARTS.items()
    ]
    head = [f"instructions, {CANDIDATES} candidates"]
    head += [f"{each['name']}, vocabulary {each['n_vocab']:,}" for each in counted]
    return f"{machine_line(results['machine'])}\n\n{table(head, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the instructions of a decision.")
    parser.add_argument("--be-counted", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the table between markers")
    options = parser.parse_args(arguments)
    if options.be_counted:
        be_counted(options.be_counted)
        return 0
    if not is_supported():
        print("bench.instructions: needs Linux on x86-64", file=sys.stderr)
        return 1
    subjects = [each for each in MODELS if each.name in ("trained 2k", "random 262k")]
    counted = [{"name": each.name, **count(each.path())} for each in subjects]
    results = {"machine": machine_facts(), "counted": counted}
    publish("instructions", results, markdown(results), options.out, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
