"""Questions as JSON: one format, with the fields of ``/v1/decisions`` and ``/v1/systemone``.

In ``/v1/systemone`` a predicate is called a ``noul``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..checks import check_kind, check_known, check_one_of, check_several, found, wrong
from ..errors import InvalidArgumentError
from .questions import (
    MAX_QUESTIONS,
    Choice,
    Level,
    MultiLabel,
    Option,
    Predicate,
    Question,
    Score,
    text_of,
)

__all__ = ["as_questions", "is_question", "question_from", "question_to"]

_QUESTIONS = (Predicate, Choice, Score, MultiLabel)
_FIELDS = {
    "predicate": {"name", "instructions", "if_true", "if_false"},
    "noul": {"name", "instructions", "criteria"},
    "choice": {"name", "instructions", "choices", "criteria", "none", "show_options", "top"},
    "score": {"name", "instructions", "levels", "criteria"},
    "labels": {"name", "instructions", "labels"},
}


def as_questions(given: Any) -> tuple[Question, ...]:
    """Read one or more questions in any supported form.

    Parameters
    ----------
    given
        A question, a list of questions, or a mapping from names to questions. Each question is an
        object such as :class:`~eliza_ffi.decisions.Choice`, or a mapping in one of the two wire
        formats.

    Raises
    ------
    InvalidArgumentError
        If a question is malformed, if two questions have the same name, or if there are no
        questions or more than 400. Each label of :class:`~eliza_ffi.decisions.MultiLabel` counts as
        one question.
    """
    if isinstance(given, _QUESTIONS) or (isinstance(given, Mapping) and is_question(given)):
        given = [given]
    if isinstance(given, Mapping):
        questions = [question_from(question, str(name)) for name, question in given.items()]
    else:
        listed = check_several("questions", given, "a list of questions or a mapping from names")
        questions = [_question(question, None, str(i)) for i, question in enumerate(listed)]
    n = sum(len(each.labels) if isinstance(each, MultiLabel) else 1 for each in questions)
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
    """Read a question: an object, or a mapping in one of the two wire formats.

    Parameters
    ----------
    name
        A name that replaces the question's own name. None keeps its own name.

    Raises
    ------
    InvalidArgumentError
        If the question is malformed. The message names the question and the field.
    """
    return _question(given, name, None)


def question_to(question: Question) -> dict[str, Any]:
    """Convert a question to JSON data that :func:`question_from` can read.

    The result does not contain `source`, which only decision models use.
    """
    check_kind("question", question, _QUESTIONS, "a Predicate, Choice, Score or MultiLabel")
    more: dict[str, Any]
    if isinstance(question, Predicate):
        kind, more = "predicate", {"if_true": question.if_true, "if_false": question.if_false}
    elif isinstance(question, Choice):
        options = [_without_none(vars(each)) for each in question.choices]
        kind, more = "choice", {"choices": options, "none": question.none}
        if question.has_many_options:
            more |= {"show_options": question.show_options, "top": question.top}
    elif isinstance(question, Score):
        kind, more = "score", {"levels": [_without_none(vars(each)) for each in question.levels]}
    else:
        kind, more = "labels", {"labels": [_without_none(vars(each)) for each in question.labels]}
    common = {"type": kind, "name": question.name, "instructions": question.instructions}
    return _without_none({**common, **more})


def _question(given: Any, name: str | None, place: str | None) -> Question:
    """Read a question. Error messages name a question without a name by its place."""
    if isinstance(given, _QUESTIONS):
        return given if name is None else replace(given, name=name)
    if name is None and isinstance(given, Mapping):
        name = given.get("name")
    called = _called(place if name is None else name)
    if not isinstance(given, Mapping):
        raise wrong(called, "a question or a mapping", given)
    kind = check_one_of(f"{called}: type", given.get("type"), _FIELDS)
    check_known(f"{called}: {kind}", given, _FIELDS[kind] | {"type"})
    if given.get("instructions") is None and not (kind == "noul" and _criteria_text(given)):
        raise InvalidArgumentError(f"{called}: instructions are missing")
    try:
        return _READERS[kind](given, name)
    except InvalidArgumentError as error:
        # The question's own error may begin with "the question" or "the question 'name'".
        reason = str(error).removeprefix(f"{_called(name)}: ")
        raise InvalidArgumentError(f"{called}: {reason}") from error


def is_question(given: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one question, not a mapping from names to questions."""
    return isinstance(given.get("type"), str)


