r"""The syntax of regular expressions, and its parser.

The syntax is a subset of both Python's and ECMAScript's: the constructs that are regular and have
the same meaning in both languages.

===================================  =============================================================
``a`` ``é`` ``😀``                   the character itself; only these do not stand for themselves:
                                     ``\ ( ) [ * + ? | ^ $ .``
``.``                                any character but a line feed
``[a-z_]`` ``[^0-9]``                a character in the class, or not in the class; ``]`` and ``\``
                                     must be escaped
``\d`` ``\w`` ``\s``                 ``[0-9]``, ``[A-Za-z0-9_]``, ``[ \t\n\r\f\v]``: ASCII only
``\D`` ``\W`` ``\S``                 any character not in these classes, such as ``é`` for ``\W``
``\n \r \t \f \v \0``                line feed, carriage return, tab, form feed, vertical tab, NUL
``\xHH`` ``\uHHHH``                  the character with this code point; two ``\u`` that form a
``\UHHHHHHHH`` ``\u{H...}``          surrogate pair are one character
``\.`` ``\*`` ``\/`` ...             the punctuation character itself
``x*`` ``x+`` ``x?``                 any number, at least one, at most one
``x{m}`` ``x{m,}`` ``x{m,n}``        m, m or more, m to n. A ``?`` after a quantifier has no effect:
                                     the whole text must match, whether greedily or lazily
``xy`` ``x|y``                       concatenation, alternatives
``(x)`` ``(?:x)`` ``(?P<n>x)``       groups, without capturing
``(?<n>x)``
``^x$``                              allowed around the pattern and its alternatives; no effect,
                                     because the whole text is matched anyway
===================================  =============================================================

All other syntax is rejected with an error that names it and its position: constructs that are not
regular (backreferences) or not supported (lookaround, flags, word boundaries, Unicode properties),
and constructs that the two languages read differently (``{,n}``, ``[]a]``, ``\a``). A character is
a Unicode scalar value. Lone surrogates match nothing, because UTF-8 cannot encode them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import InvalidArgumentError
from .utf8_ranges import LAST_CODE_POINT, ByteRanges, CodePoints, complement, one, union, utf8_of

__all__ = [
    "MOST_NESTED_GROUPS",
    "MOST_PARTS",
    "MOST_REPETITIONS",
    "Alternation",
    "Characters",
    "Node",
    "Repetition",
    "Sequence",
    "parse",
    "shown",
]

MOST_PARTS = 2**18
"""The maximum number of a pattern's characters, and of its parts after expanding repetitions."""

MOST_NESTED_GROUPS = 50
"""The deepest nesting of groups. The parser recurses for each, and Python limits recursion."""

MOST_REPETITIONS = 65_535
"""The highest repetition count. An automaton needs at least one state for each repetition, and has
at most this number of states."""

_COUNT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_COUNT_WITHOUT_LEAST = re.compile(r"\{,[0-9]*\}")
_GROUP_START = re.compile(r"\((?:\?:|\?P?<[^\W\d]\w*>)?")
_UNSUPPORTED_GROUPS = {
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

_DIGIT: CodePoints = ((0x30, 0x39),)
_WORD: CodePoints = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: CodePoints = ((0x09, 0x0D), (0x20, 0x20))

_ESCAPES: dict[str, CodePoints] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _SPACE,
    "D": complement(_DIGIT),
    "W": complement(_WORD),
    "S": complement(_SPACE),
    "n": one(0x0A),
    "r": one(0x0D),
    "t": one(0x09),
    "f": one(0x0C),
    "v": one(0x0B),
}
_NOT_LINE_FEED = complement(one(0x0A))

_NUMBERED = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,8})\})"
)
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_UNSUPPORTED_ESCAPES = {
    "b": r"the word boundary \b is not supported",
    "B": r"the word boundary \B is not supported",
    "A": r"the anchor \A is not supported; leave it out: the whole text is matched anyway",
    "Z": r"the anchor \Z is not supported; leave it out: the whole text is matched anyway",
    "z": r"the anchor \z is not supported; leave it out: the whole text is matched anyway",
    "G": r"the anchor \G is not supported",
    "k": r"the backreference \k is not regular",
    "g": r"the backreference \g is not regular",
    "p": r"the Unicode property \p is not supported; write the characters as a class",
    "P": r"the Unicode property \P is not supported; write the characters as a class",
    "c": r"the control escape \c is not supported; write \xHH",
}


@dataclass(frozen=True)
class Characters:
    """A set of characters that match at one position."""

    sequences: tuple[ByteRanges, ...]


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    part: Node
    least: int
    most: int | None
    position: int


Node = Characters | Sequence | Alternation | Repetition


