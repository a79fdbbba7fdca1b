"""Questions about inputs in the format of decisions: predicates, choices and scores.

A question combines an aspect, instructions, names of the values, and descriptions. About a fifth of
the combinations are held out: training uses their parts, but never together. Held-out lines of
instructions, names and messages (see :mod:`.aspects`) measure how well the model reads new words.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from demo_prompts import chat_prompt

from eliza_ffi.decisions.prompts import RenderedQuestion, ask, input_text
from eliza_ffi.decisions.questions import Choice, Level, MultiLabel, Option, Predicate, Score

from .aspects import Aspect, Split, Value, draw_line, index_of, read_aspect
from .catalogue import Schema
from .decisions import Decisions
from .inputs import CUSTOMER_ASPECTS, SINGLE_ASPECTS, Told, fill, packed, tell
from .mentions import Mention, read_mentions
from .phrases import Phrase, read_phrases
from .style import as_typed, draw_label_style, write_label

Listing: TypeAlias = Callable[[random.Random], tuple[str, list[Schema], int]]
"""Writes a request, a list of actions, and the index of the requested action."""

_PARTS = read_phrases("questions/parts")
_HELD_OUT_SHARE = 5
_TRUE, _FALSE = 0, 1


@dataclass(frozen=True)
class Posed:
    """A question about an input, and the index of the correct option.

    Attributes
    ----------
    told : tuple of str
        The meanings of the input, as ``aspect:value``; empty if the input is not about aspects.
    named : tuple of (str or None)
        The meaning of each option, or of a predicate's statement; None if it is not a single value.
    """

    given: Any
    message: str
    question: Predicate | Choice | Score
    answer: int
    family: str
    told: tuple[str, ...] = ()
    named: tuple[str | None, ...] = ()

    @property
    def kind(self) -> str:
        """``predicate``, ``choice`` or ``score``."""
        return type(self.question).__name__.lower()

    def asked(self, rng: random.Random) -> tuple[RenderedQuestion, list[int]]:
        """Write the question as text; also return the order of the options in it."""
        options = _count(self.question)
        order = list(range(options))
        if isinstance(self.question, Choice) or (self.kind == "predicate" and rng.random() < 0.25):
            rng.shuffle(order)
        letters = rng.random() < 0.12
        asked = ask(self.question, "letters" if letters else "text", order)
        return asked, order

    def prompt(self, asked: RenderedQuestion) -> str:
        """Write the model's prompt."""
        content = f"{input_text(self.given)}\n\n{asked.text}"
        return chat_prompt([{"role": "user", "content": content}])


