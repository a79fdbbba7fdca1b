"""Find out how much of a growing text must be held back, because a mark may begin there."""

from __future__ import annotations


def n_held(text: str, *marks: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a mark."""
    longest = min(len(text), max(map(len, marks)) - 1)
    for n in range(longest, 0, -1):
        if any(mark.startswith(text[-n:]) for mark in marks):
            return n
    return 0
