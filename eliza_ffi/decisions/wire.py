"""Questions as JSON: one format, with the fields of ``/v1/decisions`` and ``/v1/systemone``.

In ``/v1/systemone`` a predicate is called a ``noul``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from ..checks import check_kind, check_known, check_one_of, check_several, found, wrong
from ..errors import InvalidArgumentError
from .answers import name_of
from .questions import (
    MAX_QUESTIONS,
    Choice,
    Level,
    MultiLabel,
    Option,
    Predicate,
    Question,
    Score,
    plain_value,
    renamed,
    text_of,
)

_QUESTIONS = (Predicate, Choice, Score, MultiLabel)
_KINDS = dict(zip(("predicate", "choice", "score", "labels"), _QUESTIONS, strict=True))


def as_questions(questions: Any) -> tuple[Question, ...]:
    """Read one or more questions in any supported form.

    >>> as_questions({"money": Predicate("It is about money.")})[0].name
    'money'

    Parameters
    ----------
    questions
        A question, a list of questions, or a mapping from names to questions. Each question is an
        object such as :class:`~eliza_ffi.decisions.Choice`, or a mapping in one of the two wire
        formats.

    Raises
    ------
    InvalidArgumentError
        If a question is malformed, if two questions have the same name, or if there are no
        questions or more than 400. Each label of :class:`~eliza_ffi.decisions.MultiLabel` that is
        asked counts as one question.
    """
    is_mapping = isinstance(questions, Mapping)
    if isinstance(questions, _QUESTIONS) or (is_mapping and is_question(questions)):
        read = [question_from(questions)]
    elif is_mapping:
        read = [_question(question, str(name), None) for name, question in questions.items()]
    else:
        expected = "a list of questions or a mapping from names"
        listed = check_several("questions", questions, expected)
        read = [_question(question, None, str(i)) for i, question in enumerate(listed)]
    n = sum([each.n_asked if isinstance(each, MultiLabel) else 1 for each in read])
    if not 1 <= n <= MAX_QUESTIONS:
        raise InvalidArgumentError(
            f"expected 1 to {MAX_QUESTIONS} questions (each label counts as one), got {n}"
        )
    names = [name_of(each.name, i) for i, each in enumerate(read)]
    if len(set(names)) < n:
        for name, n in Counter(names).items():
            if n > 1:
                raise InvalidArgumentError(f"two questions have the name {name!r}")
    return tuple(read)


def question_from(question: Any, name: str | None = None) -> Question:
    """Read a question: an object, or a mapping in one of the two wire formats.

    `name` replaces the question's own name. Errors name the question and the malformed field.

    >>> question_from({"type": "predicate", "instructions": "It is about money."}, "money").name
    'money'
    """
    return _question(question, name, None)


def question_to(question: Question) -> dict[str, Any]:
    """Convert a question to JSON data that :func:`question_from` can read.

    The result does not contain `source`, which only decision models use.

    >>> question_to(Predicate("It is about money."))["type"]
    'predicate'
    """
    check_kind("question", question, _QUESTIONS, "a Predicate, Choice, Score or MultiLabel")
    kind = next(kind for kind, each in _KINDS.items() if isinstance(question, each))
    written: dict[str, Any] = {"type": kind, "name": question.name}
    for each in fields(question):
        value = getattr(question, each.name)
        is_list = isinstance(value, tuple)
        written[each.name] = [_listed_to(one) for one in value] if is_list else value
    for name in ("source", "label"):
        written.pop(name, None)
    if isinstance(question, Choice) and not question.has_many_options:
        del written["show_options"], written["top"]
    if isinstance(question, MultiLabel) and not question.has_many_labels:
        del written["shortlist"]
    return _without_none(written)


def _listed_to(listed: Option | Level) -> dict[str, Any]:
    value = {"value": plain_value(listed.value)} if isinstance(listed, Option) else {}
    return _without_none(vars(listed) | value)


def _question(question: Any, name: str | None, index: str | None) -> Question:
    """Read a question. Error messages name a question without a name by its index."""
    if isinstance(question, _QUESTIONS):
        return question if name is None else renamed(question, name)
    if name is None and isinstance(question, Mapping):
        name = question.get("name")
    called = _called(index if name is None else name)
    if not isinstance(question, Mapping):
        raise wrong(called, "a question or a mapping", question)
    kind = check_one_of(f"{called}: type", question.get("type"), _READERS)
    read, known = _READERS[kind]
    check_known(f"{called}: {kind}", question, {"type", "name", "instructions", *known})
    if question.get("instructions") is None and not (kind == "noul" and _criteria_text(question)):
        raise InvalidArgumentError(f"{called}: instructions are missing")
    try:
        return read(question, name)
    except InvalidArgumentError as error:
        # The question's own error may begin with "the question" or "the question 'name'".
        reason = str(error).removeprefix(f"{_called(name)}: ")
        raise InvalidArgumentError(f"{called}: {reason}") from error


def is_question(mapping: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one question, not a mapping from names to questions."""
    return isinstance(mapping.get("type"), str)


