"""Convert nondeterministic automata to deterministic ones, within limits of size and time."""

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
"""The default limit on the steps of a conversion, which take one or two seconds.

A limit on the number of states does not limit the time, because each state of the deterministic
automaton is a set of states of the nondeterministic one, and these sets can be large.
"""


def determinized(nfa: Nfa, max_states: int) -> Tables:
    """Convert an automaton by the subset construction (Rabin and Scott, 1959).

    Parameters
    ----------
    nfa
    max_states
        The maximum number of states of the result.

    Raises
    ------
    InvalidArgumentError
        If the automaton accepts no string, or a limit is exceeded.
    """
    edges, classes = _edges_over_classes(nfa)
    n_classes = int(classes[-1]) + 1
    budget = _Budget(MOST_WORK)
    first = _without_jumps(nfa, [Nfa.START], budget)
    subsets = [first]
    numbers = {first: 0}
    number_of_targets: dict[frozenset[int], int] = {}
    table = array("i")
    for subset in subsets:  # grows during the loop
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
                f"the deterministic automaton needs more than {max_states} states"
            )
    accepting = np.array([Nfa.END in subset for subset in subsets])
    if not accepting.any():
        raise InvalidArgumentError("the automaton accepts no string")
    return Tables(classes, np.array(table, dtype=np.int32).reshape(-1, n_classes), accepting)


def _edges_over_classes(
    nfa: Nfa,
) -> tuple[list[list[tuple[range, int]]], npt.NDArray[np.uint8]]:
    """Group bytes that are in the same ranges into classes.

    Returns
    -------
    list, array
        For each state, its edges as a range of classes and a target. The class of each byte.
    """
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
    """Follow all jumps; return the states that read a byte or accept."""
    seen = set(states)
    found = list(seen)
    for state in found:  # grows during the loop
        budget.spend(1 + len(nfa.jumps[state]))
        for target in nfa.jumps[state]:
            if target not in seen:
                seen.add(target)
                found.append(target)
    return frozenset(state for state in found if nfa.ranges[state] or state == Nfa.END)


class _Budget:
    """Counts down the remaining steps."""

    def __init__(self, steps: int) -> None:
        self._all = steps
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise InvalidArgumentError(
                f"making the automaton deterministic takes more than {self._all} steps"
            )
