"""Automata as tables: read them, search them breadth-first, and remove their useless states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEAD = -1
"""The entry of the transition table for "no next state"."""


@dataclass(frozen=True, eq=False)
class Dfa:
    """An automaton over bytes. The start state is 0."""

    classes: NDArray[np.uint8]  # [256]
    transitions: NDArray[np.int32]  # [n_states, n_classes]
    accepting: NDArray[np.bool_]  # [n_states]

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Dfa:
        """Read an automaton from a request to the library."""
        accepting = np.isin(range(len(form["transitions"])), form["accepting"])
        return cls(np.array(form["classes"]), np.array(form["transitions"]), accepting)

    @classmethod
    def of_texts(cls, texts: Iterable[bytes]) -> Dfa:
        """Return the automaton of a set of strings, whose classes are the bytes."""
        states, rows = {b"": 0}, [[DEAD] * 256]
        for text in texts:
            for n, byte in enumerate(text):
                target = states.setdefault(text[: n + 1], len(rows))
                if target == len(rows):
                    rows.append([DEAD] * 256)
                rows[states[text[:n]]][byte] = target
        accepting = np.isin(range(len(rows)), [states[text] for text in texts])
        return cls(np.arange(256), np.array(rows), accepting)

    def to_form(self) -> dict[str, Any]:
        """Return the automaton as a part of a request to the library."""
        return {
            "classes": self.classes.tolist(),
            "transitions": self.transitions.tolist(),
            "accepting": np.flatnonzero(self.accepting).tolist(),
        }

    def accepts(self, text: bytes) -> bool:
        """Return whether the automaton accepts a string."""
        state = 0
        for byte in text:
            state = int(self.transitions[state, self.classes[byte]])
            if state == DEAD:
                return False
        return bool(self.accepting[state])


def shortest_completion(dfa: Dfa, state: int) -> bytes:
    """Return the shortest bytes that lead from a state to an accepting state."""
    ways, waiting = {state: b""}, [state]
    while not dfa.accepting[state := waiting.pop(0)]:
        for byte, target in enumerate(dfa.transitions[state, dfa.classes].tolist()):
            if target != DEAD and target not in ways:
                ways[target] = ways[state] + bytes([byte])
                waiting.append(target)
    return ways[state]


def trimmed(dfa: Dfa) -> Dfa | None:
    """Return an automaton without its useless states; None if it accepts no string."""
    successors = [set(row) - {DEAD} for row in dfa.transitions.tolist()]
    predecessors: list[list[int]] = [[] for _ in successors]
    for state, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(state)
    ending = _reached(predecessors, np.flatnonzero(dfa.accepting).tolist())
    old = sorted(_reached(successors, [0]) & ending)
    if not old:
        return None
    numbers = np.full(len(dfa.accepting) + 1, DEAD, dtype=np.int32)  # the last entry is for -1
    numbers[old] = np.arange(len(old))
    return Dfa(dfa.classes, numbers[dfa.transitions[old]], dfa.accepting[old])


def _reached(neighbours: Sequence[Iterable[int]], starts: Iterable[int]) -> set[int]:
    waiting = list(starts)
    reached = set(waiting)
    while waiting:
        found = [state for state in neighbours[waiting.pop()] if state not in reached]
        reached.update(found)
        waiting += found
    return reached
