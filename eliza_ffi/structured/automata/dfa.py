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

from collections.abc import Iterable, Iterator
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
    :meth:`trimmed` or :meth:`minimized` first.

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
        """Return the automaton without unreachable and dangling states, in the same order.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string.
        """
        successors, predecessors = _neighbours(self.transitions)
        ending = _found(predecessors, np.flatnonzero(self.accepting).tolist())
        kept = np.zeros(self.n_states, dtype=bool)
        kept[list(set(_found(successors, [0])).intersection(ending))] = True
        if not kept[0]:
            raise InvalidArgumentError(
                "the automaton accepts no string: no accepting state can be reached from state 0"
            )
        return self._renumbered(np.where(kept, kept.cumsum() - 1, DEAD))

    def minimized(self) -> Dfa:
        """Return the automaton with the fewest states and classes that accepts the same strings.

        States are numbered in breadth-first order and classes by their lowest byte, so that
        automata that accept the same strings get equal tables.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string.
        """
        # Merge classes first, because fewer columns make the next step faster; and again
        # afterwards, because merged states may make columns equal.
        dfa = self.trimmed()._with_merged_classes()
        dfa = dfa._renumbered(_equivalence(dfa))._with_merged_classes()
        numbers = np.empty(dfa.n_states, dtype=np.int64)
        numbers[_found(_neighbours(dfa.transitions)[0], [0])] = np.arange(dfa.n_states)
        return dfa._renumbered(numbers)

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

    def _renumbered(self, numbers: npt.NDArray[np.int64]) -> Dfa:
        """Give the states new numbers, without gaps.

        States with equal numbers are merged, and states numbered -1 are removed.
        """
        kept = np.flatnonzero(numbers != DEAD)
        _, first = np.unique(numbers[kept], return_index=True)
        old = kept[first]
        transitions = np.append(numbers, DEAD)[self.transitions[old]]  # target -1 is the last entry
        return Dfa(self.classes, transitions.astype(np.int32), self.accepting[old])

    def _with_merged_classes(self) -> Dfa:
        """Merge classes with equal columns, number them by their lowest byte; drop empty ones."""
        columns = [column.tobytes() for column in self.transitions.T]
        numbers: dict[bytes, int] = {}
        merged = [numbers.setdefault(columns[of_class], len(numbers)) for of_class in self.classes]
        _, lowest_byte = np.unique(merged, return_index=True)
        transitions = self.transitions[:, self.classes[lowest_byte]]
        return Dfa(np.array(merged, dtype=np.uint8), transitions, self.accepting)


def _neighbours(transitions: npt.NDArray[np.int32]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the next states of each state, in the order of the classes, and its previous ones."""
    successors = [list(dict.fromkeys(row)) for row in transitions.tolist()]
    predecessors: list[list[int]] = [[] for _ in successors]
    for state, targets in enumerate(successors):
        if DEAD in targets:
            targets.remove(DEAD)
        for target in targets:
            predecessors[target].append(state)
    return successors, predecessors


def _found(neighbours: list[list[int]], starts: Iterable[int]) -> list[int]:
    """Return the states that can be reached from the starts, in breadth-first order."""
    found = dict.fromkeys(starts)
    waiting = [*found]
    for state in waiting:  # grows during the loop
        for neighbour in neighbours[state]:
            if neighbour not in found:
                found[neighbour] = None
                waiting.append(neighbour)
    return waiting


def _equivalence(dfa: Dfa) -> npt.NDArray[np.int64]:
    """Return the number of each state's equivalence class.

    Two states are equivalent if the same strings lead from them to an accepting state. The classes
    are numbered in the order of their first states, so the class of state 0 is number 0.

    As in Moore's algorithm, a block of states is split by the blocks that their transitions lead
    to. As in Hopcroft's algorithm, the largest part keeps its number, and only the states that lead
    into the other parts are examined again. A state is in a smaller part at most log2(n) times.
    Moore's algorithm alone would examine all states about n times for a repetition like ``x{n}``.
    See Jacobs and Wissmann, "Fast Coalgebraic Bisimilarity Minimization", POPL 2023.
    """
    n_states = dfa.n_states
    rows = dfa.transitions.tolist()
    _, predecessors = _neighbours(dfa.transitions)
    block = [*dfa.accepting.astype(int).tolist(), DEAD]  # state -1 is the last entry
    members = [{state for state in range(n_states) if block[state] == b} for b in (0, 1)]
    # For each block, the states to examine again. The remaining states of a block are known to
    # lead into the same blocks as each other.
    doubted = {b: set(members[b]) for b in (0, 1) if members[b]}

    def leads_to(state: int) -> tuple[int, ...]:
        return tuple([block[target] for target in rows[state]])

    while doubted:
        of_block, in_doubt = doubted.popitem()
        whole = members[of_block]
        parts: dict[tuple[int, ...], set[int]] = {}
        for state in in_doubt:
            parts.setdefault(leads_to(state), set()).add(state)
        n_sure = len(whole) - len(in_doubt)
        like_sure: tuple[int, ...] | None = None
        if n_sure:
            like_sure = leads_to(next(state for state in whole if state not in in_doubt))
            parts.setdefault(like_sure, set())
        sizes = {key: len(part) + n_sure * (key == like_sure) for key, part in parts.items()}
        largest = max(sizes, key=sizes.__getitem__)
        if like_sure is not None and like_sure != largest:
            parts[like_sure] |= whole - in_doubt
        del parts[largest]
        for part in parts.values():
            whole -= part
            for state in part:
                block[state] = len(members)
            members.append(part)
        for part in parts.values():
            for state in part:
                for before in predecessors[state]:
                    doubted.setdefault(block[before], set()).add(before)
    _, first, found = np.unique(block[:-1], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[found].astype(np.int64)
