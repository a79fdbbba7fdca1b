"""Deterministic finite automata over bytes, which define the allowed text of a free span.

An automaton reads the UTF-8 bytes of a string. Each byte belongs to a *class*, and the class
selects the transition to the next state::

    state = 0
    for byte in string:
        state = transitions[state, classes[byte]]     # -1: no accepted string begins like this
    accepted = state != -1 and accepting[state]

Bytes that lead to the same next state from every state share a class. Most automata have about a
dozen classes, so the table is small enough for the processor's cache.

>>> from eliza_ffi.structured.automata import json_number
>>> json_number().accepts(b"-12.5e3"), json_number().accepts(b"007")
(True, False)
>>> list(json_number().ends(b"1.25}"))
[1, 3, 4]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError

__all__ = ["DEAD", "Dfa"]

DEAD = -1
"""The entry of the transition table for "no next state"."""


@dataclass(frozen=True, eq=False)
class Dfa:
    """A deterministic automaton over bytes. The start state is 0.

    The native library checks the tables. It rejects an automaton with useless states, so call
    :meth:`trimmed` first.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or `DEAD`.
    accepting : bool[n_states]
        Whether a string may end in this state.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]

    @property
    def n_states(self) -> int:
        return len(self.accepting)

    def ends(self, data: bytes, start: int = 0) -> Iterator[int]:
        """Yield the offsets at which an accepted string that begins at `start` may end."""
        state = 0
        for position in range(start, len(data) + 1):
            if self.accepting[state]:
                yield position
            if position < len(data):
                state = int(self.transitions[state, self.classes[data[position]]])
                if state == DEAD:
                    return

    def accepts(self, data: bytes) -> bool:
        """Return whether the automaton accepts these bytes."""
        return len(data) in self.ends(data)

    def trimmed(self) -> Dfa:
        """Return the automaton without useless states, and with equal classes merged.

        A state is useless if it cannot be reached, or if no accepting state can be reached from it.
        The other states keep their order.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string.
        """
        successors = [set(row) - {DEAD} for row in self.transitions.tolist()]
        predecessors: list[list[int]] = [[] for _ in successors]
        for state, targets in enumerate(successors):
            for target in targets:
                predecessors[target].append(state)
        ending = _reached(predecessors, np.flatnonzero(self.accepting).tolist())
        old = sorted(_reached(successors, [0]) & ending)
        if not old:
            raise InvalidArgumentError(
                "the automaton accepts no string: no accepting state can be reached from state 0"
            )
        numbers = np.full(self.n_states + 1, DEAD, dtype=np.int32)  # the last entry is for -1
        numbers[old] = np.arange(len(old))
        columns, merged = np.unique(numbers[self.transitions[old]], axis=1, return_inverse=True)
        classes = merged.reshape(-1)[self.classes].astype(np.uint8)
        return Dfa(classes, columns, self.accepting[old])

    def to_dict(self) -> dict[str, Any]:
        """Return the automaton as JSON data, as the native library reads a span's ``"dfa"``.

        Returns
        -------
        dict
            ``classes``: 256 numbers. ``transitions``: for each state, a list with the next state
            or -1 for each class. ``accepting``: the accepting states in ascending order.
        """
        return {
            "classes": self.classes.tolist(),
            "transitions": self.transitions.tolist(),
            "accepting": np.flatnonzero(self.accepting).tolist(),
        }


def _reached(neighbours: Sequence[Iterable[int]], starts: Iterable[int]) -> set[int]:
    """Return the states that can be reached from the starts."""
    waiting = list(starts)
    reached = set(waiting)
    while waiting:
        found = [state for state in neighbours[waiting.pop()] if state not in reached]
        reached.update(found)
        waiting += found
    return reached
