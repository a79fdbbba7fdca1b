"""Find stop strings in generated text, even if they are split over several tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ..chat.held_text import n_held


class StopTexts:
    """Passes text on up to the first stop string.

    The end of the text is held back while it may be the beginning of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.has_come = False

    def push(self, text: str, is_last: bool) -> str:
        """Add text, and return the text that can be passed on now; hold back none of the last."""
        text = self._held + text
        # Take the stop string that ends first, independent of how the text was split. If several
        # end at the same place, take the longest.
        found = [(place + len(s), place) for s in self._stops if (place := text.find(s)) >= 0]
        if found:
            self.has_come = True
            return text[: min(found)[1]]
        n = 0 if is_last else n_held(text, *self._stops)
        self._held = text[len(text) - n :]
        return text[: len(text) - n]
