"""A slow, obvious reader of GBNF: check whether a grammar accepts a string, or generate one.

It is the reference in tests of the grammars that are made from skeletons. It supports the syntax of
llama.cpp's parser, except token references and comments.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

_SPACE = re.compile(r"\s*")
_RULE = re.compile(r"\s*([A-Za-z0-9-]+)\s*::=")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_REPEAT = re.compile(r"[*+?]|\{(\d+)(,?)(\d*)\}")
_CHAR = re.compile(r"\\x(..)|\\u(....)|\\U(........)|\\(.)|(.)", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}

MANY = 3
"""A generated string repeats an item at most this many times more than the minimum."""


@dataclass(frozen=True)
class Chars:
    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def has(self, char: str) -> bool:
        return any(a <= char <= b for a, b in self.ranges) != self.negated


@dataclass(frozen=True)
class Rule:
    name: str


@dataclass(frozen=True)
class Repeat:
    item: object
    least: int
    most: int | None


class Gbnf:
    """A grammar whose start rule is ``root``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.rules: dict[str, list[list[object]]] = {}
        while self._text[self._at :].strip():
            match = _RULE.match(self._text, self._at)
            assert match, self._text[self._at : self._at + 40]
            self._at = match.end()
            self.rules[match[1]] = self._alternatives()
        self._ends: dict[tuple[int, int], frozenset[int]] = {}

    def accepts(self, text: str) -> bool:
        self._ends = {}
        return len(text) in self._rule_ends("root", text, 0)

    def make_up(self, rng: random.Random) -> str:
        """Return a random string that the grammar accepts."""
        return self._made(self.rules["root"], rng, 0)

    # ---- reading ------------------------------------------------------------------------------

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match
        self._at = match.end()

    def _alternatives(self) -> list[list[object]]:
        alternatives = [self._sequence()]
        while self._text[self._at : self._at + 1] == "|":
            self._at += 1
            alternatives.append(self._sequence())
        return alternatives

    def _sequence(self) -> list[object]:
        items: list[object] = []
        while True:
            self._skip()
            char = self._text[self._at : self._at + 1]
            if char in ("", "|", ")") or _RULE.match(self._text, self._at):
                return items
            item = self._item(char)
            repeat = _REPEAT.match(self._text, self._at)
            if repeat:
                self._at = repeat.end()
                item = Repeat(item, *_bounds(repeat))
            items.append(item)

    def _item(self, char: str) -> object:
        if char == "(":
            self._at += 1
            inner = self._alternatives()
            assert self._text[self._at] == ")"
            self._at += 1
            return inner
        if char == '"':
            self._at += 1
            text = ""
            while self._text[self._at] != '"':
                text += self._char()
            self._at += 1
            return text
        if char == "[":
            return self._class()
        match = _NAME.match(self._text, self._at)
        assert match, self._text[self._at : self._at + 40]
        self._at = match.end()
        return Rule(match[0])

    def _class(self) -> Chars:
        self._at += 1
        negated = self._text[self._at] == "^"
        self._at += negated
        ranges = []
        while self._text[self._at] != "]":
            first = last = self._char()
            if self._text[self._at] == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                last = self._char()
            ranges.append((first, last))
        self._at += 1
        return Chars(tuple(ranges), negated)

    def _char(self) -> str:
        match = _CHAR.match(self._text, self._at)
        assert match
        self._at = match.end()
        code = match[1] or match[2] or match[3]
        if code:
            return chr(int(code, 16))
        return _NAMED.get(match[4], match[4]) if match[4] else match[5]

    # ---- matching -----------------------------------------------------------------------------

    def _rule_ends(self, name: str, text: str, at: int) -> frozenset[int]:
        key = (hash(name), at)
        if key not in self._ends:
            self._ends[key] = self._item_ends(self.rules[name], text, at)
        return self._ends[key]

    def _item_ends(self, item: object, text: str, at: int) -> frozenset[int]:
        if isinstance(item, str):
            return frozenset({at + len(item)} if text.startswith(item, at) else ())
        if isinstance(item, Chars):
            return frozenset({at + 1} if at < len(text) and item.has(text[at]) else ())
        if isinstance(item, Rule):
            return self._rule_ends(item.name, text, at)
        if isinstance(item, Repeat):
            return self._repeat_ends(item, text, at)
        assert isinstance(item, list)
        ends: set[int] = set()
        for sequence in item:
            reached = {at}
            for each in sequence:
                reached = {end for start in reached for end in self._item_ends(each, text, start)}
            ends |= reached
        return frozenset(ends)

    def _repeat_ends(self, repeat: Repeat, text: str, at: int) -> frozenset[int]:
        ends: set[int] = set()
        reached, count = {at}, 0
        while reached and (repeat.most is None or count <= repeat.most):
            if count >= repeat.least:
                if reached <= ends:
                    break
                ends |= reached
            reached = {
                end for start in reached for end in self._item_ends(repeat.item, text, start)
            }
            count += 1
        return frozenset(ends)

    # ---- generating ---------------------------------------------------------------------------

    def _made(self, item: object, rng: random.Random, depth: int) -> str:
        if isinstance(item, str):
            return item
        if isinstance(item, Chars):
            return self._made_char(item, rng)
        if isinstance(item, Rule):
            return self._made(self.rules[item.name], rng, depth + 1)
        if isinstance(item, Repeat):
            most = item.least + MANY if item.most is None else min(item.most, item.least + MANY)
            most = item.least if depth > 12 else most
            count = rng.randint(item.least, most)
            return "".join(self._made(item.item, rng, depth) for _ in range(count))
        assert isinstance(item, list)
        # At a depth of more than 40 take the last alternative, to end the recursion.
        sequence = item[-1] if depth > 40 else rng.choice(item)
        return "".join(self._made(each, rng, depth) for each in sequence)

    def _made_char(self, chars: Chars, rng: random.Random) -> str:
        if chars.negated:
            while not chars.has(char := chr(rng.choice([rng.randint(0, 127), 0x20AC, 0x1F600]))):
                pass
            return char
        first, last = rng.choice(chars.ranges)
        code = rng.randint(ord(first), ord(last))
        return first if 0xD800 <= code <= 0xDFFF else chr(code)


def _bounds(match: re.Match[str]) -> tuple[int, int | None]:
    simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
    if match[0] in simple:
        return simple[match[0]]
    least = int(match[1])
    most = int(match[3]) if match[3] else (None if match[2] else least)
    return least, most
