"""A mixture of requests, each with the answer that the server must give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eliza_ffi.model import Model

__all__ = ["Asked", "mixture", "questions_of", "with_answers"]

_SUBJECTS = ("parcel", "invoice", "password", "refund", "lamp", "order", "subscription", "train")
_TROUBLES = ("has not come", "is wrong", "was lost", "came twice", "is broken", "is late")
_TEAMS = ("billing", "support", "sales", "shipping", "legal", "press", "returns", "the warehouse")


@dataclass(frozen=True)
class Asked:
    """A request, and the expected answer.

    Attributes
    ----------
    path : str
    body : dict
        The body without names of questions. Each client adds unique names, to recognize its own
        answer.
    status : int
        The expected status.
    probabilities : tuple of tuple of float
        The probabilities computed by a model in this process; empty if the status is not 200.
    """

    path: str
    body: dict[str, Any]
    status: int = 200
    probabilities: tuple[tuple[float, ...], ...] = field(default=())


def mixture(n: int, seed: int) -> list[Asked]:
    """Return `n` requests: short and long, with one or several questions, and invalid ones."""
    draw = random.Random(seed)
    return [_one(draw, i) for i in range(n)]


def with_answers(asked: Sequence[Asked], model: Model) -> list[Asked]:
    """Return the requests with the expected answers, computed by a model in this process."""
    answered = []
    for each in asked:
        found: tuple[tuple[float, ...], ...] = ()
        if each.status == 200:
            decision = model.decide(_input_of(each), questions_of(each))
            found = tuple(answer.distribution for answer in decision.answers)  # type: ignore[union-attr]
        answered.append(Asked(each.path, each.body, each.status, found))
    return answered


def questions_of(asked: Asked) -> Any:
    """Return the questions of a request in the form that `Model.decide` accepts."""
    return asked.body["questions"]


def _input_of(asked: Asked) -> Any:
    return asked.body["input" if "input" in asked.body else "state"]


def _one(draw: random.Random, i: int) -> Asked:
    mail = f"Mail {i}: the {draw.choice(_SUBJECTS)} {draw.choice(_TROUBLES)}."
    mail += " Please write to me soon." * draw.choice((0, 0, 1, 4, 12))
    kind = draw.random()
    if kind < 0.06:
        return _bad(draw, mail)
    if kind < 0.35:
        return Asked("/v1/systemone", {"state": {"mail": mail}, "questions": _nouls(draw)})
    given: Any = mail
    if kind < 0.5:
        given = [{"role": "system", "content": "A shop."}, {"role": "user", "content": mail}]
    questions = [_question(draw) for _ in range(draw.choice((1, 1, 2, 3, 6)))]
    return Asked("/v1/decisions", {"model": "any", "input": given, "questions": questions})


def _bad(draw: random.Random, mail: str) -> Asked:
    body = draw.choice(
        (
            {"input": mail, "questions": []},
            {"input": mail},
            {"input": "word " * 4000, "questions": [_predicate()]},
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}], "questions": []},
        )
    )
    return Asked("/v1/decisions", body, status=400)


def _predicate() -> dict[str, Any]:
    return {"type": "predicate", "instructions": "The writer needs an answer today."}


def _question(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(("predicate", "choice", "choice", "score"))
    if kind == "predicate":
        return _predicate()
    if kind == "score":
        levels = [{"label": label} for label in ("calm", "annoyed", "furious")]
        return {"type": "score", "instructions": "How angry is the writer?", "levels": levels}
    teams = draw.sample(_TEAMS, draw.choice((2, 3, 5, 8)))
    options = [{"value": team} for team in teams]
    return {"type": "choice", "instructions": "Which team should read this?", "choices": options}


def _nouls(draw: random.Random) -> dict[str, Any]:
    said = ("It is about money.", "It is about an order.", "The writer is polite.")
    return {
        f"noul {i}": {"type": "noul", "instructions": each}
        for i, each in enumerate(draw.sample(said, draw.choice((1, 2, 3))))
    }
