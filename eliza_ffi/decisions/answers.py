"""Answers to typed questions, and the decision that holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from ..checks import check_kind, check_number, check_several, short_repr
from ..errors import InvalidArgumentError
from .prompts import value_text
from .questions import Choice, Labels, Predicate, Question, Score, Value

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "Decision",
    "DecisionUsage",
    "LabelsAnswer",
    "PredicateAnswer",
    "ScoreAnswer",
    "answer_of",
    "choice_confidence",
    "decisions_answer",
    "score_confidence",
    "systemone_answer",
]


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What all answers to one question have.

    Attributes
    ----------
    name : str or None
        The question's.
    option_mass : float or None
        The share of the model's own probability of the next token that fell on the options: low
        where the prompt does not fit. None unless asked for.
    abstained : bool
        Whether the likeliest answer is less likely than `abstain_below` asked for.
    """

    name: str | None = None
    option_mass: float | None = None
    abstained: bool = False

    def _described(self, value: object, probability: str) -> str:
        end = ", abstained" if self.abstained else ""
        return f"{type(self).__name__}({short_repr(value)}, {probability}{end})"


@dataclass(frozen=True, kw_only=True)
class PredicateAnswer(_Answer):
    """The answer to a :class:`~eliza_ffi.decisions.Predicate`.

    Attributes
    ----------
    probability : float
        That it is true.
    """

    probability: float

    @property
    def value(self) -> bool | None:
        """Whether it is true; None where the model abstained."""
        return None if self.abstained else self.probability >= 0.5

    @property
    def confidence(self) -> float:
        """How far the likelier answer is above chance, 0 to 1."""
        return abs(2.0 * self.probability - 1.0)

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities of true and of false."""
        return self.probability, 1.0 - self.probability

    def __repr__(self) -> str:
        return self._described(self.value, f"probability of true {self.probability:.3g}")


@dataclass(frozen=True, kw_only=True)
class ChoiceAnswer(_Answer):
    """The answer to a :class:`~eliza_ffi.decisions.Choice`.

    Attributes
    ----------
    choice : str or bool
        The likeliest option; of several, the one given first.
    options : tuple of (str or bool, float)
        All options with their probabilities, in the order they were given.
    """

    options: tuple[tuple[Value, float], ...]

    @property
    def choice(self) -> Value:
        """The likeliest option; of several, the one given first."""
        return max(self.options, key=lambda option: option[1])[0]

    @property
    def value(self) -> Value | None:
        """The choice; None where the model abstained."""
        return None if self.abstained else self.choice

    @property
    def probabilities(self) -> Mapping[Value, float]:
        """The probability of every option."""
        return MappingProxyType(dict(self.options))

    @property
    def probability(self) -> float:
        """The choice's probability."""
        return max(self.distribution)

    @property
    def confidence(self) -> float:
        """See :func:`choice_confidence`."""
        return choice_confidence(self.distribution)

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities in the order the options were given."""
        return tuple(probability for _, probability in self.options)

    def ranked(self) -> list[tuple[Value, float]]:
        """Return all options with their probabilities, the likeliest first."""
        return sorted(self.options, key=lambda option: option[1], reverse=True)

    def __repr__(self) -> str:
        return self._described(self.value, f"probability {self.probability:.3g}")


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer(_Answer):
    """The answer to a :class:`~eliza_ffi.decisions.Score`.

    Attributes
    ----------
    levels : tuple of (str, float)
        The labels of the levels with their probabilities, the lowest first.
    """

    levels: tuple[tuple[str, float], ...]

    @property
    def score(self) -> float:
        """The expected level: 0 for the lowest, with fractions."""
        return sum(i * p for i, p in enumerate(self.distribution))

    @property
    def value(self) -> float | None:
        """The score; None where the model abstained."""
        return None if self.abstained else self.score

    @property
    def label(self) -> str:
        """The label of the likeliest level; of several, the lowest."""
        return max(self.levels, key=lambda level: level[1])[0]

    @property
    def probability(self) -> float:
        """The likeliest level's."""
        return max(self.distribution)

    @property
    def confidence(self) -> float:
        """See :func:`score_confidence`."""
        return score_confidence(self.distribution)

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities of the levels, the lowest first."""
        return tuple(probability for _, probability in self.levels)

    def __repr__(self) -> str:
        level = f"{short_repr(self.label)} with probability {self.probability:.3g}"
        return self._described(self.value, level)


@dataclass(frozen=True, kw_only=True)
class LabelsAnswer:
    """The answer to :class:`~eliza_ffi.decisions.Labels`.

    Attributes
    ----------
    name : str or None
        The question's.
    answers : tuple of (str or bool, PredicateAnswer)
        For each label whether it fits.
    """

    name: str | None = None
    answers: tuple[tuple[Value, PredicateAnswer], ...]

    @property
    def value(self) -> tuple[Value, ...]:
        """The labels that fit: more likely than not, and no abstention."""
        return tuple(label for label, answer in self.answers if answer.value)

    @property
    def probabilities(self) -> Mapping[Value, float]:
        """That a label fits, for each by itself: they do not sum to 1."""
        return MappingProxyType({label: answer.probability for label, answer in self.answers})

    @property
    def abstained(self) -> bool:
        """Whether the model abstained on a label."""
        return any(answer.abstained for _, answer in self.answers)

    @property
    def confidence(self) -> float:
        """The least of its labels' confidences."""
        return min(answer.confidence for _, answer in self.answers)

    def __repr__(self) -> str:
        return f"LabelsAnswer({short_repr(self.value)} of {len(self.answers)} labels)"


