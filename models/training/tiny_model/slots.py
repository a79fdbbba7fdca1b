"""Fill the slots of phrase templates with people, times, places and topics."""

from __future__ import annotations

import random

from .phrases import read_phrases

_PHRASES = read_phrases("slots")


def fill_slot(name: str, rng: random.Random) -> str:
    """Write a value for the slot `name`; raise KeyError if the name is unknown."""
    return rng.choice(_PHRASES[name]).write(rng, fill_slot)
