"""Deterministic finite automata over bytes: which texts may stand in a free span.

An automaton reads the UTF-8 bytes of a text. A byte has a *class*, and the class leads from one
state to the next::

    state = 0
    for byte in text:
        state = transitions[state, classes[byte]]     # -1: no text goes on like this
    accepted = state != -1 and accepting[state]

Classes are bytes that no state tells apart: most automata have a dozen, so that the table is
small and the native library reads it from the cache.

>>> from eliza_ffi.structured.automata import json_number
>>> number = json_number()
>>> number.accepts(b"-12.5e3"), number.accepts(b"007")
(True, False)
>>> number.shortest_completion(number.walk(b"1e"))
b'0'
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
    """A deterministic automaton over bytes. It begins in state 0.

    Two automata are equal if their tables are. Those that :meth:`minimized` returns are equal
    exactly if they accept the same texts.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or -1 where there is none.
    accepting : bool[n_states]
        Whether the text may end here.

    Raises
    ------
    InvalidArgumentError
        If an array has another shape or kind, a class or state is out of range, no state is
        accepting, or there are more than 65,535 states or 256 classes. The arrays are copied and
        cannot be written to.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        tables = checked_tables(self.classes, self.transitions, self.accepting)
        for name, values in tables._asdict().items():
            object.__setattr__(self, name, values)  # the dataclass is frozen

    @classmethod
    def from_nfa(cls, nfa: Nfa, max_states: int = MOST_STATES, max_work: int | None = None) -> Dfa:
        """Return the smallest automaton that accepts the same texts.

        Parameters
        ----------
        nfa
            Any automaton that accepts at least one text.
        max_states
            The most states that may be needed, 1 to 65,535, counted before equivalent ones are
            merged.
        max_work
            The most steps that making it deterministic may take: 2**23 if None, some seconds.

        Raises
        ------
        InvalidArgumentError
            If no text is accepted, more states are needed, or making it deterministic takes more
            than `max_work` steps.
        """
        if not 1 <= max_states <= MOST_STATES:
            raise InvalidArgumentError(f"max_states is {max_states}, outside 1 to {MOST_STATES}")
        return cls(*determinized(nfa, max_states, max_work)).minimized()

    @property
    def n_states(self) -> int:
        return int(self.transitions.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.transitions.shape[1])

    def walk(self, data: bytes, state: int = 0) -> int:
        """Return the state after some bytes, or -1 where no text goes on like this.

        Parameters
        ----------
        data
            Need not be whole characters.
        state
            Where to begin; -1 stays -1.

        Raises
        ------
        InvalidArgumentError
            If there is no such state.
        """
        if state != DEAD:
            self._check_state(state)
        for byte in data:
            if state == DEAD:
                break
            state = int(self.transitions[state, self.classes[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """Return whether these bytes are a whole text."""
        state = self.walk(data)
        return state != DEAD and bool(self.accepting[state])

    def shortest_completion(self, state: int) -> bytes:
        """Return the fewest bytes that lead from a state to an accepting one.

        Where several are as short, the first as bytes sort. Empty if the state is accepting.

        Raises
        ------
        InvalidArgumentError
            If there is no such state, or nothing leads from it to an accepting one.
        """
        self._check_state(state)
        left = self._distance_to_accepting[state]
        if left < 0:
            raise InvalidArgumentError(f"state {state} is dangling: {_DANGLING}")
        completion = bytearray()
        for closer in range(int(left) - 1, -1, -1):
            targets = self.transitions[state, self.classes]
            # -1 would read the last state's distance.
            leads_on = (targets != DEAD) & (self._distance_to_accepting[targets] == closer)
            byte = int(np.argmax(leads_on))
            completion.append(byte)
            state = int(targets[byte])
        return bytes(completion)

    def validate(self) -> None:
        """Check that every state is of use, as the native library wants it.

        Raises
        ------
        InvalidArgumentError
            If a state cannot be reached from state 0, or leads to no accepting state. The message
            names the first.
        """
        for distance, problem in (
            (self._distance_from_start, "unreachable: no text leads to it"),
            (self._distance_to_accepting, f"dangling: {_DANGLING}"),
        ):
            useless = np.flatnonzero(distance < 0)
            if useless.size:
                raise InvalidArgumentError(
                    f"state {useless[0]} of {self.n_states} is {problem}; trimmed() drops "
                    f"{useless.size} such states"
                )

    def trimmed(self) -> Dfa:
        """Return the automaton without unreachable and dangling states; the order stays.

        Raises
        ------
        InvalidArgumentError
            If no text is accepted.
        """
        kept = (self._distance_from_start >= 0) & (self._distance_to_accepting >= 0)
        if not kept[0]:
            raise InvalidArgumentError(
                "the automaton accepts no text: no accepting state can be reached from state 0"
            )
        if kept.all():
            return self
        return Dfa(*renumbered(self._tables, np.where(kept, kept.cumsum() - 1, DEAD)))

    def minimized(self) -> Dfa:
        """Return the one automaton of fewest states and classes that accepts the same texts.

        Its states are numbered as a breadth-first search finds them, its classes by their least
        byte, so that automata of the same texts become equal.

        Raises
        ------
        InvalidArgumentError
            If no text is accepted.
        """
        return Dfa(*minimal_tables(self.trimmed()._tables))

    def to_dict(self) -> dict[str, Any]:
        """Return what the native library reads as the ``"dfa"`` of a span, ready for JSON.

        Returns
        -------
        dict
            ``classes``: 256 numbers; ``transitions``: a list for each state, with the next state
            or -1 for each class; ``accepting``: the numbers of the accepting states, ascending.

        Raises
        ------
        InvalidArgumentError
            As :meth:`validate`.
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
            raise InvalidArgumentError(f"there is no state {state}: there are {self.n_states}")

    @property
    def _tables(self) -> Tables:
        return Tables(self.classes, self.transitions, self.accepting)

    @functools.cached_property
    def _distance_from_start(self) -> npt.NDArray[np.int64]:
        return distance_from_start(self._tables)

    @functools.cached_property
    def _distance_to_accepting(self) -> npt.NDArray[np.int64]:
        return distance_to_accepting(self._tables)
