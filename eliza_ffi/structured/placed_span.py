"""A span at its position in an answer, and the request that makes the library write its value.

The spelling of a value depends on its position. A literal may leave a JSON string open, as in
``{"action":"``. Then the value is the inside of this string, and the next literal begins with the
closing quote. Otherwise the value includes its own quotes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .._lazy import lazy_property
from ..errors import InvalidArgumentError
from .automata import (
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    STRING_BODY_PATTERN,
    STRING_PATTERN,
    Dfa,
    compile_regex,
)
from .json_text import read_json, reject_constant, string_from_body
from .spans import SkeletonSpan

JSON_DEPTH = 16
"""The deepest nesting of arrays and objects in a ``free-json`` value."""

MOST_SPACES = 20
"""The maximum number of consecutive white-space characters inside a ``free-json`` value.

White space before and after the value is not allowed."""

_PATTERNS = {
    "number": NUMBER_PATTERN,
    "integer": INTEGER_PATTERN,
    "string": STRING_PATTERN,
    "string-body": STRING_BODY_PATTERN,
}
_NEED_ESCAPE = "".join(map(chr, range(0x20))) + '"\\'
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"]', re.DOTALL)


@dataclass(frozen=True)
class Filled:
    """The text written for a span: its value, and the fixed or chosen text that follows it."""

    text: str
    follow: str = ""


@dataclass(frozen=True)
class PlacedSpan:
    """A span with the text around it.

    Attributes
    ----------
    index : int
        The index of the span in the skeleton, from 0.
    span : SkeletonSpan
    in_string : bool
        Whether the preceding text leaves a JSON string open.
    before : str
        The fixed text before the value, unless it is the `after` of an earlier span.
    after : str
        The fixed text after the value.
    follow : tuple of str
        Alternatives for the text after the value, instead of `after`. The model chooses one.
    grammar : str or None
        For a span with a rule, a grammar with this rule as its start rule ``root``.
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

    @lazy_property
    def texts(self) -> tuple[str, ...] | None:
        """All spellings of the value, or None if the span is not a boolean or an enum."""
        return self.span.texts(self.in_string)

    @lazy_property
    def ends_itself(self) -> bool:
        """Whether the end of the value can be recognized without the text that follows."""
        if self.texts is not None:
            # In sorted order, a prefix comes directly before the strings that it begins.
            return not any(b.startswith(a) for a, b in pairwise(sorted(self.texts)))
        return self.span.kind == "free-string" and self.span.rule is None and not self.in_string

    @property
    def is_number(self) -> bool:
        return self.span.kind in ("number", "integer") and self.span.rule is None

    def request(self) -> dict[str, Any]:
        """Return the request for the value, in the form of the library's ``llm_stream_fill``."""
        if self.is_literal:
            return {}
        if self.texts is not None:
            if len(set(self.texts)) < len(self.texts):
                raise InvalidArgumentError(
                    f"enum_values: expected different spellings, got {self.texts}"
                )
            if "" in self.texts:
                raise InvalidArgumentError(
                    "an empty value inside a JSON string is not supported; end the preceding "
                    "literal before the quote, so that the values include their own quotes"
                )
            return {"choices": list(self.texts)}
        if self.span.rule is not None:
            return {"grammar": self.grammar}
        if self.span.kind == "free-json":
            return {"json": "value", "depth": JSON_DEPTH}
        if self.span.kind == "free-string":
            return {"json": "string-body" if self.in_string else "string"}
        if self.span.pattern is not None:
            return {"dfa": _pattern_form(self.span.pattern, self.in_string)}
        return {"json": self.span.kind}

    def request_with_follow(self) -> dict[str, Any]:
        """Return the request for the value together with an alternative from `follow`.

        The two are requested together because the following text may share a token with the end of
        the value, and because a number ends only where other text follows.
        """
        if self.texts is not None:
            return {"choices": [text + follow for text in self.texts for follow in self.follow]}
        value = _PATTERNS[self.request()["json"]]
        follow = "|".join(re.escape(text) for text in self.follow)
        return {"dfa": _pattern_form(f"{value}(?:{follow})", False)}

    def value(self, text: str) -> Any:
        """Return the value that this text spells."""
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
        """Yield the offsets at which a value that begins at `start` may end, in bytes.

        Grammar rules are not checked: the value of a span with a rule may end anywhere.
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
            yield from _value_ends(data, start)
        else:
            yield from self.dfa().ends(data, start)

    def check_follower(self, following: str | None) -> None:
        """Check that the end of the value can be recognized by the text that follows.

        `following` is the following literal; ``""`` at the end of the skeleton; None if another
        value follows directly. Raise InvalidArgumentError if the end could not be recognized, or
        the value is not allowed at this position.
        """
        name = f"a {self.span.kind} span"
        if self.in_string and self.span.rule is None:
            if self.span.kind == "free-json":
                raise InvalidArgumentError(
                    "a free-json span is not allowed inside a JSON string, "
                    "and the preceding literal has opened a string"
                )
            if self.span.kind == "free-string" and not (following or "").startswith('"'):
                raise InvalidArgumentError(
                    f"{name} inside a JSON string must be followed by a literal that begins "
                    f"with the closing quote"
                )
        if following is None and not self.ends_itself:
            raise InvalidArgumentError(
                f"{name} must be followed by a literal that marks its end, got another value"
            )
        is_like_number = self.span.kind == "free-json" or self.is_number
        if following and is_like_number and following[0] in _NUMBER_CHARACTERS:
            raise InvalidArgumentError(
                f"{name} must not be followed by {following[0]!r}, which could be part of a number"
            )

    def dfa(self) -> Dfa:
        """Return the automaton of a number, a pattern or a string."""
        if self.span.pattern is not None:
            return pattern_dfa(self.span.pattern, self.in_string)
        return pattern_dfa(_PATTERNS[self.request()["json"]], False)


Script = Generator[PlacedSpan, Filled, None]
"""A generator of the spans of an answer, in order. The caller sends it the text written for each
span, because a later span may depend on an earlier one."""


@functools.lru_cache(maxsize=128)
def pattern_dfa(pattern: str, in_string: bool) -> Dfa:
    """Return the automaton of a pattern, inside a JSON string without text that needs escapes."""
    return compile_regex(pattern, _NEED_ESCAPE if in_string else "")


@functools.lru_cache(maxsize=128)
def _pattern_form(pattern: str, in_string: bool) -> dict[str, Any]:
    return pattern_dfa(pattern, in_string).to_dict()


def _value_ends(data: bytes, start: int) -> Iterator[int]:
    """Yield the offsets at which a JSON value may end."""
    if data[start : start + 1] not in (b"{", b"["):
        yield from pattern_dfa(f"{STRING_PATTERN}|{NUMBER_PATTERN}|true|false|null", False).ends(
            data, start
        )
        return
    position, depth, n_spaces = start, 0, 0
    for token in _TOKEN.finditer(data, start):
        depth += (token.group() in (b"[", b"{")) - (token.group() in (b"]", b"}"))
        n_spaces = n_spaces + 1 if token.group().isspace() else 0
        is_gap = token.start() != position
        position = token.end()
        if is_gap or depth > JSON_DEPTH or n_spaces > MOST_SPACES:
            return
        if depth == 0:
            break
    if depth == 0 and _is_json(data[start:position]):
        yield position


def _is_json(data: bytes) -> bool:
    """Return whether this is JSON whose strings are valid Unicode."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=list,  # to also check the values of repeated keys
            parse_constant=reject_constant,
            parse_int=str,  # Python rejects thousands of digits
        )
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True
