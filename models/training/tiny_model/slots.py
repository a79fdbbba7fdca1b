"""What the slots of phrase templates are filled with: people, times, places, topics, see texts."""

from __future__ import annotations

import random

from .phrases import read_phrases

_PHRASES = read_phrases("slots")


def fill_slot(name: str, rng: random.Random) -> str:
    """Write a value for the slot ``name``; an unknown name is a ``KeyError``."""
    return rng.choice(_PHRASES[name]).write(rng, fill_slot)
