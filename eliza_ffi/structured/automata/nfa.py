"""Nondeterministic finite automata over bytes, the first step in compiling an expression."""

from __future__ import annotations

from ...errors import InvalidArgumentError

__all__ = ["Nfa"]


class Nfa:
    """A nondeterministic automaton over bytes, under construction.

    It accepts the strings that can lead from :attr:`START` to :attr:`END`. A *jump* is a transition
    that reads no byte.
    """

    START = 0
    END = 1

    def __init__(self) -> None:
        self.ranges: list[list[tuple[int, int, int]]] = [[], []]  # first byte, last byte, target
        self.jumps: list[list[int]] = [[], []]

    def new_state(self) -> int:
        self.ranges.append([])
        self.jumps.append([])
        return len(self.jumps) - 1

    def add_range(self, state: int, first: int, last: int, target: int) -> None:
        """Add a transition for the bytes from `first` to `last`, both included.

        Raises
        ------
        InvalidArgumentError
            If a state does not exist, or `first` and `last` are not bytes in ascending order.
        """
        if not 0 <= first <= last <= 255:
            raise InvalidArgumentError(
                f"expected a range of bytes within 0 to 255, got {first} to {last}"
            )
        self._check_states(state, target)
        self.ranges[state].append((first, last, target))

    def add_jump(self, state: int, target: int) -> None:
        """Add a transition that reads no byte.

        Raises
        ------
        InvalidArgumentError
            If a state does not exist.
        """
        self._check_states(state, target)
        self.jumps[state].append(target)

    def _check_states(self, *states: int) -> None:
        for state in states:
            if not 0 <= state < len(self.jumps):
                raise InvalidArgumentError(
                    f"expected a state from 0 to {len(self.jumps) - 1}, got {state}"
                )
