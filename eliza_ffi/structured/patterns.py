"""Split patterns of JSON Schemas into patterns that llguidance can match.

llguidance's regular expressions have no lookaround. Real schemas mostly use it for conditions at a
known place, as in ``^(?!aws:)[a-z:]+$``. A string matches this pattern if it matches ``^[a-z:]+$``
and does not match ``^(?:aws:)``. The place may also be after some characters, as in ``^/(?!/)``, or
at the end, as in ``(?<!x)$``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["SplitPattern", "split_pattern"]

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
_TOKEN = re.compile(rf"{re.escape(_NO_MORE)}|{_PAIR}|\\.|.", re.DOTALL)


@dataclass(frozen=True)
class SplitPattern:
    """A pattern without lookaround, and the conditions that were split from it.

    Every pattern may match anywhere in a string.

    Attributes
    ----------
    main : str
        The pattern without its conditions.
    conditions : tuple of (bool, str)
        For each condition, whether the string must match or must not match, and the pattern.
    """

    main: str
    conditions: tuple[tuple[bool, str], ...] = ()


@functools.lru_cache(maxsize=256)
def split_pattern(pattern: str) -> SplitPattern:
    """Split the conditions of a pattern from the rest.

    Syntax that llguidance does not support is translated: ``\\Z``, ``(?![\\s\\S])``, and pairs of
    surrogates.
    """
    whole = "".join(map(_translated, _TOKEN.findall(pattern)))
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


def _translated(token: str) -> str:
    if token in (r"\Z", _NO_MORE):
        return r"\z"
    if len(token) == 12:  # a pair of surrogates, which is one character
        high, low = int(token[2:6], 16), int(token[8:], 16)
        return rf"\U{0x10000 + ((high - 0xD800) << 10) + low - 0xDC00:08x}"
    return token


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
