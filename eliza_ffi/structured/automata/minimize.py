"""Minimize automata: merge equivalent states and equivalent bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .graph import grouped, moves
from .tables import DEAD, Tables

__all__ = ["minimal_tables", "renumbered"]


def minimal_tables(tables: Tables) -> Tables:
    """Return the tables with the fewest states and classes that accept the same strings.

    States are numbered in breadth-first order and classes by their lowest byte.

    Parameters
    ----------
    tables
        Every state must be reachable from state 0, and lead to an accepting state.
    """
    # Merge classes first, because fewer columns make the next step faster; and again afterwards,
    # because merged states may make columns equal.
    tables = _with_merged_classes(tables)
    tables = _with_merged_classes(renumbered(tables, _equivalence(tables)))
    return renumbered(tables, _breadth_first_numbers(tables.transitions))


def renumbered(tables: Tables, numbers: npt.NDArray[np.int64]) -> Tables:
    """Renumber states. States with equal numbers are merged, and states numbered -1 are removed.

    Parameters
    ----------
    tables
    numbers
        The new number of each state, without gaps. Shape [n_states].
    """
    kept = np.flatnonzero(numbers != DEAD)
    _, first = np.unique(numbers[kept], return_index=True)
    old = kept[first]
    transitions = np.append(numbers, DEAD)[tables.transitions[old]]  # target -1 is the last entry
    return Tables(tables.classes, transitions.astype(np.int32), tables.accepting[old])


def _with_merged_classes(tables: Tables) -> Tables:
    """Merge classes with equal columns, number them by their lowest byte, and drop empty ones."""
    columns = [column.tobytes() for column in tables.transitions.T]
    numbers: dict[bytes, int] = {}
    merged = [numbers.setdefault(columns[of_class], len(numbers)) for of_class in tables.classes]
    _, lowest_byte = np.unique(merged, return_index=True)
    transitions = tables.transitions[:, tables.classes[lowest_byte]]
    return Tables(np.array(merged, dtype=np.uint8), transitions, tables.accepting)


def _equivalence(tables: Tables) -> npt.NDArray[np.int64]:
    """Return the number of each state's equivalence class.

    Two states are equivalent if the same strings lead from them to an accepting state. The classes
    are numbered in the order of their first states, so the class of state 0 is number 0.

    As in Moore's algorithm, a block of states is split by the blocks that their transitions lead
    to. As in Hopcroft's algorithm, the largest part keeps its number, and only the states that lead
    into the other parts are examined again. A state is in a smaller part at most log2(n) times.
    Moore's algorithm alone would examine all states about n times for a repetition like ``x{n}``.
    See Jacobs and Wissmann, "Fast Coalgebraic Bisimilarity Minimization", POPL 2023.
    """
    n_states = len(tables.accepting)
    rows = tables.transitions.tolist()
    sources, targets = moves(tables.transitions)
    predecessors = grouped(targets, sources, n_states)
    block = [*tables.accepting.astype(int).tolist(), DEAD]  # state -1 is the last entry
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


def _breadth_first_numbers(transitions: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    numbers = np.full(len(transitions), DEAD, dtype=np.int64)
    numbers[0] = 0
    found = [0]
    for state in found:  # grows during the loop
        for target in transitions[state].tolist():
            if target != DEAD and numbers[target] == DEAD:
                numbers[target] = len(found)
                found.append(target)
    return numbers
