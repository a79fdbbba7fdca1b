"""Search automata breadth-first."""

from __future__ import annotations

from collections import deque

from eliza_ffi.structured.automata import DEAD, Dfa

__all__ = ["first_difference", "shortest_completion"]


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