Answer: TypeAlias = "PredicateAnswer | ChoiceAnswer | ScoreAnswer | LabelsAnswer"
"""An answer of any kind."""

_ANSWERS = (PredicateAnswer, ChoiceAnswer, ScoreAnswer, LabelsAnswer)


@dataclass(frozen=True)
class DecisionUsage:
    """What a decision took.

    Attributes
    ----------
    input_tokens : int
        Of all prompts: the input once, and each question.
    cached_tokens : int
        Of those, found in the KV cache.
    passes : int
        Forward passes; -1 where the library does not count.
    seconds : float
        From the call to the answers.
    """

    input_tokens: int
    cached_tokens: int
    passes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Decision(Mapping[str, Any]):
    """The answers to the questions about one input: a mapping from names to answers.

    A question without a name has its position as its name, ``"0"`` for the first. Every answer can
    also be found by its position: ``decision[0]`` is the answer to the first question.

    Attributes
    ----------
    answers : tuple of Answer
        In the order of the questions.
    usage : DecisionUsage
    calibrated : bool
        Whether the probabilities went through a calibration that was fitted on examples. Others are
        the model's own, and mostly too sure.
    """

    answers: tuple[Answer, ...]
    usage: DecisionUsage
    calibrated: bool = False
    _by_name: dict[str, Answer] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        named = {name_of(answer.name, i): answer for i, answer in enumerate(self.answers)}
        object.__setattr__(self, "_by_name", named)

    def __getitem__(self, name: str | int) -> Answer:
        try:
            return self.answers[name] if isinstance(name, int) else self._by_name[name]
        except IndexError:  # a mapping raises KeyError
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        values = {name: answer.value for name, answer in self.items()}
        return f"Decision({short_repr(values)}, {len(self)} answers)"

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as ``/v1/decisions`` writes them, and what the decision took.

        Returns
        -------
        dict
            JSON data: ``answers`` in the order of the questions, ``calibrated`` and ``usage``.
        """
        return {
            "answers": [decisions_answer(answer) for answer in self.answers],
            "calibrated": self.calibrated,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "input_tokens_details": {"cached_tokens": self.usage.cached_tokens},
                "passes": self.usage.passes,
                "seconds": self.usage.seconds,
            },
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as a JSON text on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def name_of(name: str | None, place: int) -> str:
    """Return what an answer is found by."""
    return str(place) if name is None else name


def answer_of(
    question: Predicate | Choice | Score,
    probabilities: Sequence[float],
    option_mass: float | None = None,
    abstain_below: float = 0.0,
) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer:
    """Return the answer that probabilities of a question's options come to.

    Parameters
    ----------
    question
    probabilities
        One for each option: true and false; the choices, and that none fits; the levels.
    option_mass
    abstain_below
        The model abstains where the likeliest option's probability is lower.
    """
    p = [float(each) for each in probabilities]
    rest: dict[str, Any] = {
        "name": question.name,
        "option_mass": option_mass,
        "abstained": max(p) < abstain_below,
    }
    if isinstance(question, Predicate):
        return PredicateAnswer(probability=p[0], **rest)
    if isinstance(question, Score):
        labels = [level.label for level in question.levels]
        return ScoreAnswer(levels=tuple(zip(labels, p, strict=True)), **rest)
    values = [option.value for option in question.options]
    return ChoiceAnswer(options=tuple(zip(values, p, strict=True)), **rest)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return how far the likeliest of n options is above chance: (p - 1/n) / (1 - 1/n), at least 0.

    As published for ``/v1/systemone``; 1 for a single option.
    """
    probabilities = _checked(probabilities)
    chance = 1.0 / len(probabilities)
    return 1.0 if chance == 1.0 else max(0.0, (max(probabilities) - chance) / (1.0 - chance))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return how close a scale's probability lies around its likeliest level, 0 to 1.

    As published for ``/v1/systemone``: 1 - d/d_u, at least 0, where d is the mean distance to the
    likeliest level and d_u that of a uniform distribution to the middle of the scale.
    """
    probabilities = _checked(probabilities)
    n = len(probabilities)
    if n < 2:
        raise InvalidArgumentError(f"a scale has 2 levels or more, not {n}")
    mode = max(range(n), key=lambda i: probabilities[i])
    distance = sum(p * abs(i - mode) for i, p in enumerate(probabilities))
    uniform = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1.0 - distance / uniform)


def _checked(probabilities: Sequence[float]) -> list[float]:
    listed = check_several("probabilities", probabilities, "a list of numbers")
    checked = [check_number("each of probabilities", each) for each in listed]
    if not checked:
        raise InvalidArgumentError("probabilities must be one or more, got none")
    return checked


def expand(question: Question) -> tuple[Predicate | Choice | Score, ...]:
    """Return the questions with one answer each that a question comes to."""
    return question.predicates if isinstance(question, Labels) else (question,)


def collect(
    question: Question, answers: Sequence[PredicateAnswer | ChoiceAnswer | ScoreAnswer]
) -> Answer:
    """Return a question's answer out of those to what :func:`expand` made of it."""
    if not isinstance(question, Labels):
        return answers[0]
    found = tuple(
        (label.value, answer)
        for label, answer in zip(question.labels, answers, strict=True)
        if isinstance(answer, PredicateAnswer)
    )
    return LabelsAnswer(name=question.name, answers=found)


