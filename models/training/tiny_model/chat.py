"""Small talk and simple questions with short answers, for plain chat and for the REPLY action."""

from __future__ import annotations

import random

from .phrases import Phrase, parse, read_blocks
from .slots import fill_slot

# Verbatim repetition trains copying, which the model needs to choose a listed name.
_ECHO_REQUESTS = parse("[repeat|say|echo|repeat after me|write exactly|copy this]: {words}")
_ECHO_PARTS = ("fact", "task", "item", "topic", "song", "command", "word", "email", "service")


class Chat:
    """Writes short exchanges."""

    def __init__(self) -> None:
        blocks = read_blocks("chat")
        self._exchanges: list[tuple[Phrase, Phrase]] = []
        for line in blocks["exchanges"]:
            question, reply = line.split(" -> ")
            self._exchanges.append((parse(question), parse(reply)))
        self._nothing = [parse(line) for line in blocks["nothing"]]

    def exchange(self, rng: random.Random, agent_name: str) -> tuple[str, str]:
        """Write a message and the reply to it."""

        def fill(slot: str, rng: random.Random) -> str:
            return agent_name if slot == "agent" else fill_slot(slot, rng)

        question, reply = rng.choice(self._exchanges)
        return question.write(rng, fill), reply.write(rng, fill)

    def echo(self, rng: random.Random) -> tuple[str, str]:
        """Write a request to repeat some words, and the words."""
        parts = [fill_slot(name, rng) for name in rng.choices(_ECHO_PARTS, k=rng.randint(1, 4))]
        rng.shuffle(parts)
        words = " ".join(parts)
        if rng.random() < 0.5:
            words = words.upper().replace(" ", "_")

        def fill(slot: str, rng: random.Random) -> str:
            return words

        return _ECHO_REQUESTS.write(rng, fill), words

    def nothing_to_do(self, rng: random.Random) -> str:
        """Write a message that needs no reaction."""
        return rng.choice(self._nothing).write(rng, fill_slot)
