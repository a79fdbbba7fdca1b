"""Generate the training corpus and the held-out splits from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from demo_prompts import (
    END_OF_TURN,
    SHOULD_RESPOND_CHOICES,
    chat_prompt,
    planner_prompt,
    should_respond_prompt,
)

from .aspects import Split
from .catalogue import HELD_OUT_ACTIONS, Action, Length, Schema, load_catalogue
from .chat import Chat
from .compose import Composer
from .decisions import Decisions
from .descriptions import describe_nothing, describe_reply, schema_of
from .phrases import parse
from .questions import Posed, Questions
from .slots import fill_slot
from .style import as_request, as_typed

_LONG_SHARE = 0.2
_LONGEST_LONG_LIST = 4
_LIST_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8)
_LIST_LENGTH_WEIGHTS = (2, 10, 22, 22, 18, 10, 8, 8)

_REPLY = (
    ("REPLY", "RESPOND", "ANSWER", "SEND_REPLY", "CHAT", "TALK_TO_USER"),
    parse(
        "[[Reply|Respond|Talk] to the user [with a message|in the conversation|in text|]"
        "[, when no other action is needed|]|[Write|Give] [an answer|a text reply|a chat message]"
        " [to the user|in the current conversation]]."
    ),
)
_NOTHING = (
    ("IGNORE", "NONE", "NO_ACTION", "DO_NOTHING", "SKIP"),
    parse("[Do nothing|Ignore the message|Say nothing|Take no action][, as none is needed|]."),
)


@dataclass(frozen=True)
class Example:
    """A training example: `prompt`, `choice` and `rest`, which are tokenized separately.

    Attributes
    ----------
    choice : str
        The constrained answer; empty in plain chat.
    correct_line : int
        The index of the correct action or option in the list; -1 without a list.
    breaks_after_list : int
        The number of line breaks between the list and the answer.
    family : str
        The combination of parts that a question consists of.
    holds : bool
        Whether a predicate is true.
    told : tuple of str
        The meanings of a question's input, as ``aspect:value``.
    named : tuple of (str or None)
        The meanings of the options in the order of the list, or of a predicate's statement.
    input_end : int
        The index of the first character after the input.
    """

    kind: str
    message: str
    prompt: str
    choice: str
    rest: str
    choices: tuple[str, ...] = ()
    correct_line: int = -1
    breaks_after_list: int = 0
    family: str = ""
    holds: bool = False
    told: tuple[str, ...] = ()
    named: tuple[str | None, ...] = ()
    input_end: int = 0

    @property
    def text(self) -> str:
        """The whole text."""
        return self.prompt + self.choice + self.rest


@dataclass(frozen=True)
class Shares:
    """The fractions of the kinds of examples. The rest of the examples is chat."""

    planner: float
    decision: float
    question: float


FIRST_PASS = Shares(planner=0.3, decision=0.14, question=0.5)
SECOND_PASS = Shares(planner=0.2, decision=0.08, question=0.68)


class Generator:
    """Writes examples; with `held_out`, planner requests are for held-out actions."""

    def __init__(self, *, held_out: bool = False) -> None:
        everything = load_catalogue()
        self._held_out = held_out
        self._known = [action for action in everything if action.key not in HELD_OUT_ACTIONS]
        self._targets = [
            action for action in everything if (action.key in HELD_OUT_ACTIONS) == held_out
        ]
        self._chat = Chat()
        self._composer = Composer()
        self._decisions = Decisions(self._known, self._chat)
        self.questions = Questions(self._listing, self._decisions)

    def examples(self, count: int, seed: int, shares: Shares = FIRST_PASS) -> Iterator[Example]:
        """Write `count` examples of all kinds."""
        rng = random.Random(seed)
        for _ in range(count):
            kind = rng.random()
            if kind < shares.planner:
                yield self.planner(rng)
            elif kind < shares.planner + shares.decision:
                yield self.decision(rng)
            elif kind < shares.planner + shares.decision + shares.question:
                yield self.question(rng)
            else:
                yield self.chat(rng)

    def planner(self, rng: random.Random, length: Length | None = None) -> Example:
        """Write a request, a list of actions, and the correct action.

        With `length`, all descriptions have this length. Without it, most lists have short
        descriptions, some have long ones, and a few have both.
        """
        message, schemas, right, values = self._list(rng, length)
        parameters = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        return Example(
            kind="planner",
            message=message,
            prompt=planner_prompt(message, schemas),
            choice=schemas[right]["name"],
            rest=f'","parameters":{parameters}}}{END_OF_TURN}',
            choices=tuple(listed["name"] for listed in schemas),
            correct_line=right,
            breaks_after_list=2,
        )

    def question(self, rng: random.Random, split: Split = Split.TRAINING) -> Example:
        """Write a decision question about an input."""
        return _question(self.questions.draw(rng, split), rng)

    def action_question(self, rng: random.Random) -> Example:
        """Write a question about the action that a request needs, in the format of decisions."""
        return _question(self.questions.about_action(rng), rng)

    def _listing(self, rng: random.Random) -> tuple[str, list[Schema], int]:
        return self._list(rng, None)[:3]

    def _list(
        self, rng: random.Random, length: Length | None
    ) -> tuple[str, list[Schema], int, Schema]:
        """Write a request, a list of actions, the index of the correct one, and its parameters."""
        lengths = _Lengths(rng, length)
        kind = rng.random()
        target: Action | None = None
        if self._held_out:
            kind *= 0.82
        if kind < 0.5:
            target = rng.choice(self._targets)
        elif kind < 0.82:
            target = self._composer.draw(rng, held_out=self._held_out)
        if target is not None:
            message, values = target.request(rng)
            message = as_request(message, rng)
            schema = schema_of(target, rng, lengths.draw(rng))
        elif kind < 0.95:
            message, answer = self._chat.exchange(rng, "Eliza")
            schema, values = _reply(rng, lengths.draw(rng)), {"text": answer}
        else:
            message = self._chat.nothing_to_do(rng)
            schema, values = _nothing(rng, lengths.draw(rng)), {}
        message = as_typed(message, rng)
        schemas = self._distractors(target, schema, lengths, rng)
        schemas.append(schema)
        rng.shuffle(schemas)
        return message, schemas, schemas.index(schema), values

    def decision(self, rng: random.Random) -> Example:
        """Write a message, and the decision whether to respond to it."""
        decision = self._decisions.draw(rng)
        message = as_typed(decision.message, rng)
        return Example(
            kind="decision",
            message=message,
            prompt=should_respond_prompt(message, decision.channel, decision.agent_name),
            choice=decision.answer,
            rest=f'"}}{END_OF_TURN}',
            choices=SHOULD_RESPOND_CHOICES,
        )

    def chat(self, rng: random.Random) -> Example:
        """Write one or two exchanges of small talk, or a request to repeat some words."""
        if rng.random() < 0.2:
            message, reply = self._chat.echo(rng)
            turns: list[dict[str, str]] = [{"role": "user", "content": message}]
            return Example("chat", message, chat_prompt(turns), "", reply + END_OF_TURN)
        turns = []
        if rng.random() < 0.2:
            turns.append({"role": "system", "content": "You are Eliza, a helpful assistant."})
        if rng.random() < 0.2:
            question, reply = self._chat.exchange(rng, "Eliza")
            turns.append({"role": "user", "content": as_typed(question, rng)})
            turns.append({"role": "assistant", "content": reply})
        question, reply = self._chat.exchange(rng, "Eliza")
        message = as_typed(question, rng)
        turns.append({"role": "user", "content": message})
        return Example("chat", message, chat_prompt(turns), "", reply + END_OF_TURN)

    def _distractors(
        self, target: Action | None, schema: Schema, lengths: _Lengths, rng: random.Random
    ) -> list[Schema]:
        """List other actions. Many are similar to the correct one; none is the same action."""
        wanted = rng.choices(_LIST_LENGTHS, _LIST_LENGTH_WEIGHTS)[0] - 1
        if lengths.any_long:
            wanted = min(wanted, _LONGEST_LONG_LIST - 1)
        listed: list[Schema] = []
        names = {schema["name"]}
        keys = {target.key} if target is not None else set()

        def add(candidate: Schema) -> None:
            if candidate["name"] not in names:
                names.add(candidate["name"])
                listed.append(candidate)

        if target is not None and wanted and rng.random() < 0.4:
            add(_reply(rng, lengths.draw(rng)))
        if (target is not None or schema["name"] in _REPLY[0]) and wanted and rng.random() < 0.12:
            add(_nothing(rng, lengths.draw(rng)))
        if target is None and schema["name"] in _NOTHING[0] and wanted and rng.random() < 0.4:
            add(_reply(rng, lengths.draw(rng)))
        while len(listed) < wanted:
            other = self._other_action(target, rng)
            if other.key not in keys and not _clash(other, target):
                keys.add(other.key)
                add(schema_of(other, rng, lengths.draw(rng)))
        return listed[:wanted]

    def _other_action(self, target: Action | None, rng: random.Random) -> Action:
        kind = rng.random()
        if target is not None and kind < 0.45:
            if target.key.startswith("#"):
                return self._composer.draw(rng, held_out=False, near=target)
            # Related actions are near each other in the catalogue.
            pool = self._known
            try:
                at = next(i for i, action in enumerate(pool) if action.key == target.key)
            except StopIteration:
                return rng.choice(pool)
            return pool[max(0, min(len(pool) - 1, at + rng.randint(-5, 5)))]
        if kind < 0.8:
            return rng.choice(self._known)
        return self._composer.draw(rng, held_out=False)


class _Lengths:
    """Draws the lengths of the descriptions in a list: usually all short or all long."""

    def __init__(self, rng: random.Random, length: Length | None) -> None:
        kind = rng.random()
        self._among: tuple[Length, ...] = (Length.SHORT,)
        if length is not None:
            self._among = (length,)
        elif kind < _LONG_SHARE:
            mixed = kind < _LONG_SHARE / 3
            self._among = (Length.SHORT, Length.LONG) if mixed else (Length.LONG,)

    @property
    def any_long(self) -> bool:
        """Whether there may be long descriptions."""
        return self._among != (Length.SHORT,)

    def draw(self, rng: random.Random) -> Length:
        """Draw the length of one description."""
        return rng.choice(self._among)


def _question(posed: Posed, rng: random.Random) -> Example:
    asked, order = posed.asked(rng)
    right = order.index(posed.answer)
    named, prompt = posed.named, posed.prompt(asked)
    if named and posed.kind != "predicate":
        # The last option may be "none of these", which has no meaning of its own.
        named = tuple(named[at] if at < len(named) else None for at in order)
    return Example(
        kind=posed.kind,
        message=posed.message,
        prompt=prompt,
        choice=asked.options[right].label,
        rest=END_OF_TURN,
        choices=tuple(option.label for option in asked.options),
        correct_line=right,
        breaks_after_list=1,
        family=posed.family,
        holds=posed.kind == "predicate" and posed.answer == 0,
        told=posed.told,
        named=named,
        input_end=prompt.rindex(f"\n\n{asked.text}"),
    )


def _clash(other: Action, target: Action | None) -> bool:
    """Return whether a composed and a handwritten action share a word, so that both may fit."""
    if target is None or other.key.startswith("#") == target.key.startswith("#"):
        return False
    return bool(_words(other) & _words(target))


def _words(action: Action) -> set[str]:
    return {word for name in action.names for word in name.split("_")}


def _reply(rng: random.Random, length: Length) -> Schema:
    names, phrase = _REPLY
    short = length is Length.SHORT
    name = "REPLY" if rng.random() < 0.6 else rng.choice(names)
    parameters = [{"name": rng.choice(("text", "message")), "type": "string", "required": True}]
    return {
        "name": name,
        "description": phrase.write(rng, fill_slot) if short else describe_reply(rng),
        "parameters": parameters,
    }


def _nothing(rng: random.Random, length: Length) -> Schema:
    names, phrase = _NOTHING
    short = length is Length.SHORT
    return {
        "name": rng.choice(names),
        "description": phrase.write(rng, fill_slot) if short else describe_nothing(rng),
        "parameters": [],
    }
