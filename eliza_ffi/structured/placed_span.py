"""A span where it stands in an answer, and how the library is asked to write its value.

A value's spelling depends on where it stands. Literals may leave a JSON string open, as in
``{"action":"``; then the value is the inside of that string and the next literal begins with the
quote that ends it. Otherwise a value brings its own quotes.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from .automata import DEAD, Dfa, compile_regex, json_integer, json_number, json_string
from .free_values import (
    INTEGER_PATTERN,
    JSON_DEPTH,
    NUMBER_PATTERN,
    STRING_BODY_PATTERN,
    STRING_PATTERN,
    dfa_ends,
    value_ends,
)
from .json_text import read_json, string_from_body
from .spans import SkeletonSpan

__all__ = [
    "Filled",
    "PlacedSpan",
    "Script",
    "pattern_dfa",
    "regex_literal",
    "without_escapes",
]

_PATTERNS = {
    "number": NUMBER_PATTERN,
    "integer": INTEGER_PATTERN,
    "string": STRING_PATTERN,
    "string-body": STRING_BODY_PATTERN,
}
_NEED_ESCAPE = [*range(0x20), ord('"'), ord("\\")]
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")


@dataclass(frozen=True)
class Filled:
    """What came of a span: the text of its value, and the known or chosen text behind it."""

    text: str
    follow: str = ""


@dataclass(frozen=True)
class PlacedSpan:
    """A span and what is known of its surroundings.

    Attributes
    ----------
    index : int
        Its place in the skeleton, from 0.
    span : SkeletonSpan
    in_string : bool
        Whether the text before it leaves a JSON string open.
    before : str
        Text that comes first, as it is, and has not been given with an earlier span.
    after : str
        Text that follows, as it is.
    follow : tuple of str
        In place of `after`: texts one of which follows, as the model likes.
    grammar : str or None
        Where the span has a rule, a grammar whose rule ``root`` it is.
    """

    index: int
    span: SkeletonSpan
    in_string: bool = False
    before: str = ""
    after: str = ""
    follow: tuple[str, ...] = ()
    grammar: str | None = None

    @property
    def is_literal(self) -> bool:
        return self.span.kind == "literal"

    @functools.cached_property
    def texts(self) -> tuple[str, ...] | None:
        """All texts of the value, or None if they are not listed."""
        return self.span.texts(self.in_string)

    @functools.cached_property
    def ends_itself(self) -> bool:
        """Whether a value shows by its text alone that it has ended."""
        if self.texts is not None:
            # As texts sort, one is right in front of those that go on from it.
            return not any(b.startswith(a) for a, b in pairwise(sorted(self.texts)))
        return self.span.kind == "free-string" and self.span.rule is None and not self.in_string

    @property
    def is_number(self) -> bool:
        return self.span.kind in ("number", "integer") and self.span.rule is None

    def request(self) -> dict[str, Any]:
        """Return what to ask of the library for the value, as its ``llm_stream_fill`` has it."""
        if self.is_literal:
            return {}
        if self.texts is not None:
            if len(set(self.texts)) < len(self.texts):
                raise InvalidArgumentError(f"two of its values are spelled the same: {self.texts}")
            if "" in self.texts:
                raise InvalidArgumentError(
                    "an empty value inside a JSON string leaves nothing to choose: end the literal "
                    "before it in front of the quote, so that the values bring their own"
                )
            return {"choices": list(self.texts)}
        if self.span.rule is not None:
            return {"grammar": self.grammar}
        if self.span.dfa is not None:
            return {"dfa": self._dfa_form}
        if self.span.kind == "free-json":
            return {"json": "value", "depth": JSON_DEPTH}
        if self.span.kind == "free-string":
            return {"json": "string-body" if self.in_string else "string"}
        if self.span.pattern is not None:
            return {"dfa": _pattern_form(self.span.pattern, self.in_string)}
        return {"json": self.span.kind}

    @functools.cached_property
    def _dfa_form(self) -> dict[str, Any]:
        return self.dfa().to_dict()

    def request_with_follow(self) -> dict[str, Any]:
        """Return the request for a value together with one of the texts that may follow.

        These may share a token with the value's end, and show where a number ends.
        """
        if self.texts is not None:
            return {"choices": [text + follow for text in self.texts for follow in self.follow]}
        value = _PATTERNS[self.request()["json"]]
        follow = "|".join(regex_literal(text) for text in self.follow)
        return {"dfa": _pattern_form(f"{value}(?:{follow})", False)}

    def value(self, text: str) -> Any:
        """Return the value that a text stands for."""
        if self.span.kind == "enum" and self.texts is not None and self.span.enum_values:
            return self.span.enum_values[self.texts.index(text)]
        is_free = self.span.rule is not None or self.span.kind == "pattern"
        if is_free or (self.in_string and self.span.kind == "free-string"):
            try:
                return string_from_body(text) if self.in_string else read_json(text)
            except InvalidArgumentError:
                return text
        return read_json(text)

    def ends(self, data: bytes, start: int) -> Iterator[int]:
        """Yield where a value that begins at `start` may end, in bytes.

        Of a span with a rule only that it may be any text: rules are not read here.
        """
        if self.is_literal:
            yield start
        elif self.texts is not None:
            for text in self.texts:
                if data.startswith(text.encode(), start):
                    yield start + len(text.encode())
        elif self.span.rule is not None:
            yield from range(start, len(data) + 1)
        elif self.span.kind == "free-json":
            yield from value_ends(data, start, JSON_DEPTH)
        elif self.span.kind == "free-string" and self.in_string:
            # The quotes around it are the literals'.
            for end in dfa_ends(json_string(), b'"' + data[start:] + b'"', 0):
                yield start + end - 2
        else:
            yield from dfa_ends(self.dfa(), data, start)

    def check_follower(self, following: str | None) -> None:
        """Check that what follows lets the value's end be seen.

        Parameters
        ----------
        following
            The literal that follows, ``""`` at the end of the skeleton, None where another value
            follows at once.

        Raises
        ------
        InvalidArgumentError
            If it does not.
        """
        name = f"a {self.span.kind} span"
        if self.in_string and self.span.rule is None:
            if self.span.kind == "free-json":
                raise InvalidArgumentError(
                    "a free-json span cannot stand inside a JSON string: "
                    "the literal before it has opened one"
                )
            if self.span.kind == "free-string" and not (following or "").startswith('"'):
                raise InvalidArgumentError(
                    f"{name} inside a JSON string goes on to the quote that ends it: "
                    f"the next literal must begin with that"
                )
        if following is None and not self.ends_itself:
            raise InvalidArgumentError(
                f"{name} is followed by another at once: a literal must show where it ends"
            )
        is_like_number = self.span.kind == "free-json" or self.is_number
        if following and is_like_number and following[0] in _NUMBER_CHARACTERS:
            raise InvalidArgumentError(
                f"{name} is followed by {following[0]!r}, with which a number could go on"
            )

    def dfa(self) -> Dfa:
        """Return the automaton of a value that has one: of a number, pattern or quoted string."""
        if self.span.pattern is not None:
            return pattern_dfa(self.span.pattern, self.in_string)
        if self.span.dfa is not None:
            return without_escapes(self.span.dfa) if self.in_string else self.span.dfa
        if self.span.kind == "free-string":
            return json_string()
        return json_integer() if self.span.kind == "integer" else json_number()


Script = Generator[PlacedSpan, Filled, None]
"""The spans of an answer one after the other, each sent what came of it: a later span may depend on
an earlier one."""


def regex_literal(text: str) -> str:
    """Return a regular expression for one text."""
    return "".join(f"\\{char}" if char in r".^$*+?{}[]|()\/" else char for char in text)


def without_escapes(dfa: Dfa) -> Dfa:
    """Return the automaton of those texts that stand in a JSON string as they are.

    Raises
    ------
    InvalidArgumentError
        If there are none.
    """
    transitions = dfa.transitions[:, dfa.classes].copy()
    transitions[:, _NEED_ESCAPE] = DEAD
    return Dfa(np.arange(256, dtype=np.uint8), transitions, dfa.accepting).minimized()


@functools.lru_cache(maxsize=128)
def pattern_dfa(pattern: str, in_string: bool) -> Dfa:
    """Return the automaton of a pattern, in a JSON string without what needs an escape.

    Raises
    ------
    InvalidArgumentError
        If the pattern has an error, or nothing that it matches may stand there.
    """
    dfa = compile_regex(pattern)
    if not in_string:
        return dfa
    try:
        return without_escapes(dfa)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"the pattern {pattern!r} matches no text that stands in a JSON string without "
            f"escapes: {error}"
        ) from None


@functools.lru_cache(maxsize=128)
def _pattern_form(pattern: str, in_string: bool) -> dict[str, Any]:
    return pattern_dfa(pattern, in_string).to_dict()
