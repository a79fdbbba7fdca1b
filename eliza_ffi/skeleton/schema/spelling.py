"""Shapes as automata: which texts a shape may be written as."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...automata import DEAD, Dfa, Nfa, json_integer, json_number, json_string
from ...errors import InvalidArgumentError
from ..json_text import json_text
from .shapes import (
    Array,
    Known,
    Listed,
    Map,
    Number,
    Object,
    Plain,
    Shape,
    Text,
    Union,
    any_value,
)
from .strings import LONGEST_STRING, body_dfa

__all__ = ["DEEPEST_VALUE", "MOST_STATES", "Speller"]

MOST_STATES = 2**13
"""The most states of all automata of a schema together: they take about a second."""

MOST_WORK = 2**20
"""The most steps that making one of them deterministic may take."""

DEEPEST_VALUE = 2
"""The most arrays and objects within each other of any value inside an automaton."""

MOST_COUNTING_STATES = 2**15
"""The most states with which all strings of a schema that stand alone count their characters."""

LONGEST_TEXT = 100
"""The most characters of a string that has limits, inside an automaton."""


class Speller:
    """Makes automata of shapes, and keeps them: shapes of a schema often are the same."""

    def __init__(self) -> None:
        self._made: dict[Shape, Dfa] = {}
        self._bodies: dict[Text, Dfa] = {}
        self._states_left = MOST_STATES
        self._counting_left = MOST_COUNTING_STATES

    def dfa(self, shape: Shape) -> Dfa:
        """Return the automaton of a shape's texts.

        Raises
        ------
        InvalidArgumentError
            If it needs too many states, together with those before it.
        """
        if shape not in self._made:
            nfa = _Builder(2 * self._states_left)
            nfa.add(shape, Nfa.START, Nfa.END)
            try:
                made = Dfa.from_nfa(nfa, self._states_left, MOST_WORK)
            except InvalidArgumentError:
                raise _too_large() from None
            self._states_left -= made.n_states
            self._made[shape] = made
        return self._made[shape]

    def body(self, text: Text) -> Dfa:
        """Return the automaton of a string's inside, where the string stands alone.

        Of a string that may be long, as much is counted as all strings before it have left.

        Raises
        ------
        InvalidArgumentError
            If they have left too little.
        """
        if text not in self._bodies:
            longest = min(
                LONGEST_STRING, self._counting_left // body_dfa(Text(text.patterns)).n_states
            )
            made = body_dfa(text, max(longest, LONGEST_TEXT))
            self._counting_left -= made.n_states
            if self._counting_left < 0:
                raise _too_large()
            self._bodies[text] = made
        return self._bodies[text]


class _Builder(Nfa):
    """An automaton of shapes, up to a number of states."""

    def __init__(self, max_states: int) -> None:
        super().__init__()
        self._max_states = max_states

    def new_state(self) -> int:
        if len(self.jumps) >= self._max_states:
            raise _too_large()
        return super().new_state()

    def add(self, shape: Shape, start: int, end: int) -> None:
        """Let every text of a shape lead from start to end."""
        if isinstance(shape, Known):
            self.add_texts((shape.text,), start, end)
        elif isinstance(shape, Listed):
            self.add_texts(map(json_text, shape.values), start, end)
        elif isinstance(shape, Plain):
            self._add_plain(shape.kind, start, end)
        elif isinstance(shape, Text):
            opened = self._behind(start, '"')
            closing = self.new_state()
            self.add_dfa(body_dfa(shape, LONGEST_TEXT), opened, closing)
            self.add_texts(('"',), closing, end)
        elif isinstance(shape, Number):
            self.add_dfa(shape.dfa, start, end)
        elif isinstance(shape, Object):
            self._add_object(shape, start, end)
        elif isinstance(shape, Map):
            pair = (shape.name, shape.value)
            self._add_row("{}", lambda i: pair, shape.fewest, shape.most, start, end)
        elif isinstance(shape, Array):
            self._add_array(shape, start, end)
        elif isinstance(shape, Union):
            for option in shape.options:
                self.add(option, start, end)

    def add_texts(self, texts: Iterable[str], start: int, end: int) -> None:
        """Let each of some texts lead from start to end; those that begin alike share states."""
        known: dict[tuple[int, int], int] = {}
        for text in texts:
            state = start
            *head, last = text.encode()
            for byte in head:
                if (state, byte) not in known:
                    following = known[state, byte] = self.new_state()
                    self.add_range(state, byte, byte, following)
                state = known[state, byte]
            self.add_range(state, last, last, end)

    def add_dfa(self, dfa: Dfa, start: int, end: int) -> None:
        """Let each text of an automaton lead from start to end."""
        copies = [self.new_state() for _ in range(dfa.n_states)]
        self.add_jump(start, copies[0])
        runs = list(_runs(dfa.classes.tolist()))
        for state, row in enumerate(dfa.transitions.tolist()):
            for first, last, of_class in runs:
                if row[of_class] != DEAD:
                    self.add_range(copies[state], first, last, copies[row[of_class]])
            if dfa.accepting[state]:
                self.add_jump(copies[state], end)

    def _add_plain(self, kind: str, start: int, end: int) -> None:
        if kind == "boolean":
            self.add_texts(("true", "false"), start, end)
        elif kind == "free-json":
            self.add(any_value(DEEPEST_VALUE), start, end)
        else:
            dfas = {"free-string": json_string, "number": json_number, "integer": json_integer}
            self.add_dfa(dfas[kind](), start, end)

    def _add_object(self, shape: Object, start: int, end: int) -> None:
        opening = "{"
        for name, inner in shape.fields:
            start = self._behind(start, f"{opening}{json_text(name)}:")
            following = self.new_state()
            self.add(inner, start, following)
            start, opening = following, ","
        self.add_texts((opening + "}" if opening == "{" else "}",), start, end)

    def _add_array(self, shape: Array, start: int, end: int) -> None:
        if shape.is_distinct:
            assert isinstance(shape.rest, Listed)
            self._add_distinct(shape.rest, shape.fewest, shape.most, start, end)
            return
        most = shape.most if shape.rest is not None else len(shape.first)

        def item(i: int) -> tuple[Shape, ...]:
            inner = shape.first[i] if i < len(shape.first) else shape.rest
            assert inner is not None
            return (inner,)

        self._add_row("[]", item, shape.fewest, most, start, end, len(shape.first))

    def _add_distinct(
        self, items: Listed, fewest: int, most: int | None, start: int, end: int
    ) -> None:
        """Add an array of some of the items, each at most once, in their order."""
        opened = self._behind(start, "[")
        if fewest == 0:
            self.add_texts("]", opened, end)
        n_counted = max(fewest, 1) if most is None else most
        # How many have been written, and which the next may be at the earliest.
        states = {(0, 0): opened}
        for count, first in (
            (c, i) for c in range(n_counted + 1) for i in range(len(items.values))
        ):
            if (count, first) not in states:
                continue
            for i, value in enumerate(items.values[first:], first):
                following = count + 1 if most is not None else min(count + 1, n_counted)
                if following > n_counted:
                    break
                key = (following, i + 1)
                if key not in states:
                    states[key] = self.new_state()
                comma = "," if count else ""
                self.add_texts((comma + json_text(value),), states[count, first], states[key])
        for (count, _), state in states.items():
            if count >= max(fewest, 1):
                self.add_texts("]", state, end)

    def _add_row(
        self,
        brackets: str,
        item: Callable[[int], tuple[Shape, ...]],
        fewest: int,
        most: int | None,
        start: int,
        end: int,
        n_first: int = 0,
    ) -> None:
        """Add items with commas between them; an item of two shapes has a colon between them."""
        opened = self._behind(start, brackets[0])
        if fewest == 0:
            self.add_texts(brackets[1], opened, end)
        if most == 0:
            return
        begin = self.new_state()
        self.add_jump(opened, begin)
        n_copies = max(fewest, n_first + 1, 1) if most is None else most
        for i in range(n_copies):
            following = begin
            for n, inner in enumerate(item(i)):
                if n:
                    following = self._behind(following, ":")
                behind = self.new_state()
                self.add(inner, following, behind)
                following = behind
            if i + 1 >= fewest:
                self.add_texts(brackets[1], following, end)
            if i + 1 < n_copies:
                begin = self._behind(following, ",")
            elif most is None:
                self.add_texts(",", following, begin)

    def _behind(self, start: int, text: str) -> int:
        end = self.new_state()
        self.add_texts((text,), start, end)
        return end


def _runs(classes: list[int]) -> Iterable[tuple[int, int, int]]:
    """Yield the first and last byte of each run of bytes of one class, and that class."""
    first = 0
    for byte in range(1, 257):
        if byte == 256 or classes[byte] != classes[first]:
            yield first, byte - 1, classes[first]
            first = byte


def _too_large() -> InvalidArgumentError:
    return InvalidArgumentError(
        f"what may stand here is too much for an automaton: together they may have {MOST_STATES} "
        f"states, and strings, counted items and choices of large objects take many"
    )
