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
>>> number = json_number()
>>> number.accepts(b"-12.5e3"), number.accepts(b"007")
(True, False)
>>> number.shortest_completion(number.walk(b"1e"))
b'0'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._lazy import lazy_property
from ...errors import InvalidArgumentError
from .determinize import determinized
from .graph import distance_from_start, distance_to_accepting
from .minimize import minimal_tables, renumbered
from .nfa import Nfa
from .tables import DEAD, MOST_STATES, Tables, checked_tables

__all__ = ["Dfa"]

_DANGLING = "no accepting state can be reached from it"


@dataclass(frozen=True, eq=False)
class Dfa:
    """A deterministic automaton over bytes. The start state is 0.

    Two automata compare equal if their tables are equal. Minimized automata (see
    :meth:`minimized`) are equal if and only if they accept the same strings.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or -1 where there is none.
    accepting : bool[n_states]
        Whether a string may end in this state.

    Raises
    ------
    InvalidArgumentError
        If an array has the wrong shape or type, a class or state is out of range, no state is
        accepting, or there are more than 65,535 states or 256 classes.

    Notes
    -----
    The arrays are copied, and the copies are read-only.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        tables = checked_tables(self.classes, self.transitions, self.accepting)
        for name, values in tables._asdict().items():
            object.__setattr__(self, name, values)  # the dataclass is frozen

    @classmethod
    def from_nfa(cls, nfa: Nfa, max_states: int = MOST_STATES) -> Dfa:
        """Return the smallest deterministic automaton that accepts the same strings.

        Parameters
        ----------
        nfa
            An automaton that accepts at least one string.
        max_states
            The maximum number of states before equivalent states are merged, 1 to 65,535.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string, or a limit is exceeded.
        """
        if not 1 <= max_states <= MOST_STATES:
            raise InvalidArgumentError(
                f"max_states must be from 1 to {MOST_STATES}, got {max_states}"
            )
        return cls(*determinized(nfa, max_states)).minimized()

    @property
    def n_states(self) -> int:
        return int(self.transitions.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.transitions.shape[1])

    def walk(self, data: bytes, state: int = 0) -> int:
        """Return the state after some bytes, or -1 if no accepted string continues with them.

        Parameters
        ----------
        data
            The bytes; they may end inside a character.
        state
            The state to begin in. From -1 the result is always -1.

        Raises
        ------
        InvalidArgumentError
            If the state does not exist.
        """
        if state != DEAD:
            self._check_state(state)
        for byte in data:
            if state == DEAD:
                break
            state = int(self.transitions[state, self.classes[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """Return whether the automaton accepts these bytes."""
        state = self.walk(data)
        return state != DEAD and bool(self.accepting[state])

    def shortest_completion(self, state: int) -> bytes:
        """Return the shortest bytes that lead from a state to an accepting state.

        If several are equally short, return the first in byte order. Empty if the state accepts.

        Raises
        ------
        InvalidArgumentError
            If the state does not exist, or no accepting state can be reached from it.
        """
        self._check_state(state)
        left = self._distance_to_accepting[state]
        if left < 0:
            raise InvalidArgumentError(f"state {state}: {_DANGLING}")
        completion = bytearray()
        for closer in range(int(left) - 1, -1, -1):
            targets = self.transitions[state, self.classes]
            # Without the first comparison, -1 would index the distance of the last state.
            leads_on = (targets != DEAD) & (self._distance_to_accepting[targets] == closer)
            byte = int(np.argmax(leads_on))
            completion.append(byte)
            state = int(targets[byte])
        return bytes(completion)

    def validate(self) -> None:
        """Check that every state is useful, as the native library requires.

        Raises
        ------
        InvalidArgumentError
            If a state cannot be reached from state 0, or no accepting state can be reached from it.
            The message names the first such state.
        """
        for distance, problem in (
            (self._distance_from_start, "it cannot be reached from state 0"),
            (self._distance_to_accepting, _DANGLING),
        ):
            useless = np.flatnonzero(distance < 0)
            if useless.size:
                raise InvalidArgumentError(
                    f"state {useless[0]} of {self.n_states}: {problem}; trimmed() removes "
                    f"such states, of which there are {useless.size}"
                )

    def trimmed(self) -> Dfa:
        """Return the automaton without unreachable and dangling states, in the same order.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string.
        """
        kept = (self._distance_from_start >= 0) & (self._distance_to_accepting >= 0)
        if not kept[0]:
            raise InvalidArgumentError(
                "the automaton accepts no string: no accepting state can be reached from state 0"
            )
        if kept.all():
            return self
        return Dfa(*renumbered(self._tables, np.where(kept, kept.cumsum() - 1, DEAD)))

    def minimized(self) -> Dfa:
        """Return the automaton with the fewest states and classes that accepts the same strings.

        States are numbered in breadth-first order and classes by their lowest byte, so that
        automata that accept the same strings become equal.

        Raises
        ------
        InvalidArgumentError
            If the automaton accepts no string.
        """
        return Dfa(*minimal_tables(self.trimmed()._tables))

    def to_dict(self) -> dict[str, Any]:
        """Return the automaton as JSON data, as the native library reads a span's ``"dfa"``.

        Returns
        -------
        dict
            ``classes``: 256 numbers. ``transitions``: for each state, a list with the next state
            or -1 for each class. ``accepting``: the accepting states in ascending order.

        Raises
        ------
        InvalidArgumentError
            See :meth:`validate`.
        """
        self.validate()
        return {
            "classes": self.classes.tolist(),
            "transitions": self.transitions.tolist(),
            "accepting": np.flatnonzero(self.accepting).tolist(),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dfa):
            return NotImplemented
        return (
            np.array_equal(self.classes, other.classes)
            and np.array_equal(self.transitions, other.transitions)
            and np.array_equal(self.accepting, other.accepting)
        )

    def __hash__(self) -> int:
        return hash((self.transitions.tobytes(), self.accepting.tobytes()))

    def __repr__(self) -> str:
        return f"Dfa({self.n_states} states, {self.n_classes} classes)"

    def _check_state(self, state: int) -> None:
        if not 0 <= state < self.n_states:
            raise InvalidArgumentError(
                f"expected a state from 0 to {self.n_states - 1}, got {state}"
            )

    @property
    def _tables(self) -> Tables:
        return Tables(self.classes, self.transitions, self.accepting)

    @lazy_property
    def _distance_from_start(self) -> npt.NDArray[np.int64]:
        return distance_from_start(self._tables)

    @lazy_property
    def _distance_to_accepting(self) -> npt.NDArray[np.int64]:
        return distance_to_accepting(self._tables)
