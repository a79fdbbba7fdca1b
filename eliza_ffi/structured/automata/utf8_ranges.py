"""Sets of characters, and the bytes of UTF-8 that spell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = [
    "LAST_CODE_POINT",
    "ByteRanges",
    "CodePoints",
    "complement",
    "one",
    "union",
    "utf8_of",
    "utf8_sequences",
]

LAST_CODE_POINT = 0x10FFFF

CodePoints = tuple[tuple[int, int], ...]
"""Ranges from the first to the last code point, both included; ascending and apart."""

ByteRanges = tuple[tuple[int, int], ...]
"""For each byte of some characters, its least and greatest value."""

_SURROGATES = (0xD800, 0xDFFF)


def one(code_point: int) -> CodePoints:
    """Return the set of one character."""
    return ((code_point, code_point),)


def utf8_sequences(first: int, last: int) -> Iterator[ByteRanges]:
    """Cut a range of code points into runs whose UTF-8 is a range of bytes at each place.

    Parameters
    ----------
    first, last
        Both included, without surrogates between them.

    Yields
    ------
    tuple of (int, int)
        For each byte of the characters of one run, its least and greatest value. Ascending.

    Notes
    -----
    As Ken Thompson did for grep and Russ Cox describes in "Regular Expression Matching in the
    Wild" (2010).
    """
    runs = [(first, last)]
    while runs:
        first, last = runs.pop()
        cut = _utf8_cut(first, last)
        if cut is None:
            yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))
        else:
            runs += [(cut + 1, last), (first, cut)]


def _utf8_cut(first: int, last: int) -> int | None:
    """Return the code point to cut behind, or None where the range is one run."""
    for longest in (0x7F, 0x7FF, 0xFFFF):  # the last code points of one, two and three bytes
        if first <= longest < last:
            return longest
    if last <= 0x7F:
        return None
    for low_bits in (0x3F, 0xFFF, 0x3FFFF):  # of one, two and three continuation bytes
        if first & ~low_bits != last & ~low_bits:
            if first & low_bits:
                return first | low_bits
            if last & low_bits != low_bits:
                return (last & ~low_bits) - 1
    return None


def union(ranges: Iterable[tuple[int, int]]) -> CodePoints:
    """Return the characters of any of the ranges, which may overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: CodePoints) -> CodePoints:
    """Return all other characters, surrogates among them."""
    gaps = []
    begin = 0
    for first, last in ranges:
        if begin < first:
            gaps.append((begin, first - 1))
        begin = last + 1
    if begin <= LAST_CODE_POINT:
        gaps.append((begin, LAST_CODE_POINT))
    return tuple(gaps)


def utf8_of(ranges: CodePoints) -> tuple[ByteRanges, ...]:
    """Return the UTF-8 of a set of characters; surrogates have none."""
    scalar_values = complement(union([*complement(ranges), _SURROGATES]))
    return tuple(run for first, last in scalar_values for run in utf8_sequences(first, last))
