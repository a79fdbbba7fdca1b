"""Split patterns of JSON Schemas into patterns that llguidance can match.

llguidance's regular expressions have no lookaround. Real schemas mostly use it for conditions at a
known place, as in ``^(?!aws:)[a-z:]+$``. A string matches this pattern if it matches ``^[a-z:]+$``
and does not match ``^(?:aws:)``. The place may also be after some characters, as in ``^/(?!/)``, or
at the end, as in ``(?<!x)$``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

TEXT_END = 256
"""The end-of-text token. Tokens 0 to 255 are the bytes."""

MOST_CONDITIONS = 16
LONGEST_BEGINNING = 256
"""The maximum number of characters before a condition. The two limits bound the size of the split
pattern, because the beginning is repeated in each condition."""

_UNSUPPORTED = re.compile(r"\(\?(?:[=!>]|<[=!]|P=)|\\[bB1-9]")
_START = re.compile(r"\^|\\A")
_QUANTIFIER = re.compile(r"[*+?{]")
_LOOKBEHIND = re.compile(r"\(\?<(?P<kind>[=!])(?P<inside>(?:\\.|[^\\()])*)\)\$\Z")
_ATOM = re.compile(
    r"(?:[\w:/@#%&=,;<>~!'\" -]|\\[dwsDWS./:\-]|\[(?:\\.|[^\[\]\\])+\])(?![*+?{])", re.ASCII
)
_NO_MORE = r"(?![\s\S])"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BRACES = r"\\[pPux]\{[^{}]+\}|\{\d+(?:,\d*)?\}"
_TOKEN = re.compile(rf"{re.escape(_NO_MORE)}|{_PAIR}|{_BRACES}|\\c[A-Za-z]|\\.|.", re.DOTALL)
_EMPTY_CLASS = re.compile(r"\[\^?\]")
_ANY, _NONE = r"[\s\S]", r"[^\s\S]"
_LITERALS = "<>aeghijlmoqy"
"""Characters that mean themselves in JavaScript after a backslash, but not in other dialects."""


@dataclass(frozen=True)
class SplitPattern:
    """A pattern without lookaround, and the conditions that were split from it.

    Every pattern may match anywhere in a string. A condition is whether the string must match or
    must not match, and a pattern.
    """

    main: str
    conditions: tuple[tuple[bool, str], ...] = ()


@functools.lru_cache(maxsize=256)
def split_pattern(pattern: str) -> SplitPattern:
    """Split the conditions of a pattern from the rest.

    JavaScript's syntax is translated to llguidance's, which is Rust's. ``\\A``, ``\\z`` and ``\\Z``
    keep the meaning that they have in most other dialects: the beginning and the end of the text.
    """
    whole = in_rust(pattern)
    begun = _START.match(whole)
    conditions: list[tuple[bool, str]] = []
    main, rest = ("^", whole[begun.end() :]) if begun else ("", whole)
    # `main` consists of single characters, so a condition has only one place.
    while begun and len(main) <= LONGEST_BEGINNING and len(conditions) < MOST_CONDITIONS:
        atom = _ATOM.match(rest)
        end = _end_of_group(rest) if rest[:3] in ("(?=", "(?!") else None
        if end is not None and not _QUANTIFIER.match(rest, end + 1):
            conditions.append((rest[2] == "=", f"{main}(?:{rest[3:end]})"))
            rest = rest[end + 1 :]
        elif atom is not None:
            main, rest = main + atom.group(), rest[atom.end() :]
        else:
            break
    main += rest
    last = _LOOKBEHIND.search(main)
    if last is not None and _end_of_group(main[last.start() :]) == last.end() - last.start() - 2:
        conditions.append((last["kind"] == "=", f"(?:{last['inside']})$"))
        main = f"{main[: last.start()]}$"
    if (
        not conditions
        or _has_alternatives(main)
        or any(_UNSUPPORTED.search(each) for each in (main, *(each for _, each in conditions)))
    ):
        return SplitPattern(whole)
    return SplitPattern(main, tuple(conditions))


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
        token = match.group()
        if in_class:
            in_class = token != "]"
            continue
        in_class = token == "["
        depth += (token == "(") - (token == ")")
        yield match.start(), token, depth


def _end_of_group(pattern: str) -> int | None:
    """Return the index of the parenthesis that closes the group at the beginning."""
    return next((at for at, token, depth in _depths(pattern) if token == ")" and not depth), None)


def _has_alternatives(pattern: str) -> bool:
    return any(token == "|" and depth <= 0 for _, token, depth in _depths(pattern))


def matches_nothing_else(pattern: str, names: Iterable[str]) -> bool:
    """Return whether a pattern in Rust's dialect matches none but these strings.

    False if it cannot be told, as with a pattern that is not anchored at both ends.
    """
    from llguidance import LLMatcher

    inside = pattern[1:-1]
    is_anchored = pattern.startswith("^") and pattern.endswith("$") and not pattern.endswith("\\$")
    if not is_anchored or split_pattern(pattern).conditions or _has_alternatives(inside):
        return False
    known = "|".join(map(re.escape, names))
    rest = "T: " + " & ~".join(f"/{each.replace('/', chr(92) + '/')}/" for each in (inside, known))
    grammar = LLMatcher.grammar_from_lark(f"start: T\n{rest}")
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    if matcher.is_error():
        return False
    mask = matcher.compute_bitmask()
    if matcher.is_error():  # also if nothing matches
        return "TooComplex" not in matcher.get_error()
    return not any(mask)


@functools.cache
def byte_tokenizer() -> Any:
    """Return a tokenizer with one token for each byte."""
    from llguidance import LLTokenizer, TokenizerWrapper

    class Bytes:
        tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
        special_token_ids = (TEXT_END,)
        bos_token_id = None
        eos_token_id = TEXT_END

        def __call__(self, text: bytes | str) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    return LLTokenizer(TokenizerWrapper(Bytes()), slices=[])
