"""Search automata breadth-first, and remove their useless states."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from eliza_ffi.structured.automata import DEAD, Dfa

__all__ = ["first_difference", "shortest_completion", "trimmed"]


def shortest_completion(dfa: Dfa, state: int) -> bytes:
    """Return the shortest bytes that lead from a state to an accepting state."""
    ways, waiting = {state: b""}, [state]
    while not dfa.accepting[state := waiting.pop(0)]:
        for byte, target in enumerate(dfa.transitions[state, dfa.classes].tolist()):
            if target != DEAD and target not in ways:
                ways[target] = ways[state] + bytes([byte])
                waiting.append(target)
    return ways[state]


def first_difference(one: Dfa, other: Dfa) -> bytes | None:
    """Search pairs of states for the shortest string that only one of the automata accepts."""
    found = deque([(0, 0, b"")])
    seen = {(0, 0)}
    while found:
        a, b, text = found.popleft()
        if (a >= 0 and bool(one.accepting[a])) != (b >= 0 and bool(other.accepting[b])):
            return text
        for byte in range(256):
            pair = (
                -1 if a < 0 else int(one.transitions[a, one.classes[byte]]),
                -1 if b < 0 else int(other.transitions[b, other.classes[byte]]),
            )
            if pair not in seen:
                seen.add(pair)
                found.append((*pair, text + bytes([byte])))
    return None


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
    numbers = np.full(dfa.n_states + 1, DEAD, dtype=np.int32)  # the last entry is for -1
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
