"""Compile regular expressions to automata over bytes, which match the whole text."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError
from .dfa import DEAD, Dfa
from .regex_syntax import Alternation, Characters, Node, Repetition, parse, shown
from .utf8_ranges import ByteRanges

__all__ = ["MOST_STATES", "compile_regex"]

MOST_STATES = 65_535
"""The maximum number of states. The native library stores state numbers in 16 bits."""

MOST_WORK = 2**23
"""The limit on the steps that make an automaton deterministic, which take one or two seconds.

A limit on the number of states does not limit the time, because each state of the deterministic
automaton is a set of states of the nondeterministic one, and these sets can be large.
"""


def compile_regex(pattern: str) -> Dfa:
    r"""Compile a regular expression in the syntax of :mod:`.regex_syntax`.

    Returns
    -------
    Dfa
        An automaton that accepts the UTF-8 bytes of matching text.

    Raises
    ------
    InvalidArgumentError
        If the pattern is malformed, has an unsupported construct, has more than 262,144 characters
        (or more parts than that once its repetitions are expanded), nests more than 50 groups, or
        repeats something more than 65,535 times. The message names the construct and its position,
        in characters from 0. The error is also raised if the automaton needs more than 65,535
        states, or more than 2**23 steps (one or two seconds) to become deterministic.

    Examples
    --------
    >>> date = compile_regex(r"\d{4}-\d\d-\d\d")
    >>> date.accepts(b"2024-02-29"), date.accepts(b"2024-02-29 ")
    (True, False)
    """
    nfa = _Nfa()
    nfa.add(parse(pattern), _Nfa.START, _Nfa.END)
    try:
        return _Determinizer(nfa).dfa().trimmed()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"cannot compile the pattern {shown(pattern)}: {error}"
        ) from None


class _Nfa:
    """A nondeterministic automaton over bytes, under construction (Thompson, 1968).

    It accepts the strings that can lead from `START` to `END`. A *jump* is a transition that reads
    no byte.
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

    def add(self, node: Node, start: int, end: int) -> None:
        """Add a node as transitions from `start` to `end`."""
        if isinstance(node, Characters):
            self._add_characters(node, start, end)
        elif isinstance(node, Alternation):
            for part in node.parts:
                self.add(part, start, end)
        elif isinstance(node, Repetition):
            self._add_repetition(node, start, end)
        else:
            for part in node.parts:
                start = self._appended(part, start)
            self.jumps[start].append(end)

    def _add_characters(self, node: Characters, start: int, end: int) -> None:
        # Characters whose last bytes have the same ranges share the states for these bytes. For
        # most multi-byte characters, the last range is 80 to BF.
        state_before: dict[ByteRanges, int] = {(): end}
        for sequence in node.sequences:
            for at in range(len(sequence) - 1, 0, -1):
                if sequence[at:] not in state_before:
                    state = state_before[sequence[at:]] = self.new_state()
                    self.ranges[state].append((*sequence[at], state_before[sequence[at + 1 :]]))
            self.ranges[start].append((*sequence[0], state_before[sequence[1:]]))

    def _add_repetition(self, node: Repetition, start: int, end: int) -> None:
        if node.most is None:
            for _ in range(node.least - 1):
                start = self._appended(node.part, start)
            begin = self.new_state()
            self.jumps[start].append(begin)
            again = self._appended(node.part, begin)
            self.jumps[again].append(begin)
            self.jumps[again if node.least else begin].append(end)
            return
        for _ in range(node.least):
            start = self._appended(node.part, start)
        for _ in range(node.most - node.least):
            # Jump directly to the end, not to the next optional copy: this keeps sets of states
            # small.
            self.jumps[start].append(end)
            start = self._appended(node.part, start)
        self.jumps[start].append(end)

    def _appended(self, node: Node, start: int) -> int:
        end = self.new_state()
        self.add(node, start, end)
        return end


class _Determinizer:
    """Makes an automaton deterministic, within limits of size and time."""

    def __init__(self, nfa: _Nfa) -> None:
        self._nfa = nfa
        self._n_left = MOST_WORK

    def dfa(self) -> Dfa:
        """Convert the automaton by the subset construction (Rabin and Scott, 1959)."""
        edges, classes = self._edges_over_classes()
        n_classes = int(classes[-1]) + 1
        first = self._without_jumps([_Nfa.START])
        subsets = [first]
        numbers = {first: 0}
        number_of_targets: dict[frozenset[int], int] = {}
        table = array("i")
        for subset in subsets:  # grows during the loop
            reached: dict[int, set[int]] = {}
            self._spend(n_classes)
            for state in subset:
                for of_classes, target in edges[state]:
                    self._spend(len(of_classes))
                    for of_class in of_classes:
                        reached.setdefault(of_class, set()).add(target)
            row = [DEAD] * n_classes
            for of_class, targets in reached.items():
                key = frozenset(targets)
                number = number_of_targets.get(key)
                if number is None:
                    following = self._without_jumps(key)
                    number = number_of_targets[key] = numbers.setdefault(following, len(subsets))
                    if number == len(subsets):
                        subsets.append(following)
                row[of_class] = number
            table.extend(row)
            if len(subsets) > MOST_STATES:
                raise InvalidArgumentError(
                    f"the deterministic automaton needs more than {MOST_STATES} states"
                )
        accepting = np.array([_Nfa.END in subset for subset in subsets])
        return Dfa(classes, np.array(table, dtype=np.int32).reshape(-1, n_classes), accepting)

    def _edges_over_classes(self) -> tuple[list[list[tuple[range, int]]], npt.NDArray[np.uint8]]:
        """Group bytes that are in the same ranges into classes.

        Return for each state its edges, as a range of classes and a target, and the class of each
        byte.
        """
        cuts = {0}
        for ranges in self._nfa.ranges:
            for first, last, _ in ranges:
                cuts |= {first, last + 1}
        classes = np.searchsorted(sorted(cuts - {256}), np.arange(256), side="right") - 1
        of = classes.tolist()
        edges = [
            [(range(of[first], of[last] + 1), target) for first, last, target in ranges]
            for ranges in self._nfa.ranges
        ]
        return edges, classes.astype(np.uint8)

    def _without_jumps(self, states: Iterable[int]) -> frozenset[int]:
        """Follow all jumps; return the states that read a byte or accept."""
        seen = set(states)
        found = list(seen)
        for state in found:  # grows during the loop
            self._spend(1 + len(self._nfa.jumps[state]))
            for target in self._nfa.jumps[state]:
                if target not in seen:
                    seen.add(target)
                    found.append(target)
        return frozenset(state for state in found if self._nfa.ranges[state] or state == _Nfa.END)

    def _spend(self, steps: int) -> None:
        self._n_left -= steps
        if self._n_left < 0:
            raise InvalidArgumentError(
                f"making the automaton deterministic takes more than {MOST_WORK} steps"
            )
