"""Translate patterns of JSON Schemas for llguidance, which has no lookaround."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from .compile_time import check_time

TEXT_END = 256
"""The end-of-text token. Tokens 0 to 255 are the bytes."""

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_QUANTIFIER = re.compile(r"[*+?{]")
_NO_MORE = r"(?![\s\S])"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BRACES = r"\\[pPux]\{[^{}]+\}|\{\d+(?:,\d*)?\}"
_TOKEN = re.compile(rf"{re.escape(_NO_MORE)}|{_PAIR}|{_BRACES}|\\c[A-Za-z]|\\.|.", re.DOTALL)
_EMPTY_CLASS = re.compile(r"\[\^?\]")
_ANY, _NONE = r"[\s\S]", r"[^\s\S]"
_LITERALS = "<>aeghijlmoqy"
"""Characters that mean themselves in JavaScript after a backslash, but not in other dialects."""


def without_lookaround(pattern: str) -> str:
    """Remove the conditions from a pattern in Rust's dialect, which then matches more strings. A
    pattern with a quantifier after a condition stays as it is, because dialects differ."""
    parts, begin, opened = [], 0, 0  # `opened` is the depth inside of a condition
    for at, token, depth in _depths(pattern):
        if depth < opened:
            begin, opened = at + 1, 0
            if _QUANTIFIER.match(pattern, begin):
                return pattern
        elif not opened and (token in (r"\b", r"\B") or _LOOKAROUND.match(pattern, at)):
            parts.append(pattern[begin:at])
            begin, opened = at + len(token), depth if token == "(" else 0
    return pattern if opened else "".join([*parts, pattern[begin:]])


def translate_patterns(part: dict[str, Any]) -> None:
    if isinstance(part.get("pattern"), str):
        part["pattern"] = in_rust(part["pattern"])
    if isinstance(named := part.get("patternProperties"), dict):
        part["patternProperties"] = {in_rust(name): schema for name, schema in named.items()}


def in_rust(pattern: str) -> str:
    """Translate a pattern from JavaScript's dialect to Rust's."""
    found: list[str] = []
    at, in_class, last = 0, False, ""
    while at < len(pattern):
        if not in_class and (empty := _EMPTY_CLASS.match(pattern, at)):
            found.append(_NONE if empty.group() == "[]" else _ANY)
            at = empty.end()
            continue
        match = _TOKEN.match(pattern, at)
        assert match is not None
        token, at = match.group(), match.end()
        if not in_class:
            in_class, last = token == "[", token
            found.append(r"\{" if token == "{" else _translated(token))
            continue
        in_class = token != "]"
        # Rust's classes may contain classes, and have operators of two characters.
        is_literal = token == "[" or (token in "&~-" and last == token)
        is_first = token == "-" and last in ("[", "[^")
        last = "[^" if (last, token) == ("[", "^") else token
        found.append(rf"\{token}" if is_literal or is_first else _translated(token))
        if is_literal or is_first:
            last = found[-1]
    return "".join(found)


def _translated(token: str) -> str:
    if token in (r"\Z", _NO_MORE):
        return r"\z"
    if len(token) == 12:  # a pair of surrogates, which is one character
        high, low = int(token[2:6], 16), int(token[8:], 16)
        return rf"\U{0x10000 + ((high - 0xD800) << 10) + low - 0xDC00:08x}"
    if token.startswith(r"\c") and len(token) == 3:
        return rf"\x{ord(token[2]) % 32:02x}"
    if token == r"\0":
        return r"\x00"
    is_literal = len(token) == 2 and token[0] == "\\" and token[1] in _LITERALS
    return token[1] if is_literal else token


def _depths(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Yield the start, the text and the depth of each token outside character classes."""
    depth, in_class = 0, False
    for match in _TOKEN.finditer(pattern):
        check_time()
        token = match.group()
        if in_class:
            in_class = token != "]"
            continue
        in_class = token == "["
        depth += (token == "(") - (token == ")")
        yield match.start(), token, depth


def _has_alternatives(pattern: str) -> bool:
    return any(token == "|" and depth <= 0 for _, token, depth in _depths(pattern))


MAX_STRINGS = 64
"""A pattern with more strings is not listed."""

FUEL = 20_000
"""llguidance's limit for such a pattern, which it reads in a few milliseconds."""


@functools.lru_cache(maxsize=256)
def strings_of(pattern: str) -> tuple[str, ...] | None:
    """Return all strings that match a pattern in JavaScript's dialect; None if they may be many."""
    from llguidance import LLMatcher, LLParserLimits, regex_to_lark

    pattern = in_rust(pattern)
    if not _is_anchored(pattern):
        return None
    try:
        expression = regex_to_lark(pattern[1:-1], "dw")  # as in llguidance's JSON Schemas
    except ValueError:
        return None
    grammar = LLMatcher.grammar_from_lark(f"start: T\nT: /{expression}/")
    limits = LLParserLimits(initial_lexer_fuel=FUEL)
    found: list[bytes] = []
    begun = [(b"", LLMatcher(byte_tokenizer(), grammar, log_level=0, limits=limits))]
    n_read = 0
    while begun:
        text, matcher = begun.pop()
        mask = matcher.compute_bitmask()
        n_read += 1
        if matcher.is_error() or n_read > 8 * MAX_STRINGS or len(begun) > MAX_STRINGS:
            return None
        if matcher.is_accepting():
            found.append(text)
        for byte in range(TEXT_END):
            if mask[byte // 8] >> byte % 8 & 1:
                following = matcher.deep_copy()
                following.consume_token(byte)
                begun.append((text + bytes([byte]), following))
    return tuple(sorted(text.decode() for text in found)) if len(found) <= MAX_STRINGS else None


def _is_anchored(pattern: str) -> bool:
    ends = pattern.startswith("^") and pattern.endswith("$") and not pattern.endswith("\\$")
    return ends and without_lookaround(pattern) == pattern and not _has_alternatives(pattern[1:-1])


@functools.cache
def byte_tokenizer() -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    class Bytes:
        tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
        special_token_ids = (TEXT_END,)
        bos_token_id = None
        eos_token_id = TEXT_END

        def __call__(self, text: bytes | str) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    return LLTokenizer(TokenizerWrapper(Bytes()), slices=[])
