"""Making automata deterministic, within limits of states and of time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError
from .nfa import Nfa
from .tables import DEAD, Tables

__all__ = ["MOST_WORK", "determinized"]

MOST_WORK = 2**23
"""The most steps that making an automaton deterministic may take: some seconds.

The number of states alone is no limit on the time: a state of the deterministic automaton stands
for a set of states of the other, and these can be large.
"""


def determinized(nfa: Nfa, max_states: int, max_work: int | None = None) -> Tables:
    """Make a state of every set of states that some text leads to (Rabin and Scott, 1959).

    Raises
    ------
    InvalidArgumentError
        If no text is accepted, or there are more than `max_states` such sets, or it takes more
        than `max_work` steps, or `MOST_WORK`, to find them.
    """
    edges, classes = _edges_over_classes(nfa)
    n_classes = int(classes[-1]) + 1
    budget = _Budget(MOST_WORK if max_work is None else max_work)
    first = _without_jumps(nfa, [Nfa.START], budget)
    subsets = [first]
    numbers = {first: 0}
    number_of_targets: dict[frozenset[int], int] = {}
    table = array("i")
    for subset in subsets:  # which grows
        reached: dict[int, set[int]] = {}
        budget.spend(n_classes)
        for state in subset:
            for of_classes, target in edges[state]:
                budget.spend(len(of_classes))
                for of_class in of_classes:
                    reached.setdefault(of_class, set()).add(target)
        row = [DEAD] * n_classes
        for of_class, targets in reached.items():
            key = frozenset(targets)
            number = number_of_targets.get(key)
            if number is None:
                following = _without_jumps(nfa, key, budget)
                number = number_of_targets[key] = numbers.setdefault(following, len(subsets))
                if number == len(subsets):
                    subsets.append(following)
            row[of_class] = number
        table.extend(row)
        if len(subsets) > max_states:
            raise InvalidArgumentError(
                f"making the automaton deterministic needs more than {max_states} states"
            )
    accepting = np.array([Nfa.END in subset for subset in subsets])
    if not accepting.any():
        raise InvalidArgumentError("the automaton accepts no text")
    return Tables(classes, np.array(table, dtype=np.int32).reshape(-1, n_classes), accepting)


def _edges_over_classes(
    nfa: Nfa,
) -> tuple[list[list[tuple[range, int]]], npt.NDArray[np.uint8]]:
    """Cut the bytes where a range begins or ends; return the edges over what lies between."""
    cuts = {0}
    for ranges in nfa.ranges:
        for first, last, _ in ranges:
            cuts |= {first, last + 1}
    classes = np.searchsorted(sorted(cuts - {256}), np.arange(256), side="right") - 1
    of = classes.tolist()
    edges = [
        [(range(of[first], of[last] + 1), target) for first, last, target in ranges]
        for ranges in nfa.ranges
    ]
    return edges, classes.astype(np.uint8)


def _without_jumps(nfa: Nfa, states: Iterable[int], budget: _Budget) -> frozenset[int]:
    """Follow all jumps; return the states that read a byte or end the text."""
    seen = set(states)
    found = list(seen)
    for state in found:  # which grows
        budget.spend(1 + len(nfa.jumps[state]))
        for target in nfa.jumps[state]:
            if target not in seen:
                seen.add(target)
                found.append(target)
    return frozenset(state for state in found if nfa.ranges[state] or state == Nfa.END)


class _Budget:
    """Steps that are left."""

    def __init__(self, steps: int) -> None:
        self._all = steps
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise InvalidArgumentError(
                f"making the automaton deterministic takes more than {self._all} steps"
            )