class Questions:
    """Writes questions of all three kinds."""

    def __init__(self, listing: Listing, decisions: Decisions) -> None:
        self._listing = listing
        self._decisions = decisions
        self._aspects = [read_aspect(name) for name in (*CUSTOMER_ASPECTS, *SINGLE_ASPECTS)]
        self._aspects.append(read_aspect("respond"))
        # Aspects with more values, and the few aspects with scales, are drawn more often.
        self._weights = [
            len(aspect.values) ** 0.7 * (2 if aspect.scales else 1) for aspect in self._aspects
        ]

    def draw(self, rng: random.Random, split: Split = Split.TRAINING) -> Posed:
        """Write a question. In a held-out split, it is about an aspect or a mention."""
        while True:
            kind = rng.random()
            if kind < 0.66:
                posed = self._about_aspect(rng, split)
            elif kind < 0.88 or split is not Split.TRAINING:
                posed = self._about_mention(rng, split)
            else:
                return self.about_action(rng)
            if is_held_out(posed.family) == (split is Split.COMBINATIONS):
                return posed

    def about_action(self, rng: random.Random) -> Posed:
        """Ask which action a request needs, or whether it needs a given action."""
        asking = read_aspect("action")
        message, schemas, right = self._listing(rng)
        given = packed(message, rng)
        if rng.random() < 0.3 or len(schemas) < 2:
            true = rng.random() < 0.5 or len(schemas) < 2
            others = [schema for at, schema in enumerate(schemas) if at != right]
            schema = schemas[right] if true else rng.choice(others)
            name = (schema["description"] or schema["name"]).partition(".")[0]
            name = name[:1].lower() + name[1:]
            predicate = _predicate(draw_line(asking.predicates, rng, held_out=False), name, "", rng)
            return Posed(given, message, predicate, _TRUE if true else _FALSE, "action/predicate")
        style = draw_label_style(rng)
        spoken = rng.random() < 0.5
        described = rng.random() < 0.7
        options = [
            Option(
                write_label(schema["name"].lower().replace("_", " "), style)
                if spoken
                else schema["name"],
                schema["description"] if described else None,
            )
            for schema in schemas
        ]
        options = _one_of_each(options, options[right])
        answer = [schema["name"] for schema in schemas][right]
        text = draw_line(asking.choices, rng, held_out=False).write(rng, fill)
        question = Choice(text, options)
        spoken_answer = write_label(answer.lower().replace("_", " "), style) if spoken else answer
        at = next(i for i, option in enumerate(options) if option.value == spoken_answer)
        return Posed(given, message, question, at, "action/choice")

    def _about_aspect(self, rng: random.Random, split: Split) -> Posed:
        aspect = rng.choices(self._aspects, self._weights)[0]
        told, agent = self._tell(aspect, rng, split)
        writers = [_choice, _aspect_predicate]
        writer = _score if aspect.scales and rng.random() < 0.6 else rng.choice(writers)
        return writer(aspect, told, agent, rng, split)

    def _tell(self, aspect: Aspect, rng: random.Random, split: Split) -> tuple[Told, str]:
        if aspect.key != "respond":
            return tell(aspect, rng, split), ""
        decision = self._decisions.draw(rng)
        message = as_typed(decision.message, rng)
        fields = {"channel": decision.channel, "message": message}
        given: Any = fields
        if rng.random() < 0.6:
            given = "\n".join(f"{name}: {text}" for name, text in fields.items())
        return Told(given, message, aspect.value(decision.answer), {}), decision.agent_name

    def _about_mention(self, rng: random.Random, split: Split) -> Posed:
        mention = rng.choice(read_mentions())
        kind = rng.random()
        if kind < 0.5:
            return _mention_choice(mention, rng, split)
        if kind < 0.8:
            return _mention_predicate(mention, rng, split)
        return _mention_any(mention, rng, split)


def _posed(
    told: Told,
    question: Predicate | Choice | Score,
    answer: int,
    family: str,
    named: Sequence[str | None],
) -> Posed:
    tells = tuple(f"{aspect}:{value}" for aspect, value in told.values.items())
    return Posed(told.given, told.message, question, answer, family, tells, tuple(named))


def is_held_out(family: str) -> bool:
    """Return whether a combination of parts is held out from training."""
    if family.endswith("/statement"):
        return False
    return zlib.crc32(family.encode()) % _HELD_OUT_SHARE == 0


def _choice(aspect: Aspect, told: Told, agent: str, rng: random.Random, split: Split) -> Posed:
    others = [
        value
        for value in aspect.values
        if value.key != told.value.key
        and value.key not in told.value.clashes
        and told.value.key not in value.clashes
    ]
    few = len(aspect.values) <= 5 and rng.random() < 0.6
    count = len(others) if few else rng.randint(1, min(7, len(others)))
    values = [told.value, *rng.sample(others, count)]
    rng.shuffle(values)
    names, naming = _names(values, rng, split)
    style = draw_label_style(rng)
    described = rng.random()
    options = [
        Option(
            write_label(name, style),
            _description(value, agent, rng) if described < 0.45 or rng.random() < 0.1 else None,
        )
        for value, name in zip(values, names, strict=True)
    ]
    at, text = _instructions(aspect.choices, agent, rng, split)
    right = values.index(told.value)
    options, none, answer = _with_none(options, right, rng)
    question = Choice(text, options, none=none)
    family = f"{aspect.key}/choice/{at}/{naming}"
    named = [f"{aspect.key}:{value.key}" for value in values]
    if none is not None and len(options) < len(values):
        del named[right]
    return _posed(told, question, answer, family, named)


