"""Messages in direct chats, groups and voice channels, with the decision RESPOND, IGNORE or STOP.

The rule is: respond if the agent is addressed, or if a conversation with the agent continues;
ignore messages between other people; stop only if the message explicitly says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .catalogue import Action
from .chat import Chat
from .phrases import read_phrases
from .slots import fill_slot

_OTHER_AGENTS = (
    "Milo",
    "Nova",
    "Otto",
    "Aria",
    "Kai",
    "Luna",
    "Max",
    "Ada",
    "Jarvis",
    "Spark",
    "Echo",
)

_PHRASES = read_phrases("decisions")
_BARE_STOP = (
    "stop",
    "Stop.",
    "STOP",
    "stop!",
    "quit",
    "shut up",
    "enough",
    "stop it",
    "please stop",
    "STOP!!",
    "just stop",
    "stop now",
    "quiet",
    "silence",
    "leave",
    "go away",
)


@dataclass(frozen=True)
class Decision:
    """A message, its channel, and the correct reaction of the agent."""

    message: str
    channel: str
    agent_name: str
    answer: str


class Decisions:
    """Writes messages, each with the correct decision."""

    def __init__(self, actions: Sequence[Action], chat: Chat) -> None:
        self._actions = actions
        self._chat = chat

    def draw(self, rng: random.Random) -> Decision:
        """Write one message."""
        agent = "Eliza" if rng.random() < 0.7 else rng.choice(_OTHER_AGENTS)
        channel = rng.choices(("dm", "group", "voice"), (0.35, 0.45, 0.2))[0]
        if channel == "dm":
            answer = rng.choices(("RESPOND", "STOP"), (0.7, 0.3))[0]
        else:
            answer = rng.choices(("RESPOND", "IGNORE", "STOP"), (0.38, 0.42, 0.2))[0]
        message = self._message(channel, answer, agent, rng)
        return Decision(message, channel, agent, answer)

    def _message(self, channel: str, answer: str, agent: str, rng: random.Random) -> str:
        fill = self._filler(agent, rng)
        if answer == "STOP":
            # In a group, "stop" is meant for the agent only if the message names the agent.
            named = channel == "group" or rng.random() < 0.3
            if not named and rng.random() < 0.25:
                return rng.choice(_BARE_STOP)
            return _pick("stop_named" if named else "stop_phrases", rng, fill)
        if answer == "IGNORE":
            overheard = channel == "voice" and rng.random() < 0.5
            return _pick("overheard" if overheard else "ambient", rng, fill)
        if channel == "dm":
            return self._direct(rng, fill)
        return _pick("address" if rng.random() < 0.92 else "follow_up", rng, fill)

    def _direct(self, rng: random.Random, fill: Callable[[str, random.Random], str]) -> str:
        kind = rng.random()
        if kind < 0.12:
            return _pick("not_a_stop", rng, fill)
        if kind < 0.22:
            return _pick("address", rng, fill)
        if kind < 0.3:
            return _pick("follow_up", rng, fill)
        if kind < 0.4:
            return fill("fact", rng)
        return fill("ask", rng)

    def _filler(self, agent: str, rng: random.Random) -> Callable[[str, random.Random], str]:
        def fill(slot: str, rng: random.Random) -> str:
            if slot == "agent":
                return rng.choice((agent, agent, agent.lower(), agent.upper()))
            if slot == "stop":
                return _pick("stop_phrases", rng, fill)
            if slot == "ask":
                return self._ask(agent, rng)
            return fill_slot(slot, rng)

        return fill

    def _ask(self, agent: str, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.3:
            return self._chat.exchange(rng, agent)[0]
        request = rng.choice(self._actions).request(rng)[0]
        if kind < 0.6:
            return request
        opening = (
            "can you",
            "could you please",
            "would you",
            "i want you to",
            "please",
            "go ahead and",
        )
        return f"{rng.choice(opening)} {request}"


def _pick(title: str, rng: random.Random, fill: Callable[[str, random.Random], str]) -> str:
    return rng.choice(_PHRASES[title]).write(rng, fill)
