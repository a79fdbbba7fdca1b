"""Questions as models made for decisions are asked them: ``/v1/systemone``'s, with JSON in them.

Such a model's template decides itself how JSON becomes text. So instructions, descriptions and
input go to it as they were given, while the questions of :mod:`.questions` have text only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ...errors import InvalidArgumentError
from ..prompts import AskedQuestion, ask, refuse_media
from ..questions import MAX_LEVELS, Predicate, Score

__all__ = ["SystemoneQuestion", "SystemoneType", "json_copy", "read_state"]

SystemoneType: TypeAlias = Literal["noul", "choice", "score"]

MAX_NESTING = 40  # the sandbox that templates run in has an end at 50


@dataclass(frozen=True)
class SystemoneQuestion:
    """A question in the form of ``/v1/systemone``.

    Attributes
    ----------
    id : str
    type : str
        ``"noul"``, ``"choice"`` or ``"score"``.
    instructions
        A text or other JSON.
    options : tuple of (str, JSON)
        What can be answered, each with its description or None: ``true`` and ``false`` of a noul,
        ``0``, ``1``, ... with the levels for descriptions of a score.
    """

    id: str
    type: SystemoneType
    instructions: Any
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, question: AskedQuestion, id: str) -> SystemoneQuestion:
        """Return a question of ours in this form."""
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
    def read(cls, given: Any, id: str) -> SystemoneQuestion:
        """Return a question as a request has it, its JSON as it is.

        Raises
        ------
        InvalidArgumentError
            If it is malformed; the text has the question's id.
        """

        def refuse(what: str) -> InvalidArgumentError:
            return InvalidArgumentError(f"the question {id!r}: {what}")

        if not isinstance(given, Mapping):
            raise refuse(f"it must be a mapping, not {type(given).__name__}")
        if given.get("instructions") is None:
            raise refuse("there are no instructions")
        asked = json_copy(given["instructions"], f"the instructions of {id!r}")
        criteria = json_copy(given.get("criteria"), f"the criteria of {id!r}")
        kind = given.get("type")
        if kind == "choice":
            if not isinstance(criteria, dict) or not criteria:
                raise refuse("criteria of a choice must be an object with an entry per option")
            return cls(id, kind, asked, tuple(criteria.items()))
        if kind == "score":
            if not isinstance(criteria, list) or not 2 <= len(criteria) <= MAX_LEVELS:
                raise refuse(f"criteria of a score must be an array of 2 to {MAX_LEVELS} levels")
            return cls(id, kind, asked, _score_options(criteria))
        if kind == "noul":
            if not isinstance(criteria, dict | None):
                raise refuse("criteria of a noul must be an object with true and false")
            criteria = criteria or {}
            options = _noul_options(criteria.get("true"), criteria.get("false"))
            return cls(id, kind, asked, options)
        raise refuse(f"type must be one of noul, choice, score, not {kind!r}")


def read_state(given: Any) -> Any:
    """Return an input as a template is given it: a copy of the JSON that it is.

    Raises
    ------
    InvalidArgumentError
        If it is not JSON, or a conversation with images or sound in it.
    """
    state = json_copy(given, "the input")
    messages = state.get("messages") if isinstance(state, dict) else state
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                refuse_media(part)
    return state


def json_copy(value: Any, what: str = "the value", *, sort: bool = False, depth: int = 0) -> Any:
    """Return a copy of JSON, of plain lists and dicts.

    Parameters
    ----------
    value
    what
        What it is, for an error's text.
    sort
        Whether the keys of all objects come in order.
    depth
        How deep it is in something else.

    Raises
    ------
    InvalidArgumentError
        If it is not JSON, or nested deeper than 40.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth >= MAX_NESTING:
        raise InvalidArgumentError(f"{what} is nested deeper than {MAX_NESTING}")
    if isinstance(value, list | tuple):
        return [json_copy(item, what, sort=sort, depth=depth + 1) for item in value]
    if isinstance(value, Mapping):
        copied = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgumentError(f"{what} is not JSON: {key!r} is no key")
            copied[key] = json_copy(item, what, sort=sort, depth=depth + 1)
        return dict(sorted(copied.items())) if sort else copied
    raise InvalidArgumentError(f"{what} is not JSON: it has {value!r:.80}")


def _noul_options(if_true: Any, if_false: Any) -> tuple[tuple[str, Any], ...]:
    return ("true", if_true), ("false", if_false)


def _score_options(levels: list[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(i), level) for i, level in enumerate(levels))
