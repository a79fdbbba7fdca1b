"""Keep the objects of a JSON answer from having a property twice, which llguidance does not
prevent."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from .._lazy import lazy_property
from .json_text import JsonScanner
from .token_texts import TokenTexts

_TEXT = rb'(?:[^"\\]|\\.)*'
_WHOLE_NAME = re.compile(rb'(?:^|[{,])\s*"' + _TEXT + rb'"', re.DOTALL)


class NameTokens:
    """The tokens of a vocabulary that can end the name of a property."""

    def __init__(self, vocabulary: TokenTexts) -> None:
        self.texts = vocabulary.texts
        self._controls = vocabulary.controls

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
        """Yield the tokens that spell a beginning of a text."""
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
        """The tokens that may have a whole name."""
        return [token for token, _ in self._matching(_WHOLE_NAME)]


class NameLimit:
    """Tracks the names of the open objects in a partial JSON text."""

    def __init__(self, tokens: NameTokens) -> None:
        self.tokens = tokens
        self.scanner = JsonScanner()
        # The names in each open object, as UTF-8, and None for an open array; outermost first.
        self._open: list[set[bytes] | None] = []
        self._expects_name = False
        self.name: bytes | None = None  # the beginning of the name in which the text ends, as JSON

    @property
    def used(self) -> set[bytes]:
        """The names of the innermost open object, if the text ends in it."""
        return (self._open[-1] if self._open else None) or set()

    def push(self, text: bytes) -> bool:
        """Append text. Return whether an object now has a name twice."""
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
        names, name, self.name = self.used, _decoded(text), None
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

    def copy(self) -> NameLimit:
        made = NameLimit(self.tokens)
        vars(made).update(vars(self))
        made.scanner = replace(self.scanner)
        made._open = [None if names is None else set(names) for names in self._open]
        return made

    def repeats(self, text: bytes) -> bool:
        """Return whether an object would have a name twice after this text."""
        return b'"' in text and any(self._open) and self.copy().push(text)

    def candidates(self) -> Iterator[int]:
        """Yield all tokens after which an object could have or begin a name for the second time."""
        if not any(self._open):
            return
        tokens = self.tokens
        yield from tokens.whole
        if not self.used:
            return
        if self.name is None:
            yield from () if self.scanner.in_string else tokens.opening
            return
        yield from tokens.quoting if b"\\" in self.name else tokens.escaping
        for name in self.used:
            if name.startswith(self.name):
                rest = name[len(self.name) :]
                yield from tokens.closing.get(rest, ())
                yield from tokens.beginning(rest)

    def is_begun(self, text: bytes) -> bool:
        """Return whether the text, after this one, only begins a name that the object has."""
        after = self.copy()
        after.push(text)
        begun = after.name
        return begun is not None and any(name.startswith(begun) for name in after.used)


def _decoded(name: bytes) -> bytes:
    """Return the UTF-8 of a name that is given as JSON without its quotes."""
    if b"\\" not in name:
        return name
    try:
        text: str = json.loads(b'"' + name + b'"', strict=False)
    except ValueError:
        return name
    return text.encode("utf-8", "surrogatepass")
