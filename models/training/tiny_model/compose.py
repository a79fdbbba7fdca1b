"""Actions composed of a verb and an object, such as ARCHIVE_TICKET.

There are far more of them than one could write by hand. They teach the model to match by meaning
instead of memorizing: each verb and many objects have several words, and the name, the description
and the request choose their words independently. Most combinations occur once or never.
"""

from __future__ import annotations

import functools
import random

from .catalogue import Action, Parameter
from .phrases import parse, read_blocks

_PARAMETERS = (
    (),
    (Parameter("id", "string", "tracking", (), True),),
    (Parameter("name", "string", "name", (), True),),
    (Parameter("query", "string", "topic", (), True),),
    (Parameter("target", "string", "person", (), False),),
    (
        Parameter("title", "string", "topic", (), True),
        Parameter("priority", "string", "", ("low", "medium", "high"), False),
    ),
)


class Composer:
    """Draws composed actions, either of the held-out split or of training."""

    def __init__(self) -> None:
        self._verbs = [
            [part.strip() for part in line.split("|")] for line in read_blocks("verbs")["verbs"]
        ]
        self._objects = read_objects()

    def draw(self, rng: random.Random, *, held_out: bool, near: Action | None = None) -> Action:
        """Compose an action; with `near`, the verb or the object is the same as in `near`."""
        verb = rng.randrange(len(self._verbs))
        thing = rng.randrange(len(self._objects))
        if near is not None and near.key.startswith("#"):
            near_verb, near_thing = map(int, near.key[1:].split(","))
            verb, thing = (near_verb, thing) if rng.random() < 0.5 else (verb, near_thing)
        while self._is_held_out(verb, thing) != held_out:
            thing = rng.randrange(len(self._objects))
        return self._compose(verb, thing, rng)

    def _is_held_out(self, verb: int, thing: int) -> bool:
        """Hold out every seventh object, and every eleventh of the other combinations."""
        return is_held_out_object(thing) or (verb * 31 + thing) % 11 == 0

    def _compose(self, verb: int, thing: int, rng: random.Random) -> Action:
        names, doing, requests = self._verbs[verb]
        words = self._objects[thing]
        noun = words[0].upper().replace(" ", "_")
        described = rng.choice(words)
        article = rng.choice(("a", "an existing", "the", "the user's", "one", "a given"))
        asked = rng.choice(words)
        texts = [
            text.replace("{}", asked).replace("{s}", _plural(asked)) for text in requests.split(";")
        ]
        extra = rng.choice(("", "", " by id", " in the workspace", " for the user", " on request"))
        description = f"{rng.choice(doing.split(',')).capitalize()} {article} {described}{extra}."
        return Action(
            key=f"#{verb},{thing}",
            names=tuple(f"{name}_{noun}" for name in names.split(",")),
            descriptions=(parse(description),),
            parameters=rng.choice(_PARAMETERS),
            requests=tuple(map(parse, texts)),
        )


@functools.cache
def read_objects() -> tuple[tuple[str, ...], ...]:
    """Read the words for each object."""
    lines = read_blocks("objects")["objects"]
    return tuple(tuple(words.split(",")) for line in lines for words in line.split(";"))


def is_held_out_object(thing: int) -> bool:
    """Return whether an object, given its number, is held out from training."""
    return thing % 7 == 3


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
