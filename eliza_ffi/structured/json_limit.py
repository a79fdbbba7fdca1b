"""Limit the length of numbers in JSON answers, and let an object have each property only once. A
small model that starts to repeat a digit may write hundreds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import lazy_property
from .json_text import ENDS_PLAIN_TEXT, JsonScanner, json_parts
from .name_limit import NameLimit, NameTokens
from .token_texts import TokenTexts

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


class NumberTokens:
    """Masks of the tokens that begin with at most n digits, for each n."""

    LONGEST = 16

    def __init__(self, vocabulary: TokenTexts) -> None:
        self._texts = vocabulary.texts
        self._n_words = vocabulary.n_words

    @lazy_property
    def _others(self) -> list[NDArray[np.uint32]]:
        """The mask for each n from 0 to `LONGEST`; shape ``[n_words]``."""
        lengths = np.zeros(32 * self._n_words, np.int64)
        for token, text in enumerate(self._texts):
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
    """Tracks one text, and limits the numbers and names in its JSON values, which begin after one
    of the strings `after`. A number has at most `max_digits` digits."""

    def __init__(
        self,
        numbers: NumberTokens,
        names: NameTokens | None,
        max_digits: int,
        after: Sequence[bytes] = (b"",),
    ) -> None:
        self._number_tokens = numbers
        self._max_digits = max_digits
        self._after = tuple(after)
        self._is_whole = b"" in self._after
        self._longest = max(map(len, self._after), default=1)
        self._is_json = self._is_whole
        self._name_tokens = names
        self._begin()
        self.end = ""  # of the text: outside JSON as long as `_longest`, otherwise its last number

    def _begin(self) -> None:
        tokens = self._name_tokens
        self.names = None if tokens is None else NameLimit(tokens)
        self._scanner = JsonScanner() if self.names is None else self.names.scanner

    @property
    def in_string(self) -> bool:
        return self._scanner.in_string

    def push(self, text: bytes) -> None:
        parts: Sequence[bytes] = (text,)
        if not self._is_whole:  # a JSON value may begin or end within a token
            parts = [text[i : i + 1] for i in range(len(text))]
        for data in parts:
            if not self._is_json:
                self.end = (self.end + data.decode("latin-1"))[-self._longest :]
                if self.end.encode("latin-1").endswith(self._after):
                    self._is_json, self.end = True, ""
                    self._begin()
                continue
            names, scanner, was_in_string = self.names, self._scanner, self._scanner.in_string
            is_name = names is not None and names.name is not None
            if scanner.is_plain and not is_name and not ENDS_PLAIN_TEXT.search(data):
                continue
            added = data.decode("latin-1")
            if names is None:
                scanner.push(added)
            else:
                names.push(data)
            if scanner.in_string:
                self.end = ""
                continue
            begin = added.rfind('"') + 1
            before = "" if begin or was_in_string else self.end
            found = _NUMBER_AT_END.search(before + added[begin:])
            self.end = "" if found is None else found.group()
            self._is_json = self._is_whole or scanner.depth > 0 or bool(self.end)

    def repeats(self, text: bytes) -> bool:
        """Return whether an object would have a name twice after this text."""
        return self.names is not None and self.names.repeats(text)

    def restricted(self, mask: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Remove the tokens that would make a number too long from a mask."""
        number = _NUMBER.search(self.end) if self._is_json and self.end else None
        if number is None:
            return mask
        if number["exponent"] is not None:
            room = MAX_EXPONENT_DIGITS - len(number["exponent"])
        else:
            room = self._max_digits - len(number["digits"])
        return self._number_tokens.keep_short(mask, room)
