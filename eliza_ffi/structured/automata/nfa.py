"""Nondeterministic finite automata over bytes: what expressions are put together as."""

from __future__ import annotations

from ...errors import InvalidArgumentError

__all__ = ["Nfa"]


class Nfa:
    """A nondeterministic automaton over bytes, under construction.

    It begins in :attr:`START`; a text that can lead to :attr:`END` is accepted. A *jump* leads from
    one state to another without reading a byte.
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
        """Let the bytes from first to last, both included, lead from a state to a target.

        Raises
        ------
        InvalidArgumentError
            If a state does not exist or these are not bytes in ascending order.
        """
        if not 0 <= first <= last <= 255:
            raise InvalidArgumentError(f"{first} to {last} is not a range of bytes")
        self._check_states(state, target)
        self.ranges[state].append((first, last, target))

    def add_jump(self, state: int, target: int) -> None:
        """Let a state lead to a target without a byte.

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
                    f"there is no state {state}: there are {len(self.jumps)}"
                )
