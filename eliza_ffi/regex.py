r"""Regular expressions as automata over bytes, matched against the whole text.

The syntax is what Python and ECMAScript share and mean alike, as far as it is regular:

===================================  =============================================================
``a`` ``é`` ``😀``                   the character; outside these rows, any character but ``\ ( ) [
                                     * + ? | ^ $ .`` stands for itself
``.``                                any character but a line feed
``[a-z_]`` ``[^0-9]``                a character of a class, or any outside it; ``]`` and ``\`` are
                                     escaped
``\d`` ``\w`` ``\s``                 ``[0-9]``, ``[A-Za-z0-9_]``, ``[ \t\n\r\f\v]``: ASCII only
``\D`` ``\W`` ``\S``                 any character outside those, such as ``é`` for ``\W``
``\n \r \t \f \v \0``                line feed, carriage return, tab, form feed, vertical tab, NUL
``\xHH`` ``\uHHHH``                  the character of that number; two ``\u`` that make a surrogate
``\UHHHHHHHH`` ``\u{H...}``          pair are one character
``\.`` ``\*`` ``\/`` ...             the punctuation itself
``x*`` ``x+`` ``x?``                 any number, at least one, at most one
``x{m}`` ``x{m,}`` ``x{m,n}``        m, m or more, m to n. A ``?`` behind these changes nothing: a
                                     set of texts has no greed
``xy`` ``x|y``                       one behind the other, either
``(x)`` ``(?:x)`` ``(?P<n>x)``       groups; nothing is captured
``(?<n>x)``
``^x$``                              accepted around the pattern and its alternatives, and change
                                     nothing: the whole text is matched anyhow
===================================  =============================================================

Whatever else these languages have is an error that names it and its place: what is not regular
(backreferences, lookaround), what they read differently (``{,n}``, ``[]a]``, ``\a``), and flags,
word boundaries and Unicode properties. A character is a Unicode scalar value; surrogates alone
match nothing, since no UTF-8 has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .dfa import MOST_STATES, Dfa, Nfa
from .errors import InvalidArgumentError

__all__ = ["compile_regex", "utf8_sequences"]

MOST_NESTED_GROUPS = 50
"""The parser calls itself a few times for a group, and Python allows 1,000 calls."""

MOST_REPETITIONS = MOST_STATES
"""An automaton counts with its states."""

MOST_PARTS = 2**18
"""The most characters of a pattern, and parts of it with its counted repetitions written out."""

LAST_CODE_POINT = 0x10FFFF

CodePoints = tuple[tuple[int, int], ...]
"""Ranges from the first to the last code point, both included; ascending and apart."""

_ByteRanges = tuple[tuple[int, int], ...]


def compile_regex(pattern: str, max_states: int = MOST_STATES) -> Dfa:
    r"""Compile a regular expression, in the syntax at the top of this module.

    Parameters
    ----------
    pattern
        What the whole text must match.
    max_states
        The most states that may be needed, 1 to 65,535, counted before equivalent ones are merged.

    Returns
    -------
    Dfa
        The smallest one. It reads the UTF-8 of the texts.

    Raises
    ------
    InvalidArgumentError
        If the pattern has an error or a construct that is not supported, has more than 262,144
        characters, or more parts than that with its repetitions written out, nests more than 50
        groups, or repeats something more than 65,535 times: the message names the construct and
        its position, from 0, in characters. If it needs more states than allowed, or more than
        2**23 steps to become deterministic, which take one or two seconds.

    Examples
    --------
    >>> date = compile_regex(r"\d{4}-\d\d-\d\d")
    >>> date.accepts(b"2024-02-29"), date.accepts(b"2024-02-29 ")
    (True, False)
    """
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"a pattern must be a str, not {type(pattern).__name__}")
    if len(pattern) > MOST_PARTS:
        raise _error(pattern, MOST_PARTS, f"the limit is {MOST_PARTS} characters")
    root = _Parser(pattern).parse()
    _check_size(root, pattern)
    nfa = Nfa()
    _add(nfa, root, Nfa.START, Nfa.END)
    try:
        return Dfa.from_nfa(nfa, max_states)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"cannot compile the pattern {_shown(pattern)}: {error}"
        ) from None


def utf8_sequences(first: int, last: int) -> Iterator[_ByteRanges]:
    """Cut a range of code points into runs whose UTF-8 is a range of bytes at each place.

    Parameters
    ----------
    first, last
        Both included, without surrogates between them.

    Yields
    ------
    tuple of (int, int)
        For each byte of the characters of one run, its least and greatest value. Ascending.

    Notes
    -----
    As Ken Thompson did for grep and Russ Cox describes in "Regular Expression Matching in the
    Wild" (2010).
    """
    runs = [(first, last)]
    while runs:
        first, last = runs.pop()
        cut = _utf8_cut(first, last)
        if cut is None:
            yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))
        else:
            runs += [(cut + 1, last), (first, cut)]


def _utf8_cut(first: int, last: int) -> int | None:
    """Return the code point to cut behind, or None where the range is one run."""
    for longest in (0x7F, 0x7FF, 0xFFFF):  # the last code points of one, two and three bytes
        if first <= longest < last:
            return longest
    if last <= 0x7F:
        return None
    for low_bits in (0x3F, 0xFFF, 0x3FFFF):  # of one, two and three continuation bytes
        if first & ~low_bits != last & ~low_bits:
            if first & low_bits:
                return first | low_bits
            if last & low_bits != low_bits:
                return (last & ~low_bits) - 1
    return None


# What a pattern consists of.


@dataclass(frozen=True)
class _Characters:
    """Any one of these."""

    sequences: tuple[_ByteRanges, ...]


@dataclass(frozen=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Alternatives:
    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Repetition:
    part: _Node
    least: int
    most: int | None
    position: int


_Node = _Characters | _Sequence | _Alternatives | _Repetition


def _check_size(root: _Node, pattern: str) -> None:
    """Refuse a pattern that is too large written out, before it is written out."""

    def size(node: _Node) -> int:
        if isinstance(node, _Characters):
            return sum(map(len, node.sequences))
        if isinstance(node, _Repetition):
            copies = max(node.least, 1) if node.most is None else node.most
            written_out = 1 + copies * size(node.part)
            if written_out > MOST_PARTS:
                raise _error(
                    pattern,
                    node.position,
                    f"written out, this repetition has {written_out} parts; "
                    f"the limit is {MOST_PARTS}",
                )
            return written_out
        return 1 + sum(map(size, node.parts))

    parts = size(root)
    if parts > MOST_PARTS:
        raise _error(pattern, 0, f"the pattern has {parts} parts; the limit is {MOST_PARTS}")


def _add(nfa: Nfa, node: _Node, start: int, end: int) -> None:
    """Let every text of the node lead from start to end (Thompson, 1968)."""
    if isinstance(node, _Characters):
        _add_characters(nfa, node, start, end)
    elif isinstance(node, _Alternatives):
        for part in node.parts:
            _add(nfa, part, start, end)
    elif isinstance(node, _Repetition):
        _add_repetition(nfa, node, start, end)
    else:
        for part in node.parts:
            following = nfa.new_state()
            _add(nfa, part, start, following)
            start = following
        nfa.add_jump(start, end)


def _add_characters(nfa: Nfa, node: _Characters, start: int, end: int) -> None:
    # Characters that end in the same ranges of bytes share the states there: most end in 80 to BF.
    state_before: dict[_ByteRanges, int] = {(): end}
    for sequence in node.sequences:
        for at in range(len(sequence) - 1, 0, -1):
            if sequence[at:] not in state_before:
                state = nfa.new_state()
                nfa.add_range(state, *sequence[at], state_before[sequence[at + 1 :]])
                state_before[sequence[at:]] = state
        nfa.add_range(start, *sequence[0], state_before[sequence[1:]])


def _add_repetition(nfa: Nfa, node: _Repetition, start: int, end: int) -> None:
    if node.most is None:
        for _ in range(node.least - 1):
            start = _add_behind(nfa, node.part, start)
        begin = nfa.new_state()
        nfa.add_jump(start, begin)
        again = _add_behind(nfa, node.part, begin)
        nfa.add_jump(again, begin)
        nfa.add_jump(again if node.least else begin, end)
        return
    for _ in range(node.least):
        start = _add_behind(nfa, node.part, start)
    for _ in range(node.most - node.least):
        # To the end at once, not to the next that may be left out: sets of states stay small.
        nfa.add_jump(start, end)
        start = _add_behind(nfa, node.part, start)
    nfa.add_jump(start, end)


def _add_behind(nfa: Nfa, node: _Node, start: int) -> int:
    end = nfa.new_state()
    _add(nfa, node, start, end)
    return end


# Sets of characters.

_DIGIT: CodePoints = ((0x30, 0x39),)
_WORD: CodePoints = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: CodePoints = ((0x09, 0x0D), (0x20, 0x20))
_SURROGATES = (0xD800, 0xDFFF)


def _one(code_point: int) -> CodePoints:
    return ((code_point, code_point),)


def _is_one(ranges: CodePoints) -> bool:
    return ranges[0][0] == ranges[-1][1]


def _union(ranges: Iterable[tuple[int, int]]) -> CodePoints:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _complement(ranges: CodePoints) -> CodePoints:
    gaps = []
    begin = 0
    for first, last in ranges:
        if begin < first:
            gaps.append((begin, first - 1))
        begin = last + 1
    if begin <= LAST_CODE_POINT:
        gaps.append((begin, LAST_CODE_POINT))
    return tuple(gaps)


def _sequences_of(ranges: CodePoints) -> tuple[_ByteRanges, ...]:
    """Return the UTF-8 of a set of characters; surrogates have none."""
    scalar_values = _complement(_union([*_complement(ranges), _SURROGATES]))
    return tuple(run for first, last in scalar_values for run in utf8_sequences(first, last))


_ESCAPES: dict[str, CodePoints] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _SPACE,
    "D": _complement(_DIGIT),
    "W": _complement(_WORD),
    "S": _complement(_SPACE),
    "n": _one(0x0A),
    "r": _one(0x0D),
    "t": _one(0x09),
    "f": _one(0x0C),
    "v": _one(0x0B),
}
_NOT_LINE_FEED = _complement(_one(0x0A))

# Syntax.

_NUMBERED = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,8})\})"
)
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_COUNT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_COUNT_WITHOUT_LEAST = re.compile(r"\{,[0-9]*\}")
_GROUP_START = re.compile(r"\((?:\?:|\?P?<[^\W\d]\w*>)?")

_REFUSED_ESCAPES = {
    "b": r"the word boundary \b is not supported",
    "B": r"the word boundary \B is not supported",
    "A": r"the anchor \A is not supported; the whole text is matched anyhow",
    "Z": r"the anchor \Z is not supported; the whole text is matched anyhow",
    "z": r"the anchor \z is not supported; the whole text is matched anyhow",
    "G": r"the anchor \G is not supported",
    "k": r"the backreference \k is not regular",
    "g": r"the backreference \g is not regular",
    "p": r"the Unicode property \p is not supported; write the characters as a class",
    "P": r"the Unicode property \P is not supported; write the characters as a class",
    "c": r"the control escape \c is not supported; write \xHH",
}
_REFUSED_GROUPS = {
    "(?=": "the lookahead (?=...) is not supported",
    "(?!": "the negative lookahead (?!...) is not supported",
    "(?<=": "the lookbehind (?<=...) is not supported",
    "(?<!": "the negative lookbehind (?<!...) is not supported",
    "(?P=": "the backreference (?P=...) is not regular",
    "(?P>": "the recursion (?P>...) is not regular",
    "(?R": "the recursion (?R) is not regular",
    "(?&": "the recursion (?&...) is not regular",
    "(?>": "the atomic group (?>...) is not supported; write (?:...)",
    "(?(": "the conditional (?(...)...) is not supported",
    "(?#": "the comment (?#...) is not supported",
}


class _Parser:
    """Reads a pattern by recursive descent; `_at` is the next character."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        root = self._alternatives()
        if self._at < len(self._pattern):
            raise self._error(self._at, "this ) closes no group")
        return root

    def _alternatives(self) -> _Node:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Alternatives(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            if self._skip("^"):
                self._check_anchor(not parts and not self._depth, "^", "begins")
            elif self._skip("$"):
                ends = self._next() in ("", "|", "$")
                self._check_anchor(ends and not self._depth, "$", "ends")
            else:
                parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _check_anchor(self, is_outermost: bool, anchor: str, does: str) -> None:
        if not is_outermost:
            raise self._error(
                self._at - 1,
                f"the anchor {anchor} is supported only where the pattern or one of its "
                f"outermost alternatives {does}; \\{anchor} is the character",
            )

    def _quantified(self) -> _Node:
        atom = self._atom()
        at = self._at
        counts = self._quantifier()
        if counts is None:
            return atom
        least, most = counts
        self._skip("?")
        if self._next() == "+":
            raise self._error(at, "possessive quantifiers are not supported; leave out the last +")
        again = self._at
        if self._quantifier() is not None:
            raise self._error(
                again, "this quantifier follows another; write (?:...) around the first"
            )
        return _Repetition(atom, least, most, at)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        count = _COUNT.match(self._pattern, self._at)
        if count is None:
            return None
        least = self._repetitions(count, 1)
        if count[2] is None:
            most: int | None = least
        else:
            most = self._repetitions(count, 3) if count[3] else None
        if most is not None and most < least:
            raise self._error(self._at, f"{count[0]} has its greater number first")
        self._at = count.end()
        return least, most

    def _repetitions(self, count: re.Match[str], group: int) -> int:
        digits = count[group].lstrip("0") or "0"
        # Python refuses to read numbers of some thousand digits.
        if len(digits) > len(str(MOST_REPETITIONS)) or int(digits) > MOST_REPETITIONS:
            raise self._error(
                self._at, f"{_shortened(count[0])} is more than {MOST_REPETITIONS} repetitions"
            )
        return int(digits)

    def _atom(self) -> _Node:
        at = self._at
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._characters(self._escape(), at)
        if _COUNT_WITHOUT_LEAST.match(self._pattern, at):
            raise self._error(
                at, "{, is read differently by Python and ECMAScript; write {0, or \\{,"
            )
        if character in "*+?" or _COUNT.match(self._pattern, at):
            raise self._error(at, f"there is nothing in front of {character} to repeat")
        self._at += 1
        return self._characters(_NOT_LINE_FEED if character == "." else _one(ord(character)), at)

    def _characters(self, ranges: CodePoints, at: int) -> _Characters:
        sequences = _sequences_of(ranges)
        if not sequences:
            but = " but surrogates, which no UTF-8 has" if ranges else ""
            raise self._error(at, f"this matches no character{but}")
        return _Characters(sequences)

    def _group(self) -> _Node:
        at = self._at
        for start, refused in _REFUSED_GROUPS.items():
            if self._pattern.startswith(start, at):
                raise self._error(at, refused)
        start_match = _GROUP_START.match(self._pattern, at)
        assert start_match is not None  # every group starts with a parenthesis
        if start_match[0] == "(" and self._pattern.startswith("(?", at):
            raise self._error(at, self._unknown_group(at))
        if self._depth == MOST_NESTED_GROUPS:
            raise self._error(at, f"more than {MOST_NESTED_GROUPS} groups are nested here")
        self._at = start_match.end()
        self._depth += 1
        inside = self._alternatives()
        self._depth -= 1
        if not self._skip(")"):
            raise self._error(at, "this group is not closed")
        return inside

    def _unknown_group(self, at: int) -> str:
        start = self._pattern[at : at + 3]
        if start[2:] in ("P", "<"):
            return "this group has no name that both Python and ECMAScript allow"
        if re.match(r"\(\?[A-Za-z-]", start):
            return f"the flags {start}... are not supported"
        return f"the group {start}... is not supported"

    def _class(self) -> _Node:
        at = self._at
        self._at += 1
        negated = self._skip("^")
        if self._next() == "]":
            raise self._error(
                self._at,
                "] first in a class is read differently by Python and ECMAScript; write \\]",
            )
        ranges: list[tuple[int, int]] = []
        while not self._skip("]"):
            ranges += self._class_part(at)
        united = _union(ranges)
        return self._characters(_complement(united) if negated else united, at)

    def _class_part(self, class_at: int) -> CodePoints:
        """Read a set, a character, or a range of characters."""
        at = self._at
        first = self._class_character(class_at)
        if self._next() != "-" or self._pattern.startswith("-]", self._at):
            return first
        self._at += 1
        last = self._class_character(class_at)
        shown = _shortened(self._pattern[at : self._at])
        if not (_is_one(first) and _is_one(last)):
            raise self._error(at, f"the range {shown} has a set at an end; write \\- for the dash")
        if last < first:
            raise self._error(at, f"the range {shown} ends before it begins")
        return ((first[0][0], last[0][0]),)

    def _class_character(self, class_at: int) -> CodePoints:
        character = self._next()
        if not character:
            raise self._error(class_at, "this class is not closed")
        if character == "\\":
            return self._escape(in_class=True)
        if self._pattern.startswith("[:", self._at):
            raise self._error(
                self._at, "the POSIX class [:...:] is not supported; \\[ is the character"
            )
        self._at += 1
        return _one(ord(character))

    def _escape(self, in_class: bool = False) -> CodePoints:
        at = self._at
        letter = self._pattern[at + 1 : at + 2]
        if not letter:
            raise self._error(at, "there is nothing behind the last \\")
        if letter in "xuU":
            return _one(self._numbered())
        self._at += 2
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "b" and in_class:
            return _one(0x08)
        if letter == "0" and not self._next().isdecimal():
            return _one(0x00)
        if letter in _REFUSED_ESCAPES:
            raise self._error(at, _REFUSED_ESCAPES[letter])
        if letter in "0123456789":
            if letter == "0" or in_class:
                raise self._error(at, f"the octal escape \\{letter} is not supported; write \\xHH")
            raise self._error(at, f"the backreference \\{letter} is not regular")
        if letter.isascii() and letter.isalpha():
            raise self._error(at, f"the escape \\{letter} is not known")
        return _one(ord(letter))

    def _numbered(self) -> int:
        r"""Read \xHH, \uHHHH, \UHHHHHHHH or \u{H...}."""
        at = self._at
        found = _NUMBERED.match(self._pattern, at)
        if found is None:
            forms = "\\xHH, \\uHHHH, \\UHHHHHHHH and \\u{H...}"
            raise self._error(at, f"this \\{self._pattern[at + 1]} is none of {forms}")
        self._at = found.end()
        code_point = int(found[found.lastindex or 0], 16)
        low = _LOW_SURROGATE.match(self._pattern, self._at)
        if found[2] and 0xD800 <= code_point <= 0xDBFF and low is not None:
            self._at = low.end()
            return 0x10000 + ((code_point - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        if code_point > LAST_CODE_POINT:
            raise self._error(at, f"{found[0]} is beyond U+10FFFF, the last character")
        return code_point

    def _next(self) -> str:
        """Return the next character, empty at the end."""
        return self._pattern[self._at : self._at + 1]

    def _skip(self, character: str) -> bool:
        found = self._pattern.startswith(character, self._at)
        self._at += found
        return found

    def _error(self, position: int, what: str) -> InvalidArgumentError:
        return _error(self._pattern, position, what)


def _error(pattern: str, position: int, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot compile the pattern {_shown(pattern)}, position {position}: {what}"
    )


def _shown(pattern: str) -> str:
    return repr(_shortened(pattern))


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
