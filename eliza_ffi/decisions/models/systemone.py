"""Questions in the format of ``/v1/systemone``, which decision models require. A ``noul`` is a
predicate. Instructions, descriptions and inputs stay JSON, which the templates convert to text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ...errors import InvalidArgumentError
from ..prompts import AskedQuestion, ask, refuse_media
from ..questions import Predicate, Score

SystemoneType: TypeAlias = Literal["noul", "choice", "score"]

MAX_NESTING = 40  # the template sandbox supports 50


@dataclass(frozen=True)
class SystemoneQuestion:
    """Hold a question in the format of ``/v1/systemone``. The options are pairs of a key and a
    description, which is any JSON: ``true`` and ``false`` of a noul; ``0``, ``1``, ... of a score,
    with its levels."""

    id: str
    type: SystemoneType
    instructions: Any
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, question: AskedQuestion, id: str) -> SystemoneQuestion:
        asked = question.instructions
        if isinstance(question, Predicate):
            return cls(id, "noul", asked, _noul_options(question.if_true, question.if_false))
        if isinstance(question, Score):
            levels = [
                level.label if not level.description else f"{level.label}: {level.description}"
                for level in question.levels
            ]
            return cls(id, "score", asked, _score_options(levels))
        shown = ask(question).options
        return cls(id, "choice", asked, tuple((each.text, each.description) for each in shown))

    @classmethod
    def read(cls, source: Mapping[str, Any], id: str) -> SystemoneQuestion:
        """Convert a question in this format that :func:`.wire.question_from` accepts."""
        kind = source["type"]
        asked = json_copy(source["instructions"], f"the instructions of {id!r}")
        criteria = json_copy(source.get("criteria"), f"the criteria of {id!r}")
        criteria_types: dict[str, Any] = {"noul": dict | None, "choice": dict, "score": list}
        if not isinstance(criteria, criteria_types.get(kind, ())):
            raise InvalidArgumentError(f"the question {id!r} is not in the format of /v1/systemone")
        if kind == "choice":
            return cls(id, kind, asked, tuple(criteria.items()))
        if kind == "score":
            return cls(id, kind, asked, _score_options(criteria))
        criteria = criteria or {}
        return cls(id, kind, asked, _noul_options(criteria.get("true"), criteria.get("false")))


def read_state(input: Any) -> Any:
    """Return a copy of an input for a template; reject images, audio and files."""
    state = json_copy(input, "the input")
    messages = state.get("messages") if isinstance(state, dict) else state
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                refuse_media(part)
    return state


def json_copy(value: Any, what: str = "the value", *, sort: bool = False, depth: int = 0) -> Any:
    """Return a copy of JSON data of plain lists and dicts, at most 40 levels deep, `depth` of which
    are above `value`. `what` names the value in errors."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth >= MAX_NESTING:
        raise InvalidArgumentError(f"{what} is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, list | tuple):
        return [json_copy(item, what, sort=sort, depth=depth + 1) for item in value]
    if isinstance(value, Mapping):
        copied = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgumentError(f"{what} is not JSON: the key {key!r} is not a string")
            copied[key] = json_copy(item, what, sort=sort, depth=depth + 1)
        return dict(sorted(copied.items())) if sort else copied
    raise InvalidArgumentError(f"{what} is not JSON: it contains {value!r:.80}")


def _noul_options(if_true: Any, if_false: Any) -> tuple[tuple[str, Any], ...]:
    return ("true", if_true), ("false", if_false)


def _score_options(levels: list[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(i), level) for i, level in enumerate(levels))
