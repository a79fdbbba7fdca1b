"""Vary the style of messages: polite words, capitals, punctuation, typing errors."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .phrases import parse
from .slots import fill_slot

_BEFORE_REQUEST = parse("""[[hey|hi|ok|so|well|yo|hello|alright|quick one]\
[,|] |][[please|pls|kindly]|[can|could|would|will] you [please|]|i [need|want] you to\
|i'd like you to|let's|go ahead and|would you mind, |help me: |] """)
_AFTER_REQUEST = parse(
    "[|[please|thanks|thank you|thx|pls]|[asap|now|right away|when you can|if possible|for me]]"
)

_FINAL_MARKS = (".", ".", "!", "?", " :)", "!!")


def as_request(text: str, rng: random.Random) -> str:
    """Add polite or hurried words around a request, or leave it unchanged."""
    if rng.random() < 0.45:
        text = f"{_BEFORE_REQUEST.write(rng, fill_slot)} {text}".strip()
    if rng.random() < 0.25:
        after = _AFTER_REQUEST.write(rng, fill_slot)
        text = f"{text}{rng.choice((' ', ', '))}{after}" if after else text
    return text


def as_typed(text: str, rng: random.Random, marks: Sequence[str] = _FINAL_MARKS) -> str:
    """Vary capitals and the final mark, and sometimes add a typing error."""
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
        text = text.replace(" i ", " I ").replace(" i'", " I'")
    elif rng.random() < 0.05:
        text = text.upper()
    if text[-1:].isalnum() and rng.random() < 0.5:
        text += rng.choice(marks)
    if rng.random() < 0.08:
        text = _slip(text, rng)
    return text


def _slip(text: str, rng: random.Random) -> str:
    """Swap, drop or double one character."""
    if len(text) < 6:
        return text
    at = rng.randrange(1, len(text) - 2)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at + 1 :] if kind == 1 else text[:at] + text[at] + text[at:]


def as_label(name: str, rng: random.Random) -> str:
    """Write a name in a random style of labels: unchanged, ``CAPITALS``, ``snake_case`` etc."""
    return write_label(name, draw_label_style(rng))


def draw_label_style(rng: random.Random) -> int:
    """Draw a style for :func:`write_label`, most often the plain one."""
    return rng.choices(range(6), (60, 14, 8, 8, 5, 5))[0]


def write_label(name: str, style: int) -> str:
    """Write a name in a style, 0 (unchanged) to 5."""
    if style == 1:
        return name[:1].upper() + name[1:]
    if style == 2:
        return name.upper().replace(" ", "_")
    if style == 3:
        return name.lower().replace(" ", "_")
    if style == 4:
        return name.lower().replace(" ", "-")
    return name.title() if style == 5 else name
