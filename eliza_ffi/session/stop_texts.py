"""Texts that end a generation, found as they come, wherever the tokens cut them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopTexts"]


class StopTexts:
    """Lets a text through up to the first of some texts in it.

    What may turn out to be the beginning of one is held back until that is known.

    Parameters
    ----------
    stops
        Not empty, nor is one of them.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.has_come = False

    def push(self, text: str, is_last: bool) -> str:
        """Return what of the text so far can be given out now.

        Parameters
        ----------
        text
            What came.
        is_last
            Nothing follows, so nothing is held back.
        """
        text = self._held + text
        # The one that is whole first, however the text was cut; of several, the longest.
        found = [(place + len(s), place) for s in self._stops if (place := text.find(s)) >= 0]
        if found:
            self.has_come = True
            return text[: min(found)[1]]
        n_held = 0 if is_last else self._n_possible(text)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def _n_possible(self, text: str) -> int:
        """Return how many characters at the end may be the beginning of a stop."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for n in range(longest, 0, -1):
            if any(stop.startswith(text[-n:]) for stop in self._stops):
                return n
        return 0
