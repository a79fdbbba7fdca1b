"""Sets of characters, and their UTF-8 encoding as byte ranges."""

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
"""Ranges of code points, first and last included, in ascending order and without overlap."""

ByteRanges = tuple[tuple[int, int], ...]
"""A set of characters of equal length in UTF-8: the lowest and highest value of each byte."""

_SURROGATES = (0xD800, 0xDFFF)


def one(code_point: int) -> CodePoints:
    """Return the set of one character."""
    return ((code_point, code_point),)


def utf8_sequences(first: int, last: int) -> Iterator[ByteRanges]:
    """Split a range of code points into runs whose UTF-8 forms one byte range at each position.

    A run consists of all characters whose bytes are in these ranges.

    Parameters
    ----------
    first, last
        The code points, both included. The range must not contain surrogates.

    Yields
    ------
    tuple of (int, int)
        For each byte of a run's characters, its lowest and highest value. Runs are in ascending
        order.

    Notes
    -----
    Ken Thompson's method for grep, described by Russ Cox in "Regular Expression Matching in the
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
    """Return the code point after which to split the range, or None if it is a single run."""
    for longest in (0x7F, 0x7FF, 0xFFFF):  # the last code points with 1, 2 and 3 bytes
        if first <= longest < last:
            return longest
    if last <= 0x7F:
        return None
    for low_bits in (0x3F, 0xFFF, 0x3FFFF):  # the bits in 1, 2 and 3 continuation bytes
        if first & ~low_bits != last & ~low_bits:
            if first & low_bits:
                return first | low_bits
            if last & low_bits != low_bits:
                return (last & ~low_bits) - 1
    return None


def union(ranges: Iterable[tuple[int, int]]) -> CodePoints:
    """Return the union of ranges, which may overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: CodePoints) -> CodePoints:
    """Return all other code points, surrogates included."""
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
    """Return the UTF-8 encoding of a set of characters, without surrogates."""
    scalar_values = complement(union([*complement(ranges), _SURROGATES]))
    return tuple(run for first, last in scalar_values for run in utf8_sequences(first, last))