def parse(pattern: str) -> Node:
    """Parse a pattern into its syntax tree.

    Raises
    ------
    InvalidArgumentError
        If the pattern is malformed, is too large or has an unsupported construct. The message names
        the position.
    """
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"pattern must be a string, got {type(pattern).__name__}")
    parser = _Parser(pattern)
    if len(pattern) > MOST_PARTS:
        raise parser.error(
            MOST_PARTS, f"expected at most {MOST_PARTS} characters, got {len(pattern)}"
        )
    root = parser.parse()
    parts = parser.size(root)
    if parts > MOST_PARTS:
        raise parser.error(0, f"expected at most {MOST_PARTS} parts, got {parts}")
    return root


class _Parser:
    """A recursive-descent parser."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0  # the index of the next character
        self._depth = 0

    def parse(self) -> Node:
        root = self._alternatives()
        if self._at < len(self._pattern):
            raise self.error(self._at, "this ) has no matching (")
        return root

    def size(self, node: Node) -> int:
        """Return the number of a node's parts, with repetitions expanded."""
        if isinstance(node, Characters):
            return sum(map(len, node.sequences))
        if isinstance(node, Repetition):
            copies = max(node.least, 1) if node.most is None else node.most
            expanded = 1 + copies * self.size(node.part)
            if expanded > MOST_PARTS:
                raise self.error(
                    node.position,
                    f"expected at most {MOST_PARTS} parts, got {expanded} after expanding this "
                    f"repetition",
                )
            return expanded
        return 1 + sum(map(self.size, node.parts))

    def error(self, position: int, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"cannot compile the pattern {shown(self._pattern)}, position {position}: {what}"
        )

    # ---- the reading position ------------------------------------------------------------------

    def _next(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self._pattern[self._at : self._at + 1]

    def _starts(self, text: str) -> bool:
        """Return whether the rest of the pattern starts with this string."""
        return self._pattern.startswith(text, self._at)

    def _skip(self, character: str) -> bool:
        """Skip a character if it is next, and return whether it was."""
        found = self._starts(character)
        self._at += found
        return found

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Match an expression at the current position, without moving the position."""
        return expression.match(self._pattern, self._at)

    # ---- groups and repetitions ----------------------------------------------------------------

    def _alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next() not in ("", "|", ")"):
            if self._skip("^"):
                self._check_anchor(not parts and not self._depth, "^", "begins")
            elif self._skip("$"):
                ends = self._next() in ("", "|", "$")
                self._check_anchor(ends and not self._depth, "$", "ends")
            else:
                parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _check_anchor(self, is_outermost: bool, anchor: str, does: str) -> None:
        if not is_outermost:
            raise self.error(
                self._at - 1,
                f"the anchor {anchor} is supported only where the pattern or one of its "
                f"outermost alternatives {does}; write \\{anchor} for the character",
            )

    def _quantified(self) -> Node:
        atom = self._atom()
        at = self._at
        counts = self._quantifier()
        if counts is None:
            return atom
        least, most = counts
        self._skip("?")
        if self._next() == "+":
            raise self.error(at, "possessive quantifiers are not supported; leave out the last +")
        again = self._at
        if self._quantifier() is not None:
            raise self.error(
                again, "this quantifier follows another; write (?:...) around the first"
            )
        return Repetition(atom, least, most, at)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        count = self._match(_COUNT)
        if count is None:
            return None
        least = self._repetitions(count, 1)
        if count[2] is None:
            most: int | None = least
        else:
            most = self._repetitions(count, 3) if count[3] else None
        if most is not None and most < least:
            raise self.error(self._at, f"{count[0]}: the first number is greater than the second")
        self._at = count.end()
        return least, most

    def _repetitions(self, count: re.Match[str], group: int) -> int:
        digits = count[group].lstrip("0") or "0"
        # Check the length first, because int() raises on thousands of digits.
        if len(digits) > len(str(MOST_REPETITIONS)) or int(digits) > MOST_REPETITIONS:
            raise self.error(
                self._at, f"{_shortened(count[0])} is more than {MOST_REPETITIONS} repetitions"
            )
        return int(digits)

    def _atom(self) -> Node:
        at = self._at
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._characters(self._escaped(), at)
        if self._match(_COUNT_WITHOUT_LEAST):
            raise self.error(at, "Python and ECMAScript disagree about {,; write {0, or \\{,")
        if character in "*+?" or self._match(_COUNT):
            raise self.error(at, f"expected something to repeat before {character}")
        self._at += 1
        any_or_one = _NOT_LINE_FEED if character == "." else one(ord(character))
        return self._characters(any_or_one, at)

    def _group(self) -> Node:
        at = self._at
        for start, reason in _UNSUPPORTED_GROUPS.items():
            if self._starts(start):
                raise self.error(at, reason)
        start_match = self._match(_GROUP_START)
        assert start_match is not None  # every group starts with a parenthesis
        if start_match[0] == "(" and self._starts("(?"):
            raise self.error(at, self._unknown_group(at))
        if self._depth == MOST_NESTED_GROUPS:
            raise self.error(at, f"more than {MOST_NESTED_GROUPS} groups are nested here")
        self._at = start_match.end()
        self._depth += 1
        inside = self._alternatives()
        self._depth -= 1
        if not self._skip(")"):
            raise self.error(at, "this group is not closed")
        return inside

    def _unknown_group(self, at: int) -> str:
        start = self._pattern[at : at + 3]
        if start[2:] in ("P", "<"):
            return "this group has no name that both Python and ECMAScript allow"
        if re.match(r"\(\?[A-Za-z-]", start):
            return f"the flags {start}... are not supported"
        return f"the group {start}... is not supported"

    # ---- characters ----------------------------------------------------------------------------

    def _characters(self, ranges: CodePoints, at: int) -> Characters:
        """Return the node for a set of characters at a position of the pattern."""
        sequences = utf8_of(ranges)
        if not sequences:
            reason = ": UTF-8 cannot encode surrogates" if ranges else ""
            raise self.error(at, f"this matches no character{reason}")
        return Characters(sequences)

    def _class(self) -> Characters:
        """Read a character class, from [ to ]."""
        at = self._at
        self._at += 1
        negated = self._skip("^")
        if self._next() == "]":
            raise self.error(
                self._at,
                "Python and ECMAScript disagree about ] as the first character of a class; "
                "write \\]",
            )
        ranges: list[tuple[int, int]] = []
        while not self._skip("]"):
            ranges += self._class_part(at)
        united = union(ranges)
        return self._characters(complement(united) if negated else united, at)

    def _class_part(self, class_at: int) -> CodePoints:
        """Read a set, a character, or a range of characters."""
        at = self._at
        first = self._class_character(class_at)
        if self._next() != "-" or self._starts("-]"):
            return first
        self._at += 1
        last = self._class_character(class_at)
        written = _shortened(self._pattern[at : self._at])
        if not (_is_one(first) and _is_one(last)):
            raise self.error(
                at,
                f"a range cannot begin or end with a set, as in {written}; write \\- for the dash",
            )
        if last < first:
            raise self.error(at, f"the range {written} is in descending order")
        return ((first[0][0], last[0][0]),)

    def _class_character(self, class_at: int) -> CodePoints:
        character = self._next()
        if not character:
            raise self.error(class_at, "this class is not closed")
        if character == "\\":
            return self._escaped(in_class=True)
        if self._starts("[:"):
            raise self.error(
                self._at, "the POSIX class [:...:] is not supported; write \\[ for the character"
            )
        self._at += 1
        return one(ord(character))

    def _escaped(self, in_class: bool = False) -> CodePoints:
        at = self._at
        letter = self._pattern[at + 1 : at + 2]
        if not letter:
            raise self.error(
                at, "expected a character after the last \\, got the end of the pattern"
            )
        if letter in "xuU":
            return one(self._numbered())
        self._at += 2
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "b" and in_class:
            return one(0x08)
        if letter == "0" and not self._next().isdecimal():
            return one(0x00)
        if letter in _UNSUPPORTED_ESCAPES:
            raise self.error(at, _UNSUPPORTED_ESCAPES[letter])
        if letter in "0123456789":
            if letter == "0" or in_class:
                raise self.error(at, f"the octal escape \\{letter} is not supported; write \\xHH")
            raise self.error(at, f"the backreference \\{letter} is not regular")
        if letter.isascii() and letter.isalpha():
            raise self.error(at, f"the escape \\{letter} is unknown")
        return one(ord(letter))

    def _numbered(self) -> int:
        r"""Read \xHH, \uHHHH, \UHHHHHHHH or \u{H...}."""
        at = self._at
        found = self._match(_NUMBERED)
        if found is None:
            forms = "\\xHH, \\uHHHH, \\UHHHHHHHH or \\u{H...}"
            raise self.error(at, f"expected one of {forms}")
        self._at = found.end()
        code_point = int(found[found.lastindex or 0], 16)
        low = self._match(_LOW_SURROGATE)
        if found[2] and 0xD800 <= code_point <= 0xDBFF and low is not None:
            self._at = low.end()
            return 0x10000 + ((code_point - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        if code_point > LAST_CODE_POINT:
            raise self.error(at, f"{found[0]} is above U+10FFFF, the last character")
        return code_point


def _is_one(ranges: CodePoints) -> bool:
    return ranges[0][0] == ranges[-1][1]


def shown(pattern: str) -> str:
    """Return a pattern as error messages show it."""
    return repr(_shortened(pattern))


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
