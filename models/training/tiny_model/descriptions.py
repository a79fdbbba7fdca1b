"""Long descriptions of actions: several sentences with examples, other names and conditions.

People describe an action in one line or in a paragraph. A paragraph here consists of the short
description and several clauses. Some clauses are held out from training, to measure how well the
model reads new ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from .catalogue import Action, Length, Schema
from .phrases import Phrase, SlotFiller, read_phrases
from .slots import fill_slot

_PHRASES = read_phrases("long")
_HELD_OUT = 3
TRAINED_CLAUSES = _PHRASES["clauses"][:-_HELD_OUT]
HELD_OUT_CLAUSES = _PHRASES["clauses"][-_HELD_OUT:]
"""Clauses that training never uses."""


def schema_of(action: Action, rng: random.Random, length: Length = Length.SHORT) -> Schema:
    """Return an action in the prompt's format, with a random name and description."""
    name = action.names[0] if rng.random() < 0.5 else rng.choice(action.names)
    description = rng.choice(action.descriptions).write(rng, fill_slot)
    if length is not Length.SHORT:
        held_out = length is Length.LONG_HELD_OUT
        description = describe(action, description, rng, held_out=held_out)
    return {
        "name": name,
        "description": description,
        "parameters": [parameter.schema() for parameter in action.parameters],
    }


def describe(action: Action, short: str, rng: random.Random, *, held_out: bool = False) -> str:
    """Write a long description of an action.

    Parameters
    ----------
    action
    short
        The short description, a sentence that begins with a verb.
    rng
    held_out
        Whether to include a clause that training never uses.
    """
    infinitive = _infinitive(short)

    def fill(slot: str, rng: random.Random) -> str:
        if slot == "do":
            return infinitive
        if slot in ("first", "second"):
            return action.request(rng)[0]
        if slot == "names":
            return _names(action, rng)
        if slot == "needs":
            return _needs(action)
        return fill_slot(slot, rng)

    clauses = rng.sample(TRAINED_CLAUSES, rng.randint(1, 4))
    if held_out:
        clauses = [rng.choice(HELD_OUT_CLAUSES), *clauses[:1]]
    sentences = [_sentence(clause, rng, fill) for clause in clauses]
    at = 0 if rng.random() < 0.7 else rng.randint(0, len(sentences))
    sentences.insert(at, short)
    return " ".join(sentences)


def describe_reply(rng: random.Random) -> str:
    """Write a long description of the action that only answers with a message."""
    return _paragraph("reply", rng)


def describe_nothing(rng: random.Random) -> str:
    """Write a long description of the action that does nothing."""
    return _paragraph("nothing", rng)


def _paragraph(title: str, rng: random.Random) -> str:
    first, *others = _PHRASES[title]
    chosen: Sequence[Phrase] = [first, *rng.sample(others, rng.randint(1, len(others)))]
    return " ".join(_sentence(clause, rng, fill_slot) for clause in chosen)


def _sentence(clause: Phrase, rng: random.Random, fill: SlotFiller) -> str:
    text = clause.write(rng, fill)
    return text[:1].upper() + text[1:]


def _infinitive(short: str) -> str:
    """Turn ``Sends mail to a person.`` or ``Send mail to a person.`` into ``send mail ...``."""
    verb, _, rest = short.rstrip(".").partition(" ")
    verb = verb.lower()
    if verb.endswith(("shes", "ches", "sses")):
        verb = verb[:-2]
    elif verb.endswith("s") and not verb.endswith("ss"):
        verb = verb[:-1]
    return f"{verb} {rest}".strip()


def _names(action: Action, rng: random.Random) -> str:
    names = rng.sample(action.names, min(len(action.names), rng.randint(1, 3)))
    return ", ".join(name.lower().replace("_", " ") for name in names)


def _needs(action: Action) -> str:
    required = [parameter.name for parameter in action.parameters if parameter.required]
    optional = [parameter.name for parameter in action.parameters if not parameter.required]
    text = " and ".join(required) or "nothing"
    return f"{text} and optionally {', '.join(optional)}" if optional else text
