"""What a node of the trie costs: nanoseconds, cycles and instructions of walks with nothing known.

Two recognizers. "Anything" takes every byte, so the walk visits every node: what the traversal
itself takes. The inside of a JSON string refuses some: what a processor guesses wrong. It is an
automaton of that language here, for the library knows the mask of "string-body" beforehand.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cffi

from eliza_ffi._resources import default_model_path
from eliza_ffi.automata import DEAD, Dfa, compile_regex
from eliza_ffi.skeleton.free_values import STRING_BODY_PATTERN

from ..instructions import CONTINUE, TRACE_ME, Ptrace, is_supported, steps_of_pull
from ..parts.compiled import compiled
from .native import NativeVocabulary
from .simple_trie import SimpleTrie
from .vocabularies import TokenBytes

__all__ = ["CHILD", "KINDS", "be_counted", "count_instructions_of_nodes", "gigahertz", "node_times"]

ANYTHING = {"dfa": {"classes": [0] * 256, "transitions": [[0]], "accepting": [0]}}
STRING_BODY = compile_regex(STRING_BODY_PATTERN)
KINDS: Mapping[str, Mapping[str, Any]] = {
    "anything": ANYTHING,
    "inside a JSON string": {"dfa": STRING_BODY.to_dict()},
}

ROOT = Path(__file__).resolve().parent.parent.parent
CHILD = "--be-counted"
HOOK = "eliza_test_walk_time"


class Automaton:
    """Which bytes an automaton takes, for the count of nodes that are visited."""

    start = 0

    def __init__(self, dfa: Dfa) -> None:
        self._next = dfa.transitions[:, dfa.classes].tolist()

    def step(self, state: int, byte: int) -> int | None:
        behind = int(self._next[state][byte])
        return None if behind == DEAD else behind


def nodes_visited(kind: str, texts: tuple[bytes, ...], native: NativeVocabulary) -> int:
    """Return how many nodes a walk asks its recognizer about; the root is none of them."""
    if kind == "anything":
        return native.n_nodes - 1
    return SimpleTrie(texts).walk(Automaton(STRING_BODY)).n_visited


def node_times(
    kinds: Iterable[str], vocabulary: TokenBytes, native: NativeVocabulary, rounds: int
) -> dict[str, Any]:
    """Return, for some of `KINDS`, the nodes visited and the nanoseconds for each of them.

    The time is that of a whole mask: setting up the set of tokens and counting it are part of it.
    The fastest of some rounds counts.
    """
    token = vocabulary.texts.index(b"a")
    costs = {}
    for kind in kinds:
        span, times = KINDS[kind], []
        visited = nodes_visited(kind, vocabulary.texts, native)
        for _ in range(rounds):
            native.forget()
            times.append(int(native.walk(span).time([token])[0]))
        costs[kind] = {"visited": visited, "ns": min(times) / visited}
    return costs


# A shift and an exclusive or that wait for each other: two cycles.
C_CHAIN = """
#include <stdint.h>
#include <time.h>

double chain(uint64_t n) {
    struct timespec begin, end;
    uint64_t x = 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t i = 0; i < n; ++i) {
        x ^= x << 1;
        __asm__ volatile("" : "+r"(x));
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
}
"""


def gigahertz() -> float:
    """Return the clock that the processor really runs at, by a chain of dependent operations."""
    _, lib = compiled("double chain(uint64_t);", C_CHAIN)
    n = 100_000  # some 60 microseconds: most chains run without another program in between
    return max(2 * n / float(lib.chain(n)) for _ in range(2000))


def be_counted(hooks: Path, kind: str) -> None:
    """Compute one mask of the embedded model's vocabulary between two stops."""
    vocabulary = TokenBytes.from_file(Path(default_model_path()))
    native = NativeVocabulary(hooks, vocabulary.texts)
    token = vocabulary.texts.index(b"a")
    native.walk(KINDS[kind]).time([token])
    native.forget()
    walk = native.walk(KINDS[kind])
    address = cffi.FFI().cast("intptr_t", getattr(native.lib, HOOK))
    print(int(address), nodes_visited(kind, vocabulary.texts, native), flush=True)
    Ptrace()(TRACE_ME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    walk.time([token])


def count_instructions_of_nodes(program: str, hooks: Path) -> dict[str, float] | None:
    """Return the instructions of a walk for each node visited; None where none can be counted.

    A child process, the program with `CHILD`, is stepped through one walk over the nodes of the
    embedded model's vocabulary: a node takes as many instructions in a larger one.
    """
    if not is_supported():
        return None
    return {kind: _count(program, hooks, kind) for kind in KINDS}


def _count(program: str, hooks: Path, kind: str) -> float:
    command = [sys.executable, "-m", program, CHILD, str(hooks), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        try:
            assert child.stdout is not None
            begin, visited = map(int, child.stdout.readline().split())
            os.waitpid(child.pid, 0)
            n_instructions = sum(1 for _ in steps_of_pull(child.pid, begin))
            Ptrace()(CONTINUE, child.pid)
        except BaseException:
            child.kill()
            raise
    return n_instructions / visited
