"""Questions in the two wire formats: ``/v1/decisions`` and ``/v1/systemone``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..checks import check_kind, check_known, check_one_of, check_several, found
from ..errors import InvalidArgumentError
from .questions import (
    MAX_QUESTIONS,
    Choice,
    Labels,
    Level,
    Option,
    Predicate,
    Question,
    Score,
    text_of,
)

__all__ = ["as_questions", "question_from", "question_to"]

_QUESTIONS = (Predicate, Choice, Score, Labels)
_FIELDS = {
    "predicate": {"name", "instructions", "if_true", "if_false"},
    "noul": {"name", "instructions", "criteria"},
    "choice": {"name", "instructions", "choices", "criteria", "none"},
    "score": {"name", "instructions", "levels", "criteria"},
    "labels": {"name", "instructions", "labels"},
}


def as_questions(given: Any) -> tuple[Question, ...]:
    """Return questions given in any form, each with a name of its own or none.

    Parameters
    ----------
    given
        A question; several; or a mapping from names to questions. A question is an object, or a
        mapping in either wire format.

    Raises
    ------
    InvalidArgumentError
        If one is malformed, two have the same name, or there are none or more than 400, counting
        each label of :class:`~eliza_ffi.decisions.Labels`.
    """
    if isinstance(given, _QUESTIONS) or (isinstance(given, Mapping) and _is_question(given)):
        given = [given]
    if isinstance(given, Mapping):
        questions = [question_from(question, str(name)) for name, question in given.items()]
    else:
        listed = check_several("questions", given, "a list of questions or a mapping from names")
        questions = [_question(question, None, str(i)) for i, question in enumerate(listed)]
    n = sum(len(each.labels) if isinstance(each, Labels) else 1 for each in questions)
    if not 1 <= n <= MAX_QUESTIONS:
        raise InvalidArgumentError(
            f"expected 1 to {MAX_QUESTIONS} questions (each label counts as one), got {n}"
        )
    names = [
        question.name if question.name is not None else str(i)
        for i, question in enumerate(questions)
    ]
    for name, n in Counter(names).items():
        if n > 1:
            raise InvalidArgumentError(f"two questions have the name {name!r}")
    return tuple(questions)


def question_from(given: Any, name: str | None = None) -> Question:
    """Return a question given as an object or as a mapping of either wire format.

    Parameters
    ----------
    given
    name
        What it is called; None = what it says itself.

    Raises
    ------
    InvalidArgumentError
        If it is malformed; the text names the question and the field.
    """
    return _question(given, name, None)


def question_to(question: Question) -> dict[str, Any]:
    """Return a question as JSON, such that :func:`question_from` gives it back.

    Its `source` is left out: what other models are asked does not depend on it.
    """
    check_kind("question", question, _QUESTIONS, "a Predicate, Choice, Score or Labels")
    said: dict[str, Any] = {"instructions": question.instructions}
    if question.name is not None:
        said = {"name": question.name, **said}
    if isinstance(question, Predicate):
        said |= {"if_true": question.if_true, "if_false": question.if_false}
        said = {"type": "predicate", **said}
    elif isinstance(question, Choice):
        said |= {"choices": [_option(each) for each in question.choices], "none": question.none}
        said = {"type": "choice", **said}
    elif isinstance(question, Score):
        levels = [_described("label", level.label, level.description) for level in question.levels]
        said = {"type": "score", **said, "levels": levels}
    else:
        said = {"type": "labels", **said, "labels": [_option(each) for each in question.labels]}
    return {key: value for key, value in said.items() if value is not None}


def _question(given: Any, name: str | None, place: str | None) -> Question:
    """Return a question; one without a name is called by its place in errors."""
    if isinstance(given, _QUESTIONS):
        return given if name is None else _renamed(given, name)
    if name is None and isinstance(given, Mapping):
        name = given.get("name")
    called = _called(place if name is None else name)
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"{called} must be a question or a mapping, not {type(given).__name__}"
        )
    kind = check_one_of(f"{called}: type", given.get("type"), _FIELDS)
    check_known(f"{called}: {kind}", given, _FIELDS[kind] | {"type"})
    if given.get("instructions") is None:
        raise InvalidArgumentError(f"{called}: instructions are missing")
    try:
        return _READERS[kind](given, name)
    except InvalidArgumentError as error:
        # What a question says of itself begins with its name, or the lack of it.
        said = str(error).removeprefix(f"{_called(name)}: ")
        raise InvalidArgumentError(f"{called}: {said}") from error


def _is_question(given: Mapping[Any, Any]) -> bool:
    return isinstance(given.get("type"), str) and "instructions" in given


def _called(name: Any) -> str:
    return "the question" if name is None else f"the question {found(name)}"


def _renamed(question: Question, name: str) -> Question:
    return replace(question, name=name)


def _predicate(given: Mapping[str, Any], name: Any) -> Predicate:
    return Predicate(given["instructions"], name, given.get("if_true"), given.get("if_false"))


def _noul(given: Mapping[str, Any], name: Any) -> Predicate:
    criteria = given.get("criteria")
    if criteria is None:
        criteria = {}
    if not isinstance(criteria, Mapping) or criteria.keys() - {"true", "false"}:
        raise InvalidArgumentError("criteria of a noul must be an object with true and false")
    described = {key: _text(value) for key, value in criteria.items()}
    return Predicate(
        given["instructions"],
        name,
        described.get("true"),
        described.get("false"),
        source=given,
    )


def _choice(given: Mapping[str, Any], name: Any) -> Choice:
    listed = _one_of(given, "choices")
    if "criteria" in given and not isinstance(listed, Mapping):
        raise InvalidArgumentError("criteria of a choice must be an object, an option for each key")
    if isinstance(listed, Mapping):
        options: Any = {value: _text(description) for value, description in listed.items()}
    else:
        options = [_read(item, "value", Option) for item in listed]
    source = given if "criteria" in given and given.get("none") is None else None
    return Choice(given["instructions"], options, name, given.get("none"), source=source)


def _score(given: Mapping[str, Any], name: Any) -> Score:
    listed = _one_of(given, "levels")
    if isinstance(listed, Mapping):
        raise InvalidArgumentError("the levels of a score must be a list, the lowest first")
    if "criteria" in given:  # whatever JSON they are
        listed = [text_of(level) for level in listed]
    levels = [_read(item, "label", Level) for item in listed]
    return Score(given["instructions"], levels, name, given if "criteria" in given else None)


def _labels(given: Mapping[str, Any], name: Any) -> Labels:
    listed = given.get("labels")
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise InvalidArgumentError("labels must be a list")
    if isinstance(listed, Mapping):
        return Labels(given["instructions"], listed, name)
    return Labels(given["instructions"], [_read(item, "value", Option) for item in listed], name)


_READERS: dict[str, Callable[[Mapping[str, Any], Any], Question]] = {
    "predicate": _predicate,
    "noul": _noul,
    "choice": _choice,
    "score": _score,
    "labels": _labels,
}


def _one_of(given: Mapping[str, Any], name: str) -> Any:
    """Return what is under a name of the one format or under ``criteria``, the other's."""
    if (name in given) == ("criteria" in given):
        raise InvalidArgumentError(f"there must be either {name} or criteria")
    listed = given[name] if name in given else given["criteria"]
    return (
        listed if isinstance(listed, Mapping) else check_several(name, listed, f"a list of {name}")
    )


def _read(item: Any, key: str, kind: Any) -> Any:
    if not isinstance(item, Mapping):
        return item if isinstance(item, kind) else kind(item)
    what = f"{'an option' if key == 'value' else 'a level'} {dict(item)!r:.80}"
    check_known(what, item, (key, "description"))
    if key not in item:
        raise InvalidArgumentError(f"{what} needs {key!r}")
    return kind(item[key], _text(item.get("description")))


def _text(description: Any) -> str | None:
    if description is None or isinstance(description, str):
        return description
    return text_of(description)


def _option(option: Option) -> dict[str, Any]:
    return _described("value", option.value, option.description)


def _described(key: str, value: Any, description: str | None) -> dict[str, Any]:
    return {key: value} if description is None else {key: value, "description": description}
