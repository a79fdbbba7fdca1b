"""Making automata small: states that accept the same become one, and so do like bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .graph import grouped, moves
from .tables import DEAD, Tables

__all__ = ["minimal_tables", "renumbered"]


def minimal_tables(tables: Tables) -> Tables:
    """Return the tables of the fewest states and classes for the same texts.

    States are numbered as a breadth-first search finds them, classes by their least byte.

    Parameters
    ----------
    tables
        Of which every state is reached and leads to an accepting one.
    """
    # Fewer columns make the partition faster; merged states make columns equal in turn.
    tables = _with_merged_classes(tables)
    tables = _with_merged_classes(renumbered(tables, _equivalence(tables)))
    return renumbered(tables, _breadth_first_numbers(tables.transitions))


def renumbered(tables: Tables, numbers: npt.NDArray[np.int64]) -> Tables:
    """Number states anew, without gaps; those of one number become one, those of -1 are dropped.

    Parameters
    ----------
    tables
    numbers
        Shape [n_states].
    """
    kept = np.flatnonzero(numbers != DEAD)
    _, first = np.unique(numbers[kept], return_index=True)
    old = kept[first]
    transitions = np.append(numbers, DEAD)[tables.transitions[old]]  # -1 leads to the last entry
    return Tables(tables.classes, transitions.astype(np.int32), tables.accepting[old])


def _with_merged_classes(tables: Tables) -> Tables:
    """Make classes of equal columns one, numbered by their least byte; drop those of no byte."""
    columns = [column.tobytes() for column in tables.transitions.T]
    numbers: dict[bytes, int] = {}
    merged = [numbers.setdefault(columns[of_class], len(numbers)) for of_class in tables.classes]
    _, least_byte = np.unique(merged, return_index=True)
    transitions = tables.transitions[:, tables.classes[least_byte]]
    return Tables(np.array(merged, dtype=np.uint8), transitions, tables.accepting)


def _equivalence(tables: Tables) -> npt.NDArray[np.int64]:
    """Return a number for each state, the same for those that accept the same texts from there on.

    They are numbered as their first states are, so that state 0 stays 0.

    A block of states is split by where their bytes lead, as in Moore's algorithm. As in Hopcroft's,
    the largest part keeps its number, and only states that lead into the others are looked at
    again: a state is at most log2(n) times in a smaller part. Moore's alone needs as many rounds
    over all states as the longest repetition. (Jacobs and Wissmann, "Fast Coalgebraic Bisimilarity
    Minimization", POPL 2023.)
    """
    n_states = len(tables.accepting)
    rows = tables.transitions.tolist()
    sources, targets = moves(tables.transitions)
    predecessors = grouped(targets, sources, n_states)
    block = [*tables.accepting.astype(int).tolist(), DEAD]  # -1 leads to the last entry
    members = [{state for state in range(n_states) if block[state] == b} for b in (0, 1)]
    # The states of a block that are not in doubt all lead into the same blocks.
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
    for state in found:  # which grows
        for target in transitions[state].tolist():
            if target != DEAD and numbers[target] == DEAD:
                numbers[target] = len(found)
                found.append(target)
    return numbers
