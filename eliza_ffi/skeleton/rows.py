"""Arrays of objects, an item at a time.

As one value such an array is an automaton's text, of which every token takes a pass, its keys too.
Item by item the keys are known text, and the model writes values alone. Whether another item
follows, where that is open, it decides by how it goes on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import count

from .placed_span import Filled, PlacedSpan
from .spans import SkeletonSpan

__all__ = ["CHARACTERS_OF_A_TOKEN", "Rows", "rows_script"]

CHARACTERS_OF_A_TOKEN = 2
"""Of JSON, about: by this an array is as long as so many tokens."""

_NOTHING = SkeletonSpan("literal", value="")

_Writing = Generator[PlacedSpan, Filled, int]
"""Spans one after the other; at last, how many characters they came to."""


@dataclass(frozen=True)
class Rows:
    """The items of an array, all of one kind.

    Attributes
    ----------
    item : tuple of PlacedSpan
        What is written for an item: one or more values, known text around them. It ends in known
        text.
    fewest : int
    most : int or None
    """

    item: tuple[PlacedSpan, ...]
    fewest: int
    most: int | None


def rows_script(placed: PlacedSpan, rows: Rows, max_tokens: int | None) -> _Writing:
    """Yield what is written of an array, in place of a span that is all of it.

    Parameters
    ----------
    placed
        The span. It is yielded itself where the array could have no end.
    rows
    max_tokens
        An array without a greatest length ends behind the item with which it comes to about so
        many tokens, and a span that `tells_of_limit` follows; 0 = no limit, None = such an array is
        one value.
    """
    if rows.most is None and max_tokens is None:
        filled = yield placed
        return len(filled.text)
    opening, end = rows.item[0].before, "]" + placed.after
    known, n_written = f"{placed.before}[{opening}", 0
    if rows.fewest == 0:
        options = ("[" + end, "[" + opening)
        filled = yield PlacedSpan(placed.index, _NOTHING, before=placed.before, follow=options)
        if filled.follow == options[0]:
            return 2
        known = ""
    for i in count() if rows.most is None else range(rows.most):
        is_long = bool(max_tokens) and n_written >= CHARACTERS_OF_A_TOKEN * (max_tokens or 0)
        is_cut = is_long and rows.most is None and i + 1 >= rows.fewest
        following = ""
        if i + 1 < rows.fewest:
            following = "," + opening
        elif i + 1 == rows.most or is_cut:
            following = end
        for part in rows.item:
            after = part.after + (following if part is rows.item[-1] else "")
            n_written += yield from _part(placed, part, i, known, after, max_tokens)
            known = ""
        if is_cut:
            yield PlacedSpan(placed.index, _NOTHING, tells_of_limit=True)
        if following == end:
            break
        if not following:
            filled = yield PlacedSpan(placed.index, _NOTHING, follow=("," + opening, end))
            if filled.follow == end:
                break
            n_written += len(filled.follow)
    return n_written


def _part(
    placed: PlacedSpan, part: PlacedSpan, i: int, before: str, after: str, max_tokens: int | None
) -> _Writing:
    """Yield a value of an item, which may be an array of its own."""
    names = [str(name) for name in (placed.span.key, i, part.span.key) if name is not None]
    span = replace(part.span, key=".".join(names))
    made = replace(part, index=placed.index, span=span, before=before, after=after)
    if isinstance(span.rows, Rows):
        n_written = yield from rows_script(made, span.rows, max_tokens)
    else:
        filled = yield made
        n_written = len(filled.text)
    return len(before) + n_written + len(after)