def decisions_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as ``/v1/decisions`` writes it; one to labels is our own addition."""
    check_kind("answer", answer, _ANSWERS, "an answer of a Decision")
    if isinstance(answer, PredicateAnswer):
        said: dict[str, Any] = {
            "type": "predicate",
            "name": answer.name,
            "probability": answer.probability,
        }
    elif isinstance(answer, ChoiceAnswer):
        said = {
            "type": "choice",
            "name": answer.name,
            "choice": answer.choice,
            "confidence": answer.confidence,
            "probabilities": [{"value": value, "probability": p} for value, p in answer.options],
        }
    elif isinstance(answer, ScoreAnswer):
        said = {
            "type": "score",
            "name": answer.name,
            "score": answer.score,
            "confidence": answer.confidence,
            "probabilities": [
                {"value": i, "label": label, "probability": p}
                for i, (label, p) in enumerate(answer.levels)
            ],
        }
    else:
        return {
            "type": "labels",
            "name": answer.name,
            "labels": list(answer.value),
            "probabilities": [
                {"value": value, "probability": each.probability} for value, each in answer.answers
            ],
        }
    return said | _extras(answer)


def systemone_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as ``/v1/systemone`` writes it.

    Raises
    ------
    InvalidArgumentError
        If it is one to labels, which that format has not.
    """
    check_kind("answer", answer, _ANSWERS, "an answer of a Decision")
    if isinstance(answer, LabelsAnswer):
        raise InvalidArgumentError("systemone has no answers to labels: ask a noul for each")
    if isinstance(answer, PredicateAnswer):
        said: dict[str, Any] = {"type": "noul", "noul": answer.probability}
    elif isinstance(answer, ChoiceAnswer):
        texts = [value for value, _ in answer.options if isinstance(value, str)]
        said = {
            "type": "choice",
            "choice": value_text(answer.choice, texts),
            "probabilities": {value_text(value, texts): p for value, p in answer.options},
            "confidence": answer.confidence,
        }
    else:
        said = {
            "type": "score",
            "score": answer.score,
            "legend": {str(i): label for i, (label, _) in enumerate(answer.levels)},
            "probabilities": {str(i): p for i, (_, p) in enumerate(answer.levels)},
            "confidence": answer.confidence,
        }
    return said | _extras(answer)


def _extras(answer: PredicateAnswer | ChoiceAnswer | ScoreAnswer) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if answer.option_mass is not None:
        said["option_mass"] = answer.option_mass
    if answer.abstained:
        said["abstained"] = True
    return said
