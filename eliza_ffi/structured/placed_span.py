"""A span at its position in an answer. Its value has quotes of its own unless a literal has left a
JSON string open, as ``{"action":"`` does."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .._lazy import lazy_property
from ..errors import InvalidArgumentError
from .json_text import read_json, reject_constant, string_from_body
from .spans import SkeletonSpan
from .value_automata import followed_value

JSON_DEPTH = 16
"""The deepest nesting of arrays and objects in a ``free-json`` value."""

MAX_SPACES = 20
"""The maximum number of consecutive white-space characters inside a ``free-json`` value.

White space before and after the value is not allowed."""

_INTEGER = "-?(?:0|[1-9][0-9]*)"
_NUMBER = rf"{_INTEGER}(?:\.[0-9]+)?(?:[Ee][+-]?[0-9]+)?"
# RFC 8259, section 7, but only text that decodes to valid Unicode.
_STRING_BODY = (
    r'(?:[^"\\\x00-\x1F\ud800-\udfff]|\\["\\/bfnrt]'
    r"|\\u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})*"
)
_PATTERNS = {
    "number": re.compile(_NUMBER),
    "integer": re.compile(_INTEGER),
    "string": re.compile(f'"{_STRING_BODY}"'),
    "string-body": re.compile(_STRING_BODY),
    "scalar": re.compile(f'"{_STRING_BODY}"|{_NUMBER}|true|false|null'),
}
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]', re.DOTALL)


@dataclass(frozen=True)
class PlacedSpan:
    """A span with the text around it."""

    index: int  # in the skeleton, from 0
    span: SkeletonSpan
    in_string: bool = False  # the preceding text leaves a JSON string open
    before: str = ""  # the fixed text before the value, unless it is the `after` of an earlier span
    after: str = ""  # the fixed text after the value
    follow: tuple[str, ...] = ()  # alternatives to `after`, of which the model chooses one
    grammar: str | None = None  # for a span with a rule, with this rule as its start rule "root"

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
        return {"json": self.span.kind}

    def request_with_follow(self) -> dict[str, Any]:
        """Return the request for the value together with an alternative from `follow`, which may
        share a token with it, or show where a number ends."""
        if self.texts is not None:
            return {"choices": [text + follow for text in self.texts for follow in self.follow]}
        return {"dfa": followed_value(self.request()["json"], self.follow)}

    def value(self, text: str) -> Any:
        if self.span.kind == "enum" and self.texts is not None and self.span.enum_values:
            return self.span.enum_values[self.texts.index(text)]
        if self.span.rule is not None or (self.in_string and self.span.kind == "free-string"):
            try:
                return string_from_body(text) if self.in_string else read_json(text)
            except InvalidArgumentError:
                return text
        return read_json(text)

    def ends(self, text: str, start: int) -> Iterator[int]:
        """Yield the indices at which a value that begins at `start` may end. The value of a span
        with a rule may end anywhere, because rules are not checked."""
        if self.is_literal:
            yield start
        elif self.texts is not None:
            yield from (start + len(each) for each in self.texts if text.startswith(each, start))
        elif self.span.rule is not None:
            yield from range(start, len(text) + 1)
        elif self.span.kind == "free-json" and text[start : start + 1] in ("{", "["):
            yield from _container_ends(text, start)
        else:
            kind = "scalar" if self.span.kind == "free-json" else self.request()["json"]
            found = _PATTERNS[kind].match(text, start)
            yield from () if found is None else (found.end(),)

    def check_follower(self, following: str | None) -> None:
        """Raise InvalidArgumentError if the text that follows does not show the end of the value:
        the next literal, ``""`` at the end of the skeleton, or None if another value follows
        directly."""
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


Script = Generator[PlacedSpan, tuple[str, str], None]
"""A generator of the spans of an answer, in order. The caller sends it what was written for each
span, the value and the text after it, because a later span may depend on an earlier one."""


def _container_ends(text: str, start: int) -> Iterator[int]:
    position, depth, n_spaces = start, 0, 0
    for token in _TOKEN.finditer(text, start):
        depth += (token.group() in "[{") - (token.group() in "]}")
        n_spaces = n_spaces + 1 if token.group().isspace() else 0
        is_gap = token.start() != position
        position = token.end()
        if is_gap or depth > JSON_DEPTH or n_spaces > MAX_SPACES:
            return
        if depth == 0:
            break
    if depth == 0 and _is_json(text[start:position]):
        yield position


def _is_json(text: str) -> bool:
    """Return whether this is JSON whose strings are valid Unicode."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=list,  # to also check the values of repeated keys
            parse_constant=reject_constant,
            parse_int=str,  # Python rejects thousands of digits
        )
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True
