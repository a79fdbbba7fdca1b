"""Texts as a terminal shows them: how many columns they take, cut and wrapped by that.

A terminal gives a Chinese character or an emoji two columns, and a combining mark none; what is
joined to an emoji, a skin tone or another emoji behind a joiner, is drawn in the same two. Unicode
calls what is so drawn together a cluster. Terminals that draw its parts apart take more.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

__all__ = ["pad", "printable", "shorten", "text_width", "wrap"]

NON_JOINER, JOINER = "\u200c", "\u200d"
AS_TEXT, AS_EMOJI = "\ufe0e", "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
TAGS = range(0xE0020, 0xE0080)
"""What a black flag has behind it to be that of England or Texas."""

HANGUL_ENDINGS = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
"""Vowels and last consonants, which are drawn into the syllable that a first consonant begins."""

INFORMATION = "\u2139"
"""The one letter that is an emoji, too: an i in a circle or a box."""


def printable(text: str) -> str:
    """Return a text with its control characters spelled out, but for line breaks.

    What a model's file says of itself must not move the cursor of whoever reads it. Spaces of all
    kinds do not, nor does what joins the parts of an emoji or a word.
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_harmless(character) else ascii(character)[1:-1] for character in text
    )


def text_width(text: str) -> int:
    """Return how many columns a printable text takes."""
    return len(text) if text.isascii() else sum(width for _, width in _clusters(text))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text filled with spaces to a width, behind it or, aligned right, before it."""
    spaces = " " * (width - text_width(text))
    return spaces + text if right else text + spaces


def shorten(text: str, width: int) -> str:
    """Return a text on one line, cut to a width; three dots stand for what is left out."""
    line = " ".join(text.split())
    if text_width(line) <= width:
        return line
    return _split(line, max(width - 3, 0))[0] + "..."


def wrap(text: str, width: int | None) -> list[str]:
    """Return a text as lines of at most a width, broken between words where they fit.

    Parameters
    ----------
    text
    width
        None = there is none, and no line is broken.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or text_width(line) <= width:
            lines.append(line)
        else:
            lines += list(_wrapped(line, width)) or [""]
    return lines


def _wrapped(line: str, width: int) -> Iterator[str]:
    taken = ""
    for word in line.split():
        longer = f"{taken} {word}" if taken else word
        if text_width(longer) <= width:
            taken = longer
            continue
        if taken:
            yield taken
        while text_width(word) > width:
            first, word = _split(word, width)
            if not first:  # a cluster is wider than the line
                first = next(_clusters(word))[0]
                word = word[len(first) :]
            yield first
        taken = word
    if taken:
        yield taken


def _split(text: str, width: int) -> tuple[str, str]:
    """Return as many clusters of a text as fit, and the others."""
    taken = 0
    for cluster, columns in _clusters(text):
        width -= columns
        if width < 0:
            break
        taken += len(cluster)
    return text[:taken], text[taken:]


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yield what is drawn together, and how many columns it takes."""
    cluster, width = "", 0
    for character in text:
        joined = _joined(cluster, width, character) if cluster else None
        if joined is None:
            if cluster:
                yield cluster, width
            cluster, width = character, _character_width(character)
        else:
            cluster, width = cluster + character, joined
    if cluster:
        yield cluster, width


def _joined(cluster: str, width: int, character: str) -> int | None:
    """Return the width of a cluster with one character more, or None if that begins another."""
    code = ord(character)
    if character == AS_EMOJI:
        begin = cluster[0]
        return 2 if width == 1 and (begin == INFORMATION or not begin.isalpha()) else width
    if character == AS_TEXT:
        return 1 if len(cluster) == 1 and _is_symbol(cluster) else width
    if code in SKIN_TONES:
        return 2 if _is_symbol(cluster[0]) else None
    if code in FLAG_LETTERS:
        return 2 if len(cluster) == 1 and ord(cluster) in FLAG_LETTERS else None
    if cluster[-1] == JOINER and _is_symbol(cluster[0]) and _is_symbol(character):
        return 2
    if unicodedata.category(character) == "Mc":
        return width + 1
    return width if _character_width(character) == 0 else None


def _character_width(character: str) -> int:
    """Return how many columns a character takes by itself."""
    code = ord(character)
    if unicodedata.category(character) in ("Mn", "Me") or _is_joiner(character):
        return 0
    if any(code in endings for endings in HANGUL_ENDINGS):
        return 0
    is_wide = code in FLAG_LETTERS or unicodedata.east_asian_width(character) in ("W", "F")
    return 2 if is_wide else 1


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character)[0] == "S"


def _is_joiner(character: str) -> bool:
    return character in (NON_JOINER, JOINER) or ord(character) in TAGS


def _is_harmless(character: str) -> bool:
    return (
        character.isprintable()
        or character == "\n"
        or _is_joiner(character)
        or unicodedata.category(character) == "Zs"
    )
