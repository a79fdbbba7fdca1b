"""Build automata from a transition function, by exploring the reachable states."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError
from .dfa import Dfa
from .tables import DEAD, MOST_STATES

__all__ = ["explored", "intersection"]

State = TypeVar("State", bound=Hashable)


def explored(
    start: State,
    step: Callable[[State, int], State | None],
    is_accepting: Callable[[State], bool],
    classes: npt.NDArray[np.uint8],
    max_states: int = MOST_STATES,
) -> Dfa | None:
    """Return the smallest automaton with these transitions, or None if it accepts no string.

    Parameters
    ----------
    start
        The start state.
    step
        Takes a state and a class of bytes. Returns the next state, or None if there is none.
    is_accepting
        Returns whether a string may end in a state.
    classes : uint8[256]
        The class of each byte.
    max_states
        The maximum number of reachable states.

    Raises
    ------
    InvalidArgumentError
        If more than `max_states` states can be reached.
    """
    n_classes = int(classes.max()) + 1
    numbers: dict[State, int] = {start: 0}
    found = [start]
    rows: list[list[int]] = []
    for state in found:  # grows during the loop
        row = [DEAD] * n_classes
        for of_class in range(n_classes):
            following = step(state, of_class)
            if following is None:
                continue
            number = numbers.setdefault(following, len(found))
            if number == len(found):
                found.append(following)
            row[of_class] = number
        rows.append(row)
        if len(found) > max_states:
            raise InvalidArgumentError(f"the automaton needs more than {max_states} states")
    accepting = np.array([is_accepting(state) for state in found])
    if not accepting.any():
        return None
    return Dfa(classes, np.array(rows, dtype=np.int32), accepting).minimized()


def intersection(first: Dfa, second: Dfa, max_states: int = MOST_STATES) -> Dfa | None:
    """Return the smallest automaton of the strings that both accept; None if they share none.

    Raises
    ------
    InvalidArgumentError
        If more than `max_states` pairs of states can be reached.
    """
    pairs = first.classes.astype(np.int64) * second.n_classes + second.classes
    _, lowest_byte, classes = np.unique(pairs, return_index=True, return_inverse=True)
    first_rows = first.transitions[:, first.classes[lowest_byte]].tolist()
    second_rows = second.transitions[:, second.classes[lowest_byte]].tolist()

    def step(state: tuple[int, int], of_class: int) -> tuple[int, int] | None:
        a = first_rows[state[0]][of_class]
        b = second_rows[state[1]][of_class]
        return None if DEAD in (a, b) else (a, b)

    def is_accepting(state: tuple[int, int]) -> bool:
        return bool(first.accepting[state[0]] and second.accepting[state[1]])

    return explored((0, 0), step, is_accepting, classes.reshape(256).astype(np.uint8), max_states)
