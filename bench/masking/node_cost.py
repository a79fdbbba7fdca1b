"""What a node of the trie costs: nanoseconds, cycles and instructions of walks with nothing known.

Two recognizers. "Anything" takes every byte, so the walk visits every node: what the traversal
itself takes. The inside of a JSON string refuses some: what a processor guesses wrong. It is an
automaton of that language here, for the library knows the mask of "string-body" beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from eliza_ffi.structured.automata import DEAD, Dfa, compile_regex
from eliza_ffi.structured.free_values import STRING_BODY_PATTERN

from ..parts.compiled import compiled
from ..parts.single_steps import address_of, is_supported, steps_of
from .native import NativeVocabulary
from .simple_trie import SimpleTrie
from .vocabularies import TokenBytes

__all__ = ["KINDS", "gigahertz", "node_instructions", "node_times"]

ANYTHING = {"dfa": {"classes": [0] * 256, "transitions": [[0]], "accepting": [0]}}
STRING_BODY = compile_regex(STRING_BODY_PATTERN)
KINDS: Mapping[str, Mapping[str, Any]] = {
    "anything": ANYTHING,
    "inside a JSON string": {"dfa": STRING_BODY.to_dict()},
}

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


def node_instructions(hooks: Path, texts: tuple[bytes, ...]) -> dict[str, float] | None:
    """Return the instructions of a walk for each node visited; None where none can be counted.

    The nodes are those of a vocabulary of a few thousand tokens at most: each instruction is a stop
    of the process, and a node takes as many in a larger vocabulary.
    """
    if not is_supported():
        return None
    native, token = NativeVocabulary(hooks, texts), texts.index(b"a")
    begin = address_of(getattr(native.lib, HOOK))
    instructions = {}
    for kind, span in KINDS.items():
        native.walk(span).time([token])  # loads and allocates what the first one must
        native.forget()
        steps = steps_of(partial(partial, native.walk(span).time, [token]), begin)
        visited = nodes_visited(kind, texts, native)
        instructions[kind] = sum(1 for _ in steps) / visited
    return instructions
