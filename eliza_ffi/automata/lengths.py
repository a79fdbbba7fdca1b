"""Automata of the texts of another that have so many characters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import InvalidArgumentError
from .dfa import Dfa
from .minimize import renumbered
from .tables import DEAD, MOST_STATES, Tables

__all__ = ["with_length"]


def with_length(
    dfa: Dfa, fewest: int, most: int | None, max_states: int = MOST_STATES
) -> Dfa | None:
    """Return an automaton of the texts that have so many characters, or None if there are none.

    Parameters
    ----------
    dfa
        Of texts in UTF-8.
    fewest, most
        Both included; `most` is None where there is no limit.
    max_states
        The most states it may have before useless ones are dropped.

    Returns
    -------
    Dfa or None
        A copy of the automaton for each number of characters, as they are read. It is not the
        smallest: that takes longer than it is worth.

    Raises
    ------
    InvalidArgumentError
        If it needs more states.
    """
    n_counts = 1 + (fewest if most is None else most)
    n_states = dfa.n_states
    if n_counts * n_states > max_states:
        raise InvalidArgumentError(
            f"counting {n_counts - 1} characters needs {n_counts * n_states} states, more than "
            f"{max_states}"
        )
    # A byte that goes on with a character is told apart from one that begins it.
    begins = (np.arange(256) & 0xC0) != 0x80
    pairs = dfa.classes.astype(np.int64) * 2 + begins
    _, least_byte, classes = np.unique(pairs, return_index=True, return_inverse=True)
    inner = dfa.transitions[:, dfa.classes[least_byte]].astype(np.int64)
    transitions = np.full((n_counts, n_states, len(least_byte)), DEAD, dtype=np.int64)
    for count in range(n_counts):
        following = count + begins[least_byte].astype(np.int64)
        if most is None:
            following = np.minimum(following, n_counts - 1)
        alive = (inner != DEAD) & (following < n_counts)
        transitions[count] = np.where(alive, following * n_states + inner, DEAD)
    accepting = np.zeros((n_counts, n_states), dtype=bool)
    accepting[fewest:] = dfa.accepting
    kept = _useful(transitions, accepting).ravel()
    if not kept[0]:
        return None
    tables = Tables(
        classes.reshape(256).astype(np.uint8),
        transitions.reshape(n_counts * n_states, -1).astype(np.int32),
        accepting.ravel(),
    )
    return Dfa(*renumbered(tables, np.where(kept, kept.cumsum() - 1, DEAD)))


def _useful(
    transitions: npt.NDArray[np.int64], accepting: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which states are reached and lead to an accepting one: bool[n_counts, n_states]."""
    n_counts, n_states, _ = transitions.shape
    reached = np.zeros(n_counts * n_states, dtype=bool)
    reached[0] = True
    leads = accepting.ravel().copy()
    # Counts only rise, so that each needs to be looked at until nothing changes in it, once.
    for count in range(n_counts):
        level = slice(count * n_states, (count + 1) * n_states)
        while True:
            before = int(reached[level].sum())
            targets = transitions[count][reached[level]]
            reached[targets[targets != DEAD]] = True
            if int(reached[level].sum()) == before:
                break
    for count in reversed(range(n_counts)):
        level = slice(count * n_states, (count + 1) * n_states)
        targets = transitions[count]
        while True:
            before = int(leads[level].sum())
            leads[level] |= ((targets != DEAD) & leads[targets]).any(axis=1)
            if int(leads[level].sum()) == before:
                break
    useful: npt.NDArray[np.bool_] = (reached & leads).reshape(n_counts, n_states)
    return useful
