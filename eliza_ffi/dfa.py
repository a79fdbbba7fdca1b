"""Deterministic finite automata over bytes: which texts may stand in a free span.

An automaton reads the UTF-8 bytes of a text. A byte has a *class*, and the class leads from one
state to the next::

    state = 0
    for byte in text:
        state = transitions[state, classes[byte]]     # -1: no text goes on like this
    accepted = state != -1 and accepting[state]

Classes are bytes that no state tells apart: most automata have a dozen, so that the table is
small and the native library reads it from the cache.

>>> number = json_number()
>>> number.accepts(b"-12.5e3"), number.accepts(b"007")
(True, False)
>>> number.shortest_completion(number.walk(b"1e"))
b'0'
"""

from __future__ import annotations

import functools
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidArgumentError

__all__ = ["DEAD", "MOST_STATES", "Dfa", "Nfa", "json_integer", "json_number", "json_string"]

DEAD = -1
"""The next state where there is none."""

MOST_STATES = 65_535
"""The most states an automaton may have: the native library numbers them in 16 bits."""

MOST_CLASSES = 256
"""No two bytes need share a class; more classes than bytes would have no bytes."""

MOST_WORK = 2**23
"""The most steps that making an automaton deterministic may take: some seconds.

The number of states alone is no limit on the time: a state of the deterministic automaton stands
for a set of states of the other, and these can be large.
"""


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
        classes = _checked_array("classes", self.classes, "iu", "256 whole numbers", 1)
        transitions = _checked_array(
            "transitions", self.transitions, "iu", "whole numbers[n_states, n_classes]", 2
        )
        accepting = _checked_array("accepting", self.accepting, "b", "bool[n_states]", 1)
        _check_tables(classes, transitions, accepting)
        for name, values, dtype in (
            ("classes", classes, np.uint8),
            ("transitions", transitions, np.int32),
            ("accepting", accepting, np.bool_),
        ):
            owned = np.array(values, dtype=dtype, order="C")
            owned.flags.writeable = False
            object.__setattr__(self, name, owned)  # the dataclass is frozen

    @classmethod
    def from_nfa(cls, nfa: Nfa, max_states: int = MOST_STATES) -> Dfa:
        """Return the smallest automaton that accepts the same texts.

        Parameters
        ----------
        nfa
            Any automaton that accepts at least one text.
        max_states
            The most states that may be needed, 1 to 65,535, counted before equivalent ones are
            merged.

        Raises
        ------
        InvalidArgumentError
            If no text is accepted, more states are needed, or making it deterministic takes more
            than 2**23 steps.
        """
        if not 1 <= max_states <= MOST_STATES:
            raise InvalidArgumentError(f"max_states is {max_states}, outside 1 to {MOST_STATES}")
        return cls(*_determinized(nfa, max_states)).minimized()

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
        return Dfa(self.classes, *_merged_states(self, np.where(kept, kept.cumsum() - 1, DEAD)))

    def minimized(self) -> Dfa:
        """Return the one automaton of fewest states and classes that accepts the same texts.

        Its states are numbered as a breadth-first search finds them, its classes by their least
        byte, so that automata of the same texts become equal.

        Raises
        ------
        InvalidArgumentError
            If no text is accepted.
        """
        trimmed = self.trimmed()
        # Fewer columns make the partition faster; merged states make columns equal in turn.
        trimmed = Dfa(*_merged_classes(trimmed.classes, trimmed.transitions), trimmed.accepting)
        transitions, accepting = _merged_states(trimmed, _equivalence(trimmed))
        classes, transitions = _merged_classes(trimmed.classes, transitions)
        merged = Dfa(classes, transitions, accepting)
        return Dfa(classes, *_merged_states(merged, _breadth_first_numbers(transitions)))

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

    @functools.cached_property
    def _distance_from_start(self) -> npt.NDArray[np.int64]:
        sources, targets = _moves(self.transitions)
        return _distances(_grouped(sources, targets, self.n_states), [0])

    @functools.cached_property
    def _distance_to_accepting(self) -> npt.NDArray[np.int64]:
        sources, targets = _moves(self.transitions)
        accepting = np.flatnonzero(self.accepting).tolist()
        return _distances(_grouped(targets, sources, self.n_states), accepting)


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


@functools.cache
def json_string() -> Dfa:
    r"""Return the automaton of a JSON string (RFC 8259, section 7) with its quotes.

    Narrower than the grammar in one thing: the text always decodes to valid Unicode. An escaped
    high surrogate is followed by an escaped low one, a low one stands nowhere else, and the bytes
    are UTF-8.
    """
    unescaped = r'[^"\\\x00-\x1F]'
    short = r'\\["\\/bfnrt]'
    not_surrogate = r"\\u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2}"
    pair = r"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}"
    return _compiled(f'"(?:{unescaped}|{short}|{not_surrogate}|{pair})*"')


@functools.cache
def json_number() -> Dfa:
    """Return the automaton of a JSON number (RFC 8259, section 6)."""
    return _compiled(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[Ee][+-]?\d+)?")


@functools.cache
def json_integer() -> Dfa:
    """Return the automaton of a JSON number without a fraction and an exponent."""
    return _compiled(r"-?(?:0|[1-9]\d*)")


def _compiled(pattern: str) -> Dfa:
    from .regex import compile_regex  # which is built on this module

    return compile_regex(pattern)


_DANGLING = "no accepting state can be reached from it"