def _score(aspect: Aspect, told: Told, agent: str, rng: random.Random, split: Split) -> Posed:
    scale_at = index_of(aspect.scales, rng, held_out=split is Split.NAMES)
    scale = aspect.scales[scale_at]
    labels = list(dict.fromkeys(scale))
    described = len(labels) == len(scale) and rng.random() < 0.45
    style = rng.choices((0, 1), (80, 20))[0]
    levels = [
        Level(
            write_label(label, style),
            _description(aspect.values[scale.index(label)], agent, rng) if described else None,
        )
        for label in labels
    ]
    at, text = _instructions(aspect.scores, agent, rng, split)
    answer = labels.index(scale[aspect.values.index(told.value)])
    family = f"{aspect.key}/score/{at}/{scale_at}"
    named = [
        f"{aspect.key}:{aspect.values[scale.index(label)].key}" if scale.count(label) == 1 else None
        for label in labels
    ]
    return _posed(told, Score(text, levels), answer, family, named)


def _aspect_predicate(
    aspect: Aspect, told: Told, agent: str, rng: random.Random, split: Split
) -> Posed:
    true = rng.random() < 0.5
    value = told.value
    if not true:
        value = rng.choice(
            [
                other
                for other in aspect.values
                if other.key != value.key
                and other.key not in value.clashes
                and value.key not in other.clashes
            ]
        )
    answer = _TRUE if true else _FALSE
    [name], naming = _names([value], rng, split)
    kind = rng.random()
    if kind < 0.12:
        at = index_of(_PARTS["label_predicate"], rng, held_out=split is Split.INSTRUCTIONS)
        text = _PARTS["label_predicate"][at].write(rng, fill)
        label = Option(name, _description(value, agent, rng) if rng.random() < 0.5 else None)
        question: Predicate | Choice = MultiLabel(text, (label,)).predicates[0]
        family = f"{aspect.key}/label/{at}/{naming}"
        return _posed(told, question, answer, family, [f"{aspect.key}:{value.key}"])
    described = _description(value, agent, rng) if rng.random() < 0.3 else None
    if kind < 0.4 and value.statements and split is Split.TRAINING:
        line = rng.choice(value.statements)
        family = f"{aspect.key}/statement"
    else:
        at = index_of(aspect.predicates, rng, held_out=split is Split.INSTRUCTIONS)
        line = aspect.predicates[at]
        family = f"{aspect.key}/predicate/{at}/{naming}"
    question = _predicate(line, name, agent, rng, described)
    return _posed(told, question, answer, family, [f"{aspect.key}:{value.key}"])


def _mention_choice(mention: Mention, rng: random.Random, split: Split) -> Posed:
    said, name = mention.draw(rng)
    message = as_typed(mention.said(said, rng, split), rng)
    others = mention.others(name, message, rng.randint(1, 6), rng)
    names = [name, *others] if others else [name, "nothing"]
    rng.shuffle(names)
    options, none, answer = _with_none([Option(each) for each in names], names.index(name), rng)
    at, text = _instructions(mention.choices, "", rng, split)
    family = f"mentioned {mention.slot}/choice/{at}/{none is None}"
    given = packed(message, rng, alone=True)
    return Posed(given, message, Choice(text, options, none=none), answer, family)


def _mention_predicate(mention: Mention, rng: random.Random, split: Split) -> Posed:
    said, name = mention.draw(rng)
    message = as_typed(mention.said(said, rng, split), rng)
    others = mention.others(name, message, 1, rng)
    true = rng.random() < 0.5 or not others
    at = index_of(mention.predicates, rng, held_out=split is Split.INSTRUCTIONS)
    question = _predicate(mention.predicates[at], name if true else others[0], "", rng)
    family = f"mentioned {mention.slot}/predicate/{at}"
    given = packed(message, rng, alone=True)
    return Posed(given, message, question, _TRUE if true else _FALSE, family)


