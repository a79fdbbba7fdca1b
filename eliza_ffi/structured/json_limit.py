"""Limit the length of numbers in JSON answers, and let an object have each property only once. A
small model that starts to repeat a digit may write hundreds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import lazy_property
from .json_text import ENDS_PLAIN_TEXT, JsonScanner, json_parts
from .token_texts import TokenTexts

_CLOSES = re.compile(rb"[]}]")
_TEXT = rb'(?:[^"\\]|\\.)*'
_WHOLE_NAME = re.compile(rb'(?:^|[{,])\s*"' + _TEXT + rb'"', re.DOTALL)


MAX_DIGITS = 19
"""The maximum number of digits: ids and times in nanoseconds have 19. The decimal point counts as a
digit, so a number with a fraction has at most 18 digits."""

MAX_EXPONENT_DIGITS = 2

_DIGITS = b"0123456789"
_RUN = re.compile(rb"[0-9.]*")
_NUMBER_AT_END = re.compile(r"[0-9.eE+-]+\Z")
_NUMBER = re.compile(r"(?P<digits>[0-9.]+)[+-]*([eE][+-]*(?P<exponent>[0-9.]*))?\Z")
_NUMBERS = frozenset(
    ("const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")
)


def longest_number(schema: Any) -> int:
    """Return the digit limit for a schema: the default, or more if its own numbers are longer."""
    most = MAX_DIGITS
    for pointer, part in json_parts(schema):
        is_long = isinstance(part, int | float) and abs(part) >= 10**MAX_DIGITS
        if is_long and not _NUMBERS.isdisjoint(pointer.split("/")):
            # One digit more than in the bound itself: the bound may be an exclusive power of ten.
            most = max(most, len(str(int(min(abs(part), 1e308)))) + 1)
    return most


class JsonTokens:
    """The tokens of a vocabulary that matter to the limits: those that begin with digits, and those
    that can end the name of a property."""

    LONGEST = 16

    def __init__(self, vocabulary: TokenTexts) -> None:
        self.texts = vocabulary.texts
        self._controls = vocabulary.controls
        self._n_words = vocabulary.n_words

    # ---- names ---------------------------------------------------------------------------------

    def _matching(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, re.Match[bytes]]]:
        for token, text in enumerate(self.texts):
            if b'"' in text and token not in self._controls and (found := pattern.search(text)):
                yield token, found

    @lazy_property
    def closing(self) -> dict[bytes, list[int]]:
        """The tokens with a quote, by the text before it, which has no escape sequence."""
        found = defaultdict(list)
        for token, match in self._matching(re.compile(rb'[^"\\]*(?=")')):
            if match.start() == 0:
                found[match.group()].append(token)
        return dict(found)

    def beginning(self, text: bytes) -> Iterator[int]:
        for n in range(1, len(text) + 1):
            yield from self._spelling.get(text[:n], ())

    @lazy_property
    def _spelling(self) -> dict[bytes, list[int]]:
        found = defaultdict(list)
        for token, text in enumerate(self.texts):
            if token not in self._controls:
                found[text].append(token)
        return dict(found)

    @lazy_property
    def escaping(self) -> list[int]:
        """The tokens with a quote after an escape sequence."""
        return [token for token, _ in self._matching(re.compile(rb'^[^"\\]*\\.*"', re.DOTALL))]

    @lazy_property
    def quoting(self) -> list[int]:
        return [token for token, _ in self._matching(re.compile(rb'"'))]

    @lazy_property
    def opening(self) -> list[int]:
        """The tokens that consist of a comma or a quote, and spaces."""
        return [
            token
            for text, tokens in self._spelling.items()
            if re.fullmatch(rb'\s*(,\s*"?|")', text)
            for token in tokens
        ]

    @lazy_property
    def whole(self) -> list[int]:
        return [token for token, _ in self._matching(_WHOLE_NAME)]

    # ---- numbers -------------------------------------------------------------------------------

    @lazy_property
    def _others(self) -> list[NDArray[np.uint32]]:
        """The mask for each n from 0 to `LONGEST`; shape ``[n_words]``."""
        lengths = np.zeros(32 * self._n_words, np.int64)
        for token, text in enumerate(self.texts):
            if text and (text[0] in _DIGITS or text[0] == ord(".")):
                run = _RUN.match(text)
                n = run.end() if run is not None else 0
                # A decimal point needs at least one more digit.
                lengths[token] = n + (text[n - 1] == ord("."))
        return [
            np.packbits(lengths <= most, bitorder="little").view(np.uint32)
            for most in range(self.LONGEST + 1)
        ]

    def keep_short(self, mask: NDArray[np.uint32], room: int) -> NDArray[np.uint32]:
        """Remove tokens that begin with more than `room` digits, unless no token would remain."""
        if room >= self.LONGEST:
            return mask
        kept: NDArray[np.uint32] = mask & self._others[max(room, 0)]
        return kept if kept.any() else mask  # the schema requires more digits


class JsonLimit:
    """Tracks one text, and limits the JSON values in it, which begin after one of the strings
    `after`. A number has at most `max_digits` digits. If `limits_names`, an object has each name
    once."""

    def __init__(
        self,
        tokens: JsonTokens,
        limits_names: bool,
        max_digits: int = MAX_DIGITS,
        after: Sequence[bytes] = (b"",),
    ) -> None:
        self.tokens = tokens
        self.limits_names = limits_names
        self._max_digits = max_digits
        self._after = tuple(after)
        self._is_whole = b"" in self._after
        self._longest = max(map(len, self._after), default=1)
        self._is_json = self._is_whole
        self._begin()
        self.end = ""  # of the text: outside JSON as long as `_longest`, otherwise its last number

    def _begin(self) -> None:
        self.scanner = JsonScanner()
        # The names in each open object, as UTF-8, and None for an open array; outermost first.
        self._open: list[set[bytes] | None] = []
        self._expects_name = False
        self.name: bytes | None = None  # the beginning of the name in which the text ends, as JSON

    def push(self, text: bytes) -> None:
        if not self._after:
            return
        parts: Sequence[bytes] = (text,)
        is_inside = self._is_json and self.scanner.depth > 0 and not _CLOSES.search(text)
        if not (self._is_whole or is_inside):  # a JSON value may begin or end within a token
            parts = [text[i : i + 1] for i in range(len(text))]
        for data in parts:
            if not self._is_json:
                self.end = (self.end + data.decode("latin-1"))[-self._longest :]
                if self.end.encode("latin-1").endswith(self._after):
                    self._is_json, self.end = True, ""
                    self._begin()
                continue
            scanner, was_in_string = self.scanner, self.scanner.in_string
            if scanner.is_plain and self.name is None and not ENDS_PLAIN_TEXT.search(data):
                continue
            added = data.decode("latin-1")
            if self.limits_names:
                self._push_names(data)
            else:
                scanner.push(added)
            if scanner.in_string:
                self.end = ""
                continue
            begin = added.rfind('"') + 1
            before = "" if begin or was_in_string else self.end
            found = _NUMBER_AT_END.search(before + added[begin:])
            self.end = "" if found is None else found.group()
            self._is_json = self._is_whole or scanner.depth > 0 or bool(self.end)

    # ---- numbers -------------------------------------------------------------------------------

    def restricted(self, mask: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Remove the tokens that would make a number too long from a mask."""
        number = _NUMBER.search(self.end) if self._is_json and self.end else None
        if number is None:
            return mask
        if number["exponent"] is not None:
            room = MAX_EXPONENT_DIGITS - len(number["exponent"])
        else:
            room = self._max_digits - len(number["digits"])
        return self.tokens.keep_short(mask, room)

    # ---- names ---------------------------------------------------------------------------------

    @property
    def _used(self) -> set[bytes]:
        """The names of the innermost open object, if the text ends in it."""
        return (self._open[-1] if self._open else None) or set()

    def _push_names(self, text: bytes) -> bool:
        """Append JSON. Return whether an object now has a name twice."""
        begin, repeats = 0, False
        marks: list[tuple[str, int, bool]] = []
        self.scanner.push(text.decode("latin-1"), marks)
        for char, end, in_string in marks:
            if char != '"':
                self._structure(char)
            elif in_string:
                begin, self.name = end, b"" if self._expects_name else None
                self._expects_name = False
            elif self.name is not None:
                repeats |= self._end_name(self.name + text[begin : end - 1])
        if self.name is not None:
            self.name += text[begin:]
        return repeats

    def _end_name(self, text: bytes) -> bool:
        names, name, self.name = self._used, _decoded(text), None
        is_repeated = name in names
        if self._open and self._open[-1] is not None:
            self._open[-1].add(name)
        return is_repeated

    def _structure(self, char: str) -> None:
        if char in "{[":
            self._open.append(set() if char == "{" else None)
        elif char in "}]":
            del self._open[-1:]
        is_object = bool(self._open) and self._open[-1] is not None
        self._expects_name = is_object and char in "{,"

    def _copy(self) -> JsonLimit:
        made = copy(self)
        made.scanner = replace(self.scanner)
        made._open = [None if names is None else set(names) for names in self._open]
        return made

    def repeats(self, text: bytes) -> bool:
        """Return whether an object would have a name twice after this text."""
        return b'"' in text and any(self._open) and self._copy()._push_names(text)

    def candidates(self) -> Iterator[int]:
        """Yield all tokens after which an object could have or begin a name for the second time."""
        if not any(self._open):
            return
        tokens = self.tokens
        yield from tokens.whole
        if not self._used:
            return
        if self.name is None:
            yield from () if self.scanner.in_string else tokens.opening
            return
        yield from tokens.quoting if b"\\" in self.name else tokens.escaping
        for name in self._used:
            if name.startswith(self.name):
                rest = name[len(self.name) :]
                yield from tokens.closing.get(rest, ())
                yield from tokens.beginning(rest)

    def is_begun(self, text: bytes) -> bool:
        """Return whether the text, after this one, only begins a name that the object has."""
        after = self._copy()
        after._push_names(text)
        begun = after.name
        return begun is not None and any(name.startswith(begun) for name in after._used)


def _decoded(name: bytes) -> bytes:
    """Return the UTF-8 of a name that is given as JSON without its quotes."""
    if b"\\" not in name:
        return name
    try:
        text: str = json.loads(b'"' + name + b'"', strict=False)
    except ValueError:
        return name
    return text.encode("utf-8", "surrogatepass")