def _checked_array(
    name: str, values: Any, kinds: str, described: str, n_dims: int
) -> npt.NDArray[Any]:
    try:
        checked = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} must be {described}: {error}") from None
    if checked.ndim != n_dims or checked.dtype.kind not in kinds:
        raise InvalidArgumentError(
            f"{name} must be {described}, not {checked.dtype}{list(checked.shape)}"
        )
    return checked


def _check_tables(
    classes: npt.NDArray[Any], transitions: npt.NDArray[Any], accepting: npt.NDArray[Any]
) -> None:
    n_states, n_classes = transitions.shape
    if not 1 <= n_states <= MOST_STATES:
        raise InvalidArgumentError(f"there are {n_states} states, outside 1 to {MOST_STATES}")
    if not 1 <= n_classes <= MOST_CLASSES:
        raise InvalidArgumentError(f"there are {n_classes} classes, outside 1 to {MOST_CLASSES}")
    if len(classes) != 256:
        raise InvalidArgumentError(f"classes has {len(classes)} numbers, not one for each byte")
    if len(accepting) != n_states:
        raise InvalidArgumentError(
            f"accepting is for {len(accepting)} states, but transitions for {n_states}"
        )
    wrong = np.flatnonzero((classes < 0) | (classes >= n_classes))
    if wrong.size:
        raise InvalidArgumentError(
            f"byte 0x{wrong[0]:02X} has class {classes[wrong[0]]}, outside 0 to {n_classes - 1}"
        )
    wrong_moves = np.argwhere((transitions < DEAD) | (transitions >= n_states))
    if wrong_moves.size:
        state, of_class = wrong_moves[0]
        raise InvalidArgumentError(
            f"state {state} leads to state {transitions[state, of_class]} on class {of_class}, "
            f"outside -1 to {n_states - 1}"
        )
    if not accepting.any():
        raise InvalidArgumentError(f"none of the {n_states} states is accepting")


def _moves(transitions: npt.NDArray[np.int32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the pairs of a state and another that some byte leads to, each once."""
    n_states, n_classes = transitions.shape
    sources = np.repeat(np.arange(n_states, dtype=np.int64), n_classes)
    targets = transitions.ravel()
    alive = targets != DEAD
    pairs = np.unique(sources[alive] * n_states + targets[alive])
    return pairs // n_states, pairs % n_states


def _grouped(keys: npt.NDArray[Any], values: npt.NDArray[Any], n_keys: int) -> list[list[int]]:
    """Return the values of each key."""
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(n_keys + 1)).tolist()
    ordered = values[order].tolist()
    return [ordered[begin:end] for begin, end in pairwise(bounds)]


def _distances(neighbours: list[list[int]], starts: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return the fewest steps from any start to each state, -1 where there is no way."""
    distances = [-1] * len(neighbours)
    found = deque(starts)
    for state in found:
        distances[state] = 0
    while found:
        state = found.popleft()
        for neighbour in neighbours[state]:
            if distances[neighbour] < 0:
                distances[neighbour] = distances[state] + 1
                found.append(neighbour)
    return np.array(distances, dtype=np.int64)


def _merged_states(
    dfa: Dfa, numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Number states anew, without gaps; those of one number become one, those of -1 are dropped."""
    kept = np.flatnonzero(numbers != DEAD)
    _, first = np.unique(numbers[kept], return_index=True)
    old = kept[first]
    renumbered = np.append(numbers, DEAD)[dfa.transitions[old]]  # -1 leads to the last entry
    return renumbered.astype(np.int32), dfa.accepting[old]


def _merged_classes(
    classes: npt.NDArray[np.uint8], transitions: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Make classes of equal columns one, numbered by their least byte; drop those of no byte."""
    columns = [column.tobytes() for column in transitions.T]
    numbers: dict[bytes, int] = {}
    merged = [numbers.setdefault(columns[of_class], len(numbers)) for of_class in classes]
    _, least_byte = np.unique(merged, return_index=True)
    return np.array(merged, dtype=np.uint8), transitions[:, classes[least_byte]]


def _equivalence(dfa: Dfa) -> npt.NDArray[np.int64]:
    """Return a number for each state, the same for those that accept the same texts from there on.

    They are numbered as their first states are, so that state 0 stays 0.

    A block of states is split by where their bytes lead, as in Moore's algorithm. As in Hopcroft's,
    the largest part keeps its number, and only states that lead into the others are looked at
    again: a state is at most log2(n) times in a smaller part. Moore's alone needs as many rounds
    over all states as the longest repetition. (Jacobs and Wissmann, "Fast Coalgebraic Bisimilarity
    Minimization", POPL 2023.)
    """
    rows = dfa.transitions.tolist()
    sources, targets = _moves(dfa.transitions)
    predecessors = _grouped(targets, sources, dfa.n_states)
    block = [*dfa.accepting.astype(int).tolist(), DEAD]  # -1 leads to the last entry
    members = [{state for state in range(dfa.n_states) if block[state] == b} for b in (0, 1)]
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


def _determinized(
    nfa: Nfa, max_states: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Make a state of every set of states that some text leads to (Rabin and Scott, 1959)."""
    edges, classes = _edges_over_classes(nfa)
    n_classes = int(classes[-1]) + 1
    budget = _Budget()
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
    return classes, np.array(table, dtype=np.int32).reshape(-1, n_classes), accepting


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

    def __init__(self) -> None:
        self._left = MOST_WORK

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise InvalidArgumentError(
                f"making the automaton deterministic takes more than {MOST_WORK} steps"
            )
