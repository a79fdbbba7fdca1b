"""Measure the cost of a node in a cold walk over the trie: nanoseconds, cycles and instructions.

There are two recognizers. "Anything" accepts every byte, so the walk visits every node; this is the
cost of the traversal itself. The inside of a JSON string rejects some bytes, which the processor's
branch prediction often gets wrong. This recognizer is an automaton here, because the library has a
precomputed mask for its own "string-body".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from eliza_ffi.structured.automata import DEAD, STRING_BODY_PATTERN, Dfa, compile_regex

from ..parts.compiled import compiled
from ..parts.single_steps import address_of, is_supported, steps_of
from .native import NativeVocabulary
from .simple_trie import SimpleTrie
from .vocabularies import TokenBytes

ANYTHING = {"dfa": {"classes": [0] * 256, "transitions": [[0]], "accepting": [0]}}
STRING_BODY = compile_regex(STRING_BODY_PATTERN)
KINDS: Mapping[str, Mapping[str, Any]] = {
    "anything": ANYTHING,
    "inside a JSON string": {"dfa": STRING_BODY.to_dict()},
}

HOOK = "eliza_test_walk_time"


class Automaton:
    """A recognizer that follows an automaton, used to count the visited nodes."""

    start = 0

    def __init__(self, dfa: Dfa) -> None:
        self._next = dfa.transitions[:, dfa.classes].tolist()

    def step(self, state: int, byte: int) -> int | None:
        following = int(self._next[state][byte])
        return None if following == DEAD else following


def nodes_visited(kind: str, texts: tuple[bytes, ...], native: NativeVocabulary) -> int:
    """Return how many nodes a walk visits, without the root."""
    if kind == "anything":
        return native.n_nodes - 1
    return SimpleTrie(texts).walk(Automaton(STRING_BODY)).n_visited


def node_times(
    kinds: Iterable[str], vocabulary: TokenBytes, native: NativeVocabulary, rounds: int
) -> dict[str, Any]:
    """Return the visited nodes and the nanoseconds per node, for some of `KINDS`.

    The time includes setting up and counting the set of tokens. The
    fastest round counts.
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


# A shift and an exclusive or that depend on each other's result: two cycles.
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
    """Return the actual clock rate of the processor, from a chain of dependent operations."""
    _, lib = compiled("double chain(uint64_t);", C_CHAIN)
    n = 100_000  # about 60 microseconds, so that other programs rarely interrupt a chain
    return max(2 * n / float(lib.chain(n)) for _ in range(2000))


def node_instructions(hooks: Path, texts: tuple[bytes, ...]) -> dict[str, float] | None:
    """Return the instructions per visited node; None if the system cannot count instructions.

    Use a vocabulary of at most a few thousand tokens, because the process stops after every
    instruction. The number per node is the same in a larger vocabulary.
    """
    if not is_supported():
        return None
    native, token = NativeVocabulary(hooks, texts), texts.index(b"a")
    begin = address_of(getattr(native.lib, HOOK))
    instructions = {}
    for kind, span in KINDS.items():
        native.walk(span).time([token])  # loads and allocates everything that only the first needs
        native.forget()
        steps = steps_of(partial(partial, native.walk(span).time, [token]), begin)
        visited = nodes_visited(kind, texts, native)
        instructions[kind] = sum(1 for _ in steps) / visited
    return instructions
