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

from .regex_characters import NOT_LINE_FEED, characters, read_class, read_escape
from .regex_cursor import Cursor, shortened
from .regex_tree import Alternation, Node, Repetition, Sequence
from .tables import MOST_STATES
from .utf8_ranges import one

__all__ = ["MOST_NESTED_GROUPS", "MOST_REPETITIONS", "parse"]

MOST_NESTED_GROUPS = 50
"""The deepest nesting of groups. The parser recurses for each, and Python limits recursion."""

MOST_REPETITIONS = MOST_STATES
"""The highest repetition count. An automaton needs at least one state for each repetition."""

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


def parse(pattern: str) -> Node:
    """Parse a pattern into its syntax tree.

    Raises
    ------
    InvalidArgumentError
        If the pattern is malformed or has an unsupported construct. The message names the position.
    """
    return _Parser(pattern).parse()


class _Parser:
    """A recursive-descent parser."""

    def __init__(self, pattern: str) -> None:
        self._cursor = Cursor(pattern)
        self._depth = 0

    def parse(self) -> Node:
        root = self._alternatives()
        if self._cursor.at < len(self._cursor.pattern):
            raise self._cursor.error(self._cursor.at, "this ) has no matching (")
        return root

    def _alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._cursor.skip("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._cursor.next() not in ("", "|", ")"):
            if self._cursor.skip("^"):
                self._check_anchor(not parts and not self._depth, "^", "begins")
            elif self._cursor.skip("$"):
                ends = self._cursor.next() in ("", "|", "$")
                self._check_anchor(ends and not self._depth, "$", "ends")
            else:
                parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _check_anchor(self, is_outermost: bool, anchor: str, does: str) -> None:
        if not is_outermost:
            raise self._cursor.error(
                self._cursor.at - 1,
                f"the anchor {anchor} is supported only where the pattern or one of its "
                f"outermost alternatives {does}; write \\{anchor} for the character",
            )

    def _quantified(self) -> Node:
        atom = self._atom()
        at = self._cursor.at
        counts = self._quantifier()
        if counts is None:
            return atom
        least, most = counts
        self._cursor.skip("?")
        if self._cursor.next() == "+":
            raise self._cursor.error(
                at, "possessive quantifiers are not supported; leave out the last +"
            )
        again = self._cursor.at
        if self._quantifier() is not None:
            raise self._cursor.error(
                again, "this quantifier follows another; write (?:...) around the first"
            )
        return Repetition(atom, least, most, at)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._cursor.skip("*"):
            return 0, None
        if self._cursor.skip("+"):
            return 1, None
        if self._cursor.skip("?"):
            return 0, 1
        count = self._cursor.match(_COUNT)
        if count is None:
            return None
        least = self._repetitions(count, 1)
        if count[2] is None:
            most: int | None = least
        else:
            most = self._repetitions(count, 3) if count[3] else None
        if most is not None and most < least:
            raise self._cursor.error(
                self._cursor.at, f"{count[0]}: the first number is greater than the second"
            )
        self._cursor.at = count.end()
        return least, most

    def _repetitions(self, count: re.Match[str], group: int) -> int:
        digits = count[group].lstrip("0") or "0"
        # Check the length first, because int() raises on thousands of digits.
        if len(digits) > len(str(MOST_REPETITIONS)) or int(digits) > MOST_REPETITIONS:
            raise self._cursor.error(
                self._cursor.at,
                f"{shortened(count[0])} is more than {MOST_REPETITIONS} repetitions",
            )
        return int(digits)

    def _atom(self) -> Node:
        at = self._cursor.at
        character = self._cursor.next()
        if character == "(":
            return self._group()
        if character == "[":
            return read_class(self._cursor)
        if character == "\\":
            return read_escape(self._cursor)
        if self._cursor.match(_COUNT_WITHOUT_LEAST):
            raise self._cursor.error(
                at, "Python and ECMAScript disagree about {,; write {0, or \\{,"
            )
        if character in "*+?" or self._cursor.match(_COUNT):
            raise self._cursor.error(at, f"expected something to repeat before {character}")
        self._cursor.at += 1
        any_or_one = NOT_LINE_FEED if character == "." else one(ord(character))
        return characters(self._cursor, any_or_one, at)

    def _group(self) -> Node:
        at = self._cursor.at
        for start, reason in _UNSUPPORTED_GROUPS.items():
            if self._cursor.starts(start):
                raise self._cursor.error(at, reason)
        start_match = self._cursor.match(_GROUP_START)
        assert start_match is not None  # every group starts with a parenthesis
        if start_match[0] == "(" and self._cursor.starts("(?"):
            raise self._cursor.error(at, self._unknown_group(at))
        if self._depth == MOST_NESTED_GROUPS:
            raise self._cursor.error(at, f"more than {MOST_NESTED_GROUPS} groups are nested here")
        self._cursor.at = start_match.end()
        self._depth += 1
        inside = self._alternatives()
        self._depth -= 1
        if not self._cursor.skip(")"):
            raise self._cursor.error(at, "this group is not closed")
        return inside

    def _unknown_group(self, at: int) -> str:
        start = self._cursor.pattern[at : at + 3]
        if start[2:] in ("P", "<"):
            return "this group has no name that both Python and ECMAScript allow"
        if re.match(r"\(\?[A-Za-z-]", start):
            return f"the flags {start}... are not supported"
        return f"the group {start}... is not supported"