def _called(name: Any) -> str:
    return "the question" if name is None else f"the question {found(name)}"


def _predicate(question: Mapping[str, Any], name: Any) -> Predicate:
    if_true, if_false = question.get("if_true"), question.get("if_false")
    return Predicate(question["instructions"], name, if_true, if_false)


def _noul(question: Mapping[str, Any], name: Any) -> Predicate:
    criteria = question.get("criteria")
    criteria = {} if criteria is None else criteria
    if not isinstance(criteria, Mapping) or criteria.keys() - {"true", "false"}:
        raise InvalidArgumentError(
            "criteria of a noul must be an object with no keys except true and false"
        )
    if_true, if_false = (_text(criteria.get(key)) for key in ("true", "false"))
    if question.get("instructions") is None:
        question = {**question, "instructions": _criteria_text(question)}
    return Predicate(question["instructions"], name, if_true, if_false, source=question)


def _criteria_text(question: Mapping[str, Any]) -> str:
    """Return the question that the criteria of a noul ask; an empty string if they ask none."""
    criteria = question.get("criteria")
    if not isinstance(criteria, Mapping):
        return ""
    if_true, if_false = (_text(criteria.get(key)) or "" for key in ("true", "false"))
    if if_true.strip():
        return if_true
    return f"This does not apply: {if_false}" if if_false.strip() else ""


def _choice(question: Mapping[str, Any], name: Any) -> Choice:
    listed = _one_of(question, "choices")
    if "criteria" in question and not isinstance(listed, Mapping):
        raise InvalidArgumentError(
            "criteria of a choice must be an object with a key for each option"
        )
    source = question if "criteria" in question and question.get("none") is None else None
    more = {key: question[key] for key in ("show_options", "top") if key in question}
    none = question.get("none")
    return Choice(question["instructions"], listed, name, none, source=source, **more)


def _score(question: Mapping[str, Any], name: Any) -> Score:
    listed = _one_of(question, "levels")
    if isinstance(listed, Mapping):
        raise InvalidArgumentError("the levels of a score must be a list, lowest first")
    source = question if "criteria" in question else None
    if source is not None:  # in this format a level may be any JSON
        listed = [text_of(level) for level in listed]
    return Score(question["instructions"], listed, name, source)


def _labels(question: Mapping[str, Any], name: Any) -> MultiLabel:
    listed = question.get("labels")
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise wrong("labels", "a list of labels or a mapping from labels to descriptions", listed)
    more = {key: question[key] for key in ("shortlist",) if key in question}
    return MultiLabel(question["instructions"], listed, name, **more)


_READERS: dict[str, tuple[Callable[[Mapping[str, Any], Any], Question], set[str]]] = {
    "predicate": (_predicate, {"if_true", "if_false"}),
    "noul": (_noul, {"criteria"}),
    "choice": (_choice, {"choices", "criteria", "none", "show_options", "top"}),
    "score": (_score, {"levels", "criteria"}),
    "labels": (_labels, {"labels", "shortlist"}),
}
"""The types of questions, each with the function that reads it and the fields of its own."""


def _one_of(question: Mapping[str, Any], name: str) -> Any:
    """Return the field `name` of ``/v1/decisions`` or ``criteria`` of ``/v1/systemone``."""
    if (name in question) == ("criteria" in question):
        count = "both" if name in question else "neither"
        raise InvalidArgumentError(f"expected either {name} or criteria, got {count}")
    listed = question[name] if name in question else question["criteria"]
    if isinstance(listed, Mapping):
        return listed
    return check_several(name, listed, f"a list of {name}")


def _text(description: Any) -> str | None:
    if description is None or isinstance(description, str):
        return description
    return text_of(description)


def _without_none(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if value is not None}