def _mention_any(mention: Mention, rng: random.Random, split: Split) -> Posed:
    true = rng.random() < 0.5
    if true:
        said = mention.said(mention.draw(rng)[0], rng, split)
    else:
        said = draw_line(mention.empty, rng, held_out=split is Split.MESSAGES).write(rng, fill)
    message = as_typed(said, rng)
    at = index_of(mention.any_predicates, rng, held_out=split is Split.INSTRUCTIONS)
    question = _predicate(mention.any_predicates[at], "", "", rng)
    family = f"mentioned {mention.slot}/any/{at}"
    given = packed(message, rng, alone=True)
    return Posed(given, message, question, _TRUE if true else _FALSE, family)


def _instructions(
    lines: Sequence[Phrase], agent: str, rng: random.Random, split: Split
) -> tuple[int, str]:
    at = index_of(lines, rng, held_out=split is Split.INSTRUCTIONS)
    text = _write(lines[at], "", agent, rng)
    if rng.random() < 0.12:
        text = f"{rng.choice(_PARTS['preface']).write(rng, fill)} {text}"
    return at, text


def _names(values: Sequence[Value], rng: random.Random, split: Split) -> tuple[list[str], str]:
    """Draw a name for each value, usually all from the same column of names."""
    if split is Split.NAMES:
        return [value.names[-1] for value in values], "new"
    column = rng.randrange(4)
    mixed = rng.random() < 0.15 and len(values) > 1 and split is Split.TRAINING
    columns = [rng.randrange(4) if mixed else column for _ in values]
    # The last name is the held-out one.
    trained = [value.names[: max(1, len(value.names) - 1)] for value in values]
    names = [each[at % len(each)] for each, at in zip(trained, columns, strict=True)]
    return names, "mixed" if len(set(columns)) > 1 else str(column)


def _with_none(
    options: list[Option], right: int, rng: random.Random
) -> tuple[list[Option], str | None, int]:
    """Sometimes add the option "none of these", and then sometimes remove the correct option."""
    if rng.random() > 0.12:
        return options, None, right
    style = rng.choice((0, 0, 1))
    none = write_label(rng.choice(_PARTS["none"]).write(rng, fill), style)
    if any(str(option.value).lower() == none.lower() for option in options):
        return options, None, right
    if len(options) > 2 and rng.random() < 0.5:
        remaining = [option for at, option in enumerate(options) if at != right]
        return remaining, none, len(remaining)
    return options, none, right


def _predicate(
    line: Phrase, name: str, agent: str, rng: random.Random, described: str | None = None
) -> Predicate:
    text = _write(line, name, agent, rng)
    otherwise = _PARTS["otherwise"][0].write(rng, fill)
    return Predicate(
        text[:1].upper() + text[1:],
        if_true=described,
        if_false=otherwise if described and rng.random() < 0.6 else None,
    )


def _description(value: Value, agent: str, rng: random.Random) -> str | None:
    if not value.descriptions:
        return None
    return _write(rng.choice(value.descriptions), "", agent, rng)


def _write(line: Phrase, name: str, agent: str, rng: random.Random) -> str:
    def fill_in(slot: str, rng: random.Random) -> str:
        if slot == "name":
            return name
        return agent if slot == "agent" else fill(slot, rng)

    return line.write(rng, fill_in)


def _one_of_each(options: Sequence[Option], right: Option) -> list[Option]:
    """Remove options with the same value as another one; keep the correct option."""
    kept = [right]
    for option in options:
        if all(option.value != other.value for other in kept):
            kept.append(option)
    return kept


def _count(question: Predicate | Choice | Score) -> int:
    if isinstance(question, Choice):
        return len(question.options)
    return len(question.levels) if isinstance(question, Score) else 2