def _called(name: Any) -> str:
    return "the question" if name is None else f"the question {found(name)}"


def _predicate(given: Mapping[str, Any], name: Any) -> Predicate:
    return Predicate(given["instructions"], name, given.get("if_true"), given.get("if_false"))


def _noul(given: Mapping[str, Any], name: Any) -> Predicate:
    criteria = given.get("criteria")
    criteria = {} if criteria is None else criteria
    if not isinstance(criteria, Mapping) or criteria.keys() - {"true", "false"}:
        raise InvalidArgumentError(
            "criteria of a noul must be an object with no keys except true and false"
        )
    if_true, if_false = (_text(criteria.get(key)) for key in ("true", "false"))
    if given.get("instructions") is None:
        given = {**given, "instructions": _criteria_text(given)}
    return Predicate(given["instructions"], name, if_true, if_false, source=given)


def _criteria_text(given: Mapping[str, Any]) -> str:
    """Return the question that the criteria of a noul ask; an empty string if they ask none."""
    criteria = given.get("criteria")
    if not isinstance(criteria, Mapping):
        return ""
    if_true, if_false = (_text(criteria.get(key)) or "" for key in ("true", "false"))
    if if_true.strip():
        return if_true
    return f"This does not apply: {if_false}" if if_false.strip() else ""


def _choice(given: Mapping[str, Any], name: Any) -> Choice:
    listed = _one_of(given, "choices")
    if "criteria" in given and not isinstance(listed, Mapping):
        raise InvalidArgumentError(
            "criteria of a choice must be an object with a key for each option"
        )
    source = given if "criteria" in given and given.get("none") is None else None
    more = {key: given[key] for key in ("show_options", "top") if key in given}
    none = given.get("none")
    return Choice(given["instructions"], _options(listed), name, none, source=source, **more)


def _score(given: Mapping[str, Any], name: Any) -> Score:
    listed = _one_of(given, "levels")
    if isinstance(listed, Mapping):
        raise InvalidArgumentError("the levels of a score must be a list, lowest first")
    if "criteria" in given:  # in this format a level may be any JSON
        listed = [text_of(level) for level in listed]
    levels = [_read(item, "label", Level) for item in listed]
    return Score(given["instructions"], levels, name, given if "criteria" in given else None)


def _labels(given: Mapping[str, Any], name: Any) -> MultiLabel:
    listed = given.get("labels")
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise wrong("labels", "a list of labels or a mapping from labels to descriptions", listed)
    return MultiLabel(given["instructions"], _options(listed), name)


_READERS: dict[str, Callable[[Mapping[str, Any], Any], Question]] = {
    "predicate": _predicate,
    "noul": _noul,
    "choice": _choice,
    "score": _score,
    "labels": _labels,
}


def _one_of(given: Mapping[str, Any], name: str) -> Any:
    """Return the field `name` of ``/v1/decisions`` or ``criteria`` of ``/v1/systemone``."""
    if (name in given) == ("criteria" in given):
        count = "both" if name in given else "neither"
        raise InvalidArgumentError(f"expected either {name} or criteria, got {count}")
    listed = given[name] if name in given else given["criteria"]
    return (
        listed if isinstance(listed, Mapping) else check_several(name, listed, f"a list of {name}")
    )


def _options(listed: Any) -> Any:
    if isinstance(listed, Mapping):  # from values to descriptions
        return listed
    return [_read(item, "value", Option) for item in listed]


def _read(item: Any, key: str, kind: Any) -> Any:
    if not isinstance(item, Mapping):
        return item if isinstance(item, kind) else kind(item)
    what = f"{'an option' if key == 'value' else 'a level'} {dict(item)!r:.80}"
    check_known(what, item, (key, "description"))
    if key not in item:
        raise InvalidArgumentError(f"{what}: the field {key!r} is missing")
    return kind(item[key], _text(item.get("description")))


def _text(description: Any) -> str | None:
    if description is None or isinstance(description, str):
        return description
    return text_of(description)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
