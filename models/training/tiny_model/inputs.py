"""Inputs for questions, with the values that they express.

Each sentence of a customer's message expresses the value of one aspect. Other inputs are one
sentence about one aspect.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from .aspects import Aspect, Split, Value, draw_line, read_aspect
from .phrases import read_phrases
from .slots import fill_slot
from .style import as_typed

_PARTS = read_phrases("questions/parts")

CUSTOMER_ASPECTS = ("topic", "urgency", "mood", "wants", "politeness")
SINGLE_ASPECTS = ("emotion", "act", "news", "safety", "reply", "rating", "language", "goods")

# For a question about an aspect, the other aspects that the message may express. Others could
# change the answer: an insult expresses anger too, and "send me a new one" implies damage.
_BESIDE = {
    "topic": ("mood", "urgency", "politeness"),
    "urgency": ("mood", "politeness"),
    "mood": ("urgency", "wants"),
    "wants": ("mood", "politeness"),
    "politeness": ("urgency",),
}
_TOPICS_BESIDE = {
    "wants": ("damaged", "bug", "login", "stock"),
    "mood": ("billing", "shipping", "damaged", "login", "bug", "account", "warranty", "hours"),
}
_TOPICS_OF_MOOD = ("praise", "staff")
_COURTESY = re.compile(r"\b(please|pls|thank|thanks|kind|wonderful|great|would like|could)\b")


@dataclass(frozen=True)
class Told:
    """An input (a string, a conversation or JSON), its message, and the value it expresses.

    Attributes
    ----------
    values : dict of str to str
        The keys of all values that the message expresses, by aspect, including `value`.
    """

    given: Any
    message: str
    value: Value
    values: dict[str, str]


def tell(aspect: Aspect, rng: random.Random, split: Split) -> Told:
    """Write an input that expresses a value of the aspect."""
    value = rng.choice(aspect.values)
    if aspect.key in CUSTOMER_ASPECTS:
        message, values = _customer(aspect, value, rng, split)
    else:
        message, values = _typed(_sentence(value, rng, split), rng), {aspect.key: value.key}
    if aspect.key == "reply":
        proposal = _typed(draw_line(_PARTS["proposal"], rng, held_out=False).write(rng, fill), rng)
        turns = [
            {"role": "assistant", "content": proposal},
            {"role": "user", "content": message},
        ]
        return Told(turns, message, value, values)
    return Told(packed(message, rng), message, value, values)


def fill(slot: str, rng: random.Random) -> str:
    """Fill a slot with a part from ``questions/parts``, or as :func:`~.slots.fill_slot`."""
    return rng.choice(_PARTS[slot]).write(rng, fill) if slot in _PARTS else fill_slot(slot, rng)


def packed(message: str, rng: random.Random, *, alone: bool = False) -> Any:
    """Return a message as a string, a conversation or JSON; with `alone`, add no other content."""
    kind = rng.random()
    if kind < 0.82:
        return message
    if kind < 0.88:
        return [{"role": "user", "content": message}]
    if kind < 0.93 and not alone:
        opening = _typed(rng.choice(_PARTS["opening"]).write(rng, fill), rng)
        return [
            {"role": "assistant", "content": opening},
            {"role": "user", "content": message},
        ]
    text = {rng.choice(("text", "message", "body", "content")): message}
    extra = {
        "from": fill_slot("email", rng),
        "id": fill_slot("tracking", rng),
        "date": fill_slot("day", rng),
    }
    name = rng.choice(tuple(extra))
    return {name: extra[name], **text} if rng.random() < 0.6 and not alone else text


def _customer(
    aspect: Aspect, value: Value, rng: random.Random, split: Split
) -> tuple[str, dict[str, str]]:
    topics = read_aspect("topic")
    told: list[str] = []
    values = {aspect.key: value.key}
    if aspect.key == "topic":
        topic = value
    else:
        allowed = _TOPICS_BESIDE.get(aspect.key)
        topic = rng.choice(
            [
                each
                for each in topics.values
                if (each.key in allowed if allowed else each.key not in _TOPICS_OF_MOOD)
            ]
        )
        told.extend([_sentence(value, rng, split)] if value.sentences else [])
    beside = [] if topic.key in _TOPICS_OF_MOOD else [*_BESIDE[aspect.key]]
    for name in beside:
        if rng.random() < 0.3:
            other = rng.choice(read_aspect(name).values)
            if other.sentences and other.key not in ("rude", "nothing"):
                told.append(_sentence(other, rng, Split.TRAINING))
                values[name] = other.key
    if aspect.key == "topic" or not value.sentences or rng.random() < 0.75:
        subject = _sentence(topic, rng, split if aspect.key == "topic" else Split.TRAINING)
        # Courtesy in another sentence would change the answer.
        while aspect.key == "politeness" and value.key != "polite" and _COURTESY.search(subject):
            subject = _sentence(topic, rng, Split.TRAINING)
        values["topic"] = topic.key
        rng.shuffle(told)
        told.insert(0 if rng.random() < 0.65 else rng.randint(0, len(told)), subject)
    if rng.random() < 0.2 and aspect.key != "politeness":
        told.insert(0, rng.choice(_PARTS["greeting"]).write(rng, fill))
    return _joined(told, rng), values


def _sentence(value: Value, rng: random.Random, split: Split) -> str:
    line = draw_line(value.sentences, rng, held_out=split is Split.MESSAGES)
    return line.write(rng, fill)


def _joined(sentences: list[str], rng: random.Random) -> str:
    """Join sentences as people do: with full stops, commas, exclamation marks or only spaces."""
    mark = rng.choice((". ", ". ", ". ", ", ", "! ", " "))
    text = ""
    for sentence in sentences:
        said = sentence[:1].upper() + sentence[1:] if mark in (". ", "! ") else sentence
        text += said + (" " if said[-1] in ".!?" else mark)
    return _typed(text.rstrip(" ,.!") if rng.random() < 0.5 else text.strip(" ,"), rng)


def _typed(text: str, rng: random.Random) -> str:
    # No question mark, which would turn a statement into a question.
    return as_typed(text, rng, marks=(".", ".", "!", "."))
