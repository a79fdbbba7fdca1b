"""Things that a message mentions by name, such as a city, from ``texts/questions/mentions.txt``."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from .aspects import Split, by_mark, draw_line
from .catalogue import HELD_OUT_ACTIONS, load_catalogue
from .compose import is_held_out_object, read_objects
from .phrases import Phrase, parse, read_blocks
from .slots import fill_slot
from .style import as_label


@dataclass(frozen=True)
class Mention:
    """A kind of thing that a message can mention, and the questions about it.

    Attributes
    ----------
    sentences : tuple of str
        Templates with ``{}`` for the name of the thing.
    empty : tuple of Phrase
        Sentences that do not mention such a thing.
    """

    slot: str
    choices: tuple[Phrase, ...]
    predicates: tuple[Phrase, ...]
    any_predicates: tuple[Phrase, ...]
    sentences: tuple[str, ...]
    empty: tuple[Phrase, ...]

    def draw(self, rng: random.Random) -> tuple[str, str]:
        """Draw a thing; return its name in a message and its name among the options."""
        if self.slot == "label":
            label = as_label(rng.choice(_labels()), rng)
            return label, label
        if self.slot == "object":
            words = rng.choice(_objects())
            return rng.choice(words), rng.choice(words)
        thing = fill_slot(self.slot, rng)
        return thing, thing

    def said(self, thing: str, rng: random.Random, split: Split) -> str:
        """Write a sentence that names the thing."""
        template = draw_line(self.sentences, rng, held_out=split is Split.MESSAGES)
        return parse(template.replace("{}", "{thing}")).write(
            rng, lambda slot, rng: thing if slot == "thing" else fill_slot(slot, rng)
        )

    def others(self, thing: str, message: str, count: int, rng: random.Random) -> list[str]:
        """Draw things of the same kind that the message does not mention."""
        found: list[str] = []
        same = {word for words in _objects() if thing in words for word in words}
        said = message.lower()
        for _ in range(50 * count):
            other = self.draw(rng)[1]
            known = [thing.lower(), *(each.lower() for each in found)]
            apart = all(other.lower() not in each and each not in other.lower() for each in known)
            if apart and other not in same and other.lower() not in said:
                found.append(other)
            if len(found) == count:
                break
        return found


@functools.cache
def read_mentions() -> tuple[Mention, ...]:
    """Read all kinds of mentions from the file."""
    mentions = []
    for slot, lines in read_blocks("questions/mentions").items():
        marked = by_mark(lines)
        mentions.append(
            Mention(
                slot=slot,
                choices=tuple(map(parse, marked["?"])),
                predicates=tuple(map(parse, marked["!"])),
                any_predicates=tuple(map(parse, marked["&"])),
                sentences=tuple(marked[">"]),
                empty=tuple(map(parse, marked["-"])),
            )
        )
    return tuple(mentions)


@functools.cache
def _objects() -> tuple[tuple[str, ...], ...]:
    """Return the words for each object that is not held out."""
    objects = enumerate(read_objects())
    return tuple(words for thing, words in objects if not is_held_out_object(thing))


@functools.cache
def _labels() -> tuple[str, ...]:
    """Return words and action names that may be options."""
    words = [word for words in _objects() for word in words]
    keys = [action.key for action in load_catalogue() if action.key not in HELD_OUT_ACTIONS]
    names = [key.lower().replace("_", " ") for key in keys]
    return (*words, *names)
