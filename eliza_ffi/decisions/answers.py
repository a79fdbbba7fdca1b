"""Answers to questions, decisions, and their JSON in the two wire formats."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeAlias

from .._lazy import lazy_property
from ..checks import check_kind, check_number, check_several, check_whole, short_repr, wrong
from ..errors import InvalidArgumentError
from ..library.protocol import Ranking
from .questions import (
    A,
    Choice,
    MultiLabel,
    Predicate,
    Question,
    Score,
    V,
    Value,
    plain_value,
    text_of,
    value_text,
)


@dataclass(frozen=True)
class Passage:
    """Hold the effect of a passage of the input on an answer.

    Attributes
    ----------
    text : str
        A sentence, or a field of JSON; neighbours together if there are more than 32.
    start, end : int
        Its place in the text of the input, in characters, from
        :func:`~eliza_ffi.decisions.prompts.input_text`.
    probability : float
        The probability of the same answer if the passage is left out.
    effect : float
        log(p / probability), where p is the probability of the answer with the whole input. If it
        is positive, the passage supports the answer.
    """

    text: str
    start: int
    end: int
    probability: float
    effect: float


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """Hold the fields of every answer except :class:`MultiLabelAnswer`.

    Attributes
    ----------
    name : str or None
        The name of the question.
    allowed_probability : float or None
        The probability, over the whole vocabulary, that the next token begins an option. A low
        value means that the model expects a different kind of text after this prompt. None unless
        requested.
    abstained : bool
        Whether the most probable option is less probable than `min_probability`, the answer is not
        certified with ``abstain="risk"``, or its expected cost is above the cost of a review.
    certified : bool or None
        Whether the probability of the answer is high enough that few such answers are wrong, or its
        expected cost low enough. None without a calibration that was fitted with a risk.
    prediction_set : tuple or None
        The options that may be right: with a probability of 1 - risk, the right one is among them.
        For a score, the labels of its levels. It can be empty. None without a calibration that was
        fitted with a risk.
    unfamiliar : bool or None
        Whether the input is not like the examples that a calibration with a head was fitted to, so
        that the answer may be wrong however probable it is. About 5 % of inputs that are like the
        examples are marked, too. None without such a calibration.
    passages : tuple of Passage or None
        The effect of each passage of the input on the most probable answer, in the order of the
        input; with a model and an encoder, only of the passages that the encoder chose. Empty if
        the input has only one passage. None without ``explain=True``.
    cheapest : value or None
        The option with the least expected cost, which is the answer. None without a calibration
        that was fitted with costs: then the answer is the most probable option.
    expected_cost : float or None
        The expected cost of this option.
    """

    name: str | None = None
    allowed_probability: float | None = None
    abstained: bool = False
    certified: bool | None = None
    prediction_set: tuple[Value, ...] | None = None
    unfamiliar: bool | None = None
    passages: tuple[Passage, ...] | None = None
    cheapest: Value | None = None
    expected_cost: float | None = None

    def _described(self, value: object, probability: str) -> str:
        end = ", abstained" if self.abstained else ""
        return f"{type(self).__name__}({short_repr(value)}, {probability}{end})"


@dataclass(frozen=True, kw_only=True)
class PredicateAnswer(_Answer):
    """Hold the answer to a :class:`~eliza_ffi.decisions.Predicate`.

    Attributes
    ----------
    probability : float
        The probability that the statement is true.
    """

    probability: float

    @property
    def is_true(self) -> bool:
        """Whether the probability is at least 0.5, or *true* has the least expected cost."""
        return self.probability >= 0.5 if self.cheapest is None else bool(self.cheapest)

    @property
    def value(self) -> bool | None:
        """The same as :attr:`is_true`; None if the model abstained."""
        return None if self.abstained else self.is_true

    @property
    def confidence(self) -> float:
        """How far the more probable answer is above chance, from 0 to 1."""
        return abs(2.0 * self.probability - 1.0)

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities of true and of false, in this order."""
        return self.probability, 1.0 - self.probability

    def __repr__(self) -> str:
        return self._described(self.value, f"probability of true {self.probability:.3g}")


@dataclass(frozen=True, kw_only=True)
class ChoiceAnswer(_Answer, Generic[V]):
    """Hold the answer to a :class:`~eliza_ffi.decisions.Choice`.

    Attributes
    ----------
    options : tuple of (value, float)
        All options with their probabilities, in the order of the question. If the question has more
        than 255 options: the `top` most probable ones, most probable first.
    rest : float
        The probability of all options that are not in `options`.
    n_options : int
        The number of options of the question; 0 = all are in `options`.
    """

    options: tuple[tuple[V, float], ...]
    rest: float = 0.0
    n_options: int = 0

    @property
    def choice(self) -> V:
        """The most probable option, or `cheapest`; in a tie, the first one of the question."""
        cheapest: Any = self.cheapest
        if cheapest is not None:
            return cheapest  # type: ignore[no-any-return]
        return max(self.options, key=lambda option: option[1])[0]

    @property
    def value(self) -> V | None:
        """The choice; None if the model abstained."""
        return None if self.abstained else self.choice

    @property
    def probabilities(self) -> Mapping[V, float]:
        """The probability of each option."""
        return MappingProxyType(dict(self.options))

    @property
    def probability(self) -> float:
        """The probability of the choice."""
        if self.cheapest is None:
            return max(self.distribution)
        return dict[Any, float](self.options)[self.cheapest]

    @property
    def confidence(self) -> float:
        """See :func:`choice_confidence`."""
        return choice_confidence(self.distribution, self.n_options or len(self.options))

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities of `options`."""
        return tuple(probability for _, probability in self.options)

    def ranked(self) -> list[tuple[V, float]]:
        """Return `options`, most probable first."""
        return sorted(self.options, key=lambda option: option[1], reverse=True)

    def top(self, n: int = 5) -> list[tuple[V, float]]:
        """Return the n most probable of `options`, most probable first."""
        return self.ranked()[: check_whole("n", n, 1)]

    def __repr__(self) -> str:
        return self._described(self.value, f"probability {self.probability:.3g}")


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer(_Answer):
    """Hold the answer to a :class:`~eliza_ffi.decisions.Score`.

    Attributes
    ----------
    levels : tuple of (str, float)
        The labels of the levels with their probabilities, lowest level first.
    """

    levels: tuple[tuple[str, float], ...]

    @property
    def score(self) -> float:
        """The expected level, a fraction. The lowest level counts as 0."""
        return sum(i * p for i, p in enumerate(self.distribution))

    @property
    def value(self) -> float | None:
        """The score; None if the model abstained."""
        return None if self.abstained else self.score

    @property
    def label(self) -> str:
        """The label of the most probable level; in a tie, the lowest one."""
        return max(self.levels, key=lambda level: level[1])[0]

    @property
    def probability(self) -> float:
        """The probability of the most probable level."""
        return max(self.distribution)

    @property
    def confidence(self) -> float:
        """See :func:`score_confidence`."""
        return score_confidence(self.distribution)

    @property
    def distribution(self) -> tuple[float, ...]:
        """The probabilities of the levels, lowest level first."""
        return tuple(probability for _, probability in self.levels)

    def __repr__(self) -> str:
        level = f"{short_repr(self.label)} with probability {self.probability:.3g}"
        return self._described(self.value, level)


@dataclass(frozen=True, kw_only=True)
class MultiLabelAnswer(Generic[V]):
    """Hold the answer to :class:`~eliza_ffi.decisions.MultiLabel`.

    Attributes
    ----------
    name : str or None
        The name of the question.
    answers : tuple of (value, PredicateAnswer)
        Each label with its answer, which says whether the label fits. The fields `certified` and
        `abstained` of such an answer are about this label alone.
    abstained : bool
        Whether the answer for at least one label is less probable than `min_probability`, or the
        whole answer is not certified with ``abstain="risk"``.
    certified : bool or None
        Whether `probability` is high enough that few such answers are wrong, where an answer is
        wrong if at least one label is. None without a calibration that was fitted with a risk.
    n_labels : int
        The number of labels of the question, if only a shortlist of them was asked; 0 = all were.
    """

    name: str | None = None
    answers: tuple[tuple[V, PredicateAnswer], ...]
    abstained: bool = False
    certified: bool | None = None
    n_labels: int = 0

    @property
    def labels(self) -> tuple[V, ...]:
        """The labels with a probability of at least 0.5; none if no label fits."""
        return tuple(label for label, answer in self.answers if answer.probability >= 0.5)

    @property
    def value(self) -> tuple[V, ...] | None:
        """The labels that fit; None if the model abstained."""
        return None if self.abstained else self.labels

    @property
    def probability(self) -> float:
        """The product of the probabilities of the labels' answers, whether yes or no."""
        return math.prod(max(answer.distribution) for _, answer in self.answers)

    @property
    def probabilities(self) -> Mapping[V, float]:
        """The probability that each label fits. These probabilities need not sum to 1."""
        return MappingProxyType({label: answer.probability for label, answer in self.answers})

    @property
    def unfamiliar(self) -> bool | None:
        """Whether the input is unfamiliar to the head of any label; None without heads."""
        found = [each.unfamiliar for _, each in self.answers if each.unfamiliar is not None]
        return any(found) if found else None

    @property
    def confidence(self) -> float:
        """The lowest confidence of all labels."""
        return min(answer.confidence for _, answer in self.answers)

    def __repr__(self) -> str:
        end = ", abstained" if self.abstained else ""
        n = self.n_labels or len(self.answers)
        return f"MultiLabelAnswer({short_repr(self.value)} of {n} labels{end})"


SingleAnswer: TypeAlias = "PredicateAnswer | ChoiceAnswer | ScoreAnswer"
"""An answer to a question with one answer."""

Answer: TypeAlias = "PredicateAnswer | ChoiceAnswer | ScoreAnswer | MultiLabelAnswer"
"""An answer of any kind."""

_ANSWERS = (PredicateAnswer, ChoiceAnswer, ScoreAnswer, MultiLabelAnswer)


@dataclass(frozen=True)
class DecisionUsage:
    """Report the cost of a decision.

    Attributes
    ----------
    input_tokens : int
        The tokens of all prompts, with their common beginning counted once.
    cached_tokens : int
        How many of these tokens were found in the KV cache.
    forward_passes : int
        The number of forward passes; -1 if the library does not count them.
    seconds : float
        The time from the call to the answers.
    reasoning_tokens : int
        The tokens that the model wrote before it answered. With ``think=``, the other counts
        include the reasoning and its prompt.
    """

    input_tokens: int
    cached_tokens: int
    forward_passes: int
    seconds: float
    reasoning_tokens: int = 0

    def __add__(self, other: DecisionUsage) -> DecisionUsage:
        """Return the cost of both."""
        passes = (self.forward_passes, other.forward_passes)
        return DecisionUsage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            -1 if min(passes) < 0 else sum(passes),
            self.seconds + other.seconds,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, eq=False)
class Decision(Mapping[str, A]):
    """Map the names of the questions about one input to their answers.

    The name of an unnamed question is its position, ``"0"`` for the first one. You can also look up
    any answer by its position: ``decision[0]`` is the answer to the first question.

    >>> decision = model.decide("I paid twice!", {"team": Choice("Team?", ["billing", "login"])})
    >>> decision.to_dict()["answers"][0]["choice"], decision.to_json()[:10]
    ('billing', '{"answers"')

    Attributes
    ----------
    answers : tuple of Answer
        The answers, in the order of the questions.
    usage : DecisionUsage
        The cost of the decision.
    calibrated : bool
        Whether a calibration was applied to the probabilities. Otherwise, they are the model's own
        probabilities, which are usually overconfident.
    reasoning : str or None
        What the model wrote before it answered; None without ``think=``.
    stage : int or None
        How many sources of a :class:`~eliza_ffi.Cascade` were asked; None without a cascade.
    """

    answers: tuple[A, ...]
    usage: DecisionUsage
    calibrated: bool = False
    reasoning: str | None = None
    stage: int | None = None

    @lazy_property
    def _by_name(self) -> dict[str, A]:
        answers: tuple[Any, ...] = self.answers
        return {name_of(answer.name, i): answer for i, answer in enumerate(answers)}

    def __getitem__(self, name: str | int) -> A:
        try:
            return self.answers[name] if isinstance(name, int) else self._by_name[name]
        except IndexError:  # mappings raise KeyError
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        answers: Mapping[str, Any] = self
        values = {name: answer.value for name, answer in answers.items()}
        return f"Decision({short_repr(values)}, {len(self)} answers)"

    def to_dict(self) -> dict[str, Any]:
        """Convert the decision to JSON data, with the answers in the format of ``/v1/decisions``.

        The keys are ``answers``, ``calibrated`` and ``usage``, ``reasoning`` if the model has
        reasoned, and ``stage`` for a cascade.
        """
        answers: tuple[Any, ...] = self.answers
        more = {"reasoning": self.reasoning, "stage": self.stage}
        return {
            **{name: value for name, value in more.items() if value is not None},
            "answers": list(map(decisions_answer, answers)),
            "calibrated": self.calibrated,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "input_tokens_details": {"cached_tokens": self.usage.cached_tokens},
                "forward_passes": self.usage.forward_passes,
                "seconds": self.usage.seconds,
            },
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one line of JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def name_of(name: str | None, index: int) -> str:
    """Return the key of an answer in a decision: its name, or its index as a string."""
    return str(index) if name is None else name


def by_name(questions: Iterable[Question]) -> dict[str, Question]:
    """Return questions, whose names differ, by the keys of their answers."""
    return {name_of(question.name, i): question for i, question in enumerate(questions)}


def answer_of(
    question: Predicate | Choice | Score,
    probabilities: Sequence[float],
    allowed_probability: float | None = None,
    min_probability: float = 0.0,
    *,
    abstained: bool = False,
    **certificate: Any,
) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer:
    """Make the answer to a question from the probabilities of its options.

    The probabilities are in the order of the question's values. The model abstains if the highest
    one is below `min_probability`, or if `abstained` is true. `certificate` has the fields
    `certified`, `prediction_set`, `unfamiliar`, `cheapest` and `expected_cost`.
    """
    p = list(map(float, probabilities))
    rest: dict[str, Any] = {
        "name": question.name,
        "allowed_probability": allowed_probability,
        "abstained": abstained or max(p) < min_probability,
        **certificate,
    }
    if isinstance(question, Predicate):
        return PredicateAnswer(probability=p[0], **rest)
    if isinstance(question, Score):
        return ScoreAnswer(levels=tuple(zip(question.values, p, strict=True)), **rest)
    return ChoiceAnswer(options=tuple(zip(question.values, p, strict=True)), **rest)


def ranked_answer(
    question: Choice,
    ranking: Ranking,
    min_probability: float = 0.0,
    *,
    abstained: bool = False,
    **certificate: Any,
) -> ChoiceAnswer:
    """Make the answer to a choice among many options from the most probable ones."""
    best = zip(ranking.labels.tolist(), ranking.logprobs.tolist(), strict=True)
    options = tuple((question.values[i], math.exp(logprob)) for i, logprob in best)
    return ChoiceAnswer(
        name=question.name,
        abstained=abstained or options[0][1] < min_probability,
        options=options,
        rest=ranking.rest,
        n_options=len(question.values),
        **certificate,
    )


def choice_confidence(probabilities: Sequence[float], n_options: int | None = None) -> float:
    """Return how far the most probable of n options is above chance, from 0 to 1.

    The formula is the one published for ``/v1/systemone``: (p - 1/n) / (1 - 1/n), but at least 0.
    The confidence of a single option is 1. `probabilities` has at least the highest one, and
    `n_options` is the number of probabilities by default.

    >>> round(choice_confidence([0.75, 0.25]), 2)
    0.5
    """
    probabilities = _checked(probabilities)
    if n_options is None:
        n_options = len(probabilities)
    chance = 1.0 / check_whole("n_options", n_options, 1, 2**31)
    return 1.0 if chance == 1.0 else max(0.0, (max(probabilities) - chance) / (1.0 - chance))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return how concentrated the probability is around the most probable level, from 0 to 1.

    The formula is the one published for ``/v1/systemone``: 1 - d/d_u, but at least 0. Here d is the
    mean distance to the most probable level, and d_u is the mean distance of a uniform distribution
    to the middle of the scale.

    >>> score_confidence([0.0, 1.0, 0.0])
    1.0
    """
    probabilities = _checked(probabilities)
    n = len(probabilities)
    if n < 2:
        raise InvalidArgumentError(f"probabilities: expected 2 or more levels, got {n}")
    mode = max(range(n), key=lambda i: probabilities[i])
    distance = sum(p * abs(i - mode) for i, p in enumerate(probabilities))
    uniform = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1.0 - distance / uniform)


def _checked(probabilities: Sequence[float]) -> list[float]:
    listed = check_several("probabilities", probabilities, "a list of numbers")
    checked = [check_number("each of probabilities", each) for each in listed]
    if not checked:
        raise wrong("probabilities", "a non-empty list of numbers", checked)
    return checked


def expand(question: Question) -> tuple[Predicate | Choice | Score, ...]:
    """Split a question into questions that have one answer each.

    InvalidArgumentError is raised for more than 255 labels, of which only some are asked.
    """
    if isinstance(question, MultiLabel) and question.has_many_labels:
        name = "" if question.name is None else f" {question.name!r}"
        raise InvalidArgumentError(
            f"the question{name}: expected at most 255 labels, got {len(question.labels):,}: more "
            "can only be asked, without a calibration, explain, a cascade or learning"
        )
    return question.predicates if isinstance(question, MultiLabel) else (question,)


def parts_of(questions: Iterable[Question]) -> Iterator[tuple[str, Question, range]]:
    """Yield each question with its name and the indices of its parts among the parts of all."""
    begin = 0
    for i, question in enumerate(questions):
        parts = range(begin, begin := begin + len(expand(question)))
        yield name_of(question.name, i), question, parts


def collect(
    question: Question, answers: Sequence[PredicateAnswer | ChoiceAnswer | ScoreAnswer]
) -> Answer:
    """Combine the answers to the parts of a question from :func:`expand`. The model abstains from
    the whole if it abstained from a part."""
    if not isinstance(question, MultiLabel):
        return answers[0]
    labelled = tuple(
        (label.value, answer)
        for label, answer in zip(question.labels, answers, strict=True)
        if isinstance(answer, PredicateAnswer)
    )
    abstained = any(answer.abstained for answer in answers)
    return MultiLabelAnswer(name=question.name, answers=labelled, abstained=abstained)


def decisions_answer(answer: Answer) -> dict[str, Any]:
    """Convert an answer to JSON data in the format of ``/v1/decisions``.

    Answers of type ``labels`` are an extension of OpenAI's format.

    >>> decisions_answer(model.decide("I paid twice!", Predicate("It is about money."))[0])["type"]
    'predicate'
    """
    check_kind("answer", answer, _ANSWERS, "an answer of a Decision")
    name = {"name": answer.name}
    if isinstance(answer, PredicateAnswer):
        fields: dict[str, Any] = {"type": "predicate", **name, "probability": answer.probability}
    elif isinstance(answer, ChoiceAnswer):
        fields = {"type": "choice", **name, "choice": plain_value(answer.choice)}
        fields["confidence"] = answer.confidence
        fields["probabilities"] = [
            {"value": plain_value(value), "probability": p} for value, p in answer.options
        ]
        if answer.n_options:
            fields |= {"rest": answer.rest, "n_options": answer.n_options}
    elif isinstance(answer, ScoreAnswer):
        fields = {"type": "score", **name, "score": answer.score}
        fields["confidence"] = answer.confidence
        fields["probabilities"] = [
            {"value": i, "label": label, "probability": p}
            for i, (label, p) in enumerate(answer.levels)
        ]
    else:
        fields = {"type": "labels", **name, "labels": list(answer.labels)}
        pairs = answer.probabilities.items()
        fields["probabilities"] = [{"value": v, "probability": p} for v, p in pairs]
        for listed, (_, each) in zip(fields["probabilities"], answer.answers, strict=True):
            if each.passages is not None:
                listed["passages"] = list(map(vars, each.passages))
        if answer.n_labels:
            fields["n_labels"] = answer.n_labels
    return fields | _extras(answer)


def systemone_answer(answer: Answer) -> dict[str, Any]:
    """Convert an answer to JSON data in the format of ``/v1/systemone``.

    >>> systemone_answer(model.decide("I paid twice!", Predicate("It is about money."))[0])["type"]
    'noul'

    Raises
    ------
    InvalidArgumentError
        If it is a :class:`MultiLabelAnswer`, which that format does not have.
    """
    check_kind("answer", answer, _ANSWERS, "an answer of a Decision")
    if isinstance(answer, MultiLabelAnswer):
        raise InvalidArgumentError(
            "/v1/systemone does not support labels; ask a noul for each label"
        )
    if isinstance(answer, PredicateAnswer):
        fields: dict[str, Any] = {"type": "noul", "noul": answer.probability}
    elif isinstance(answer, ChoiceAnswer):
        texts = [text_of(value) for value, _ in answer.options if not isinstance(value, bool)]
        fields = {"type": "choice", "choice": value_text(answer.choice, texts)}
        fields["probabilities"] = by_text(answer)
        fields["confidence"] = answer.confidence
    else:
        fields = {"type": "score", "score": answer.score}
        fields["legend"] = {str(i): label for i, (label, _) in enumerate(answer.levels)}
        fields["probabilities"] = {str(i): p for i, (_, p) in enumerate(answer.levels)}
        fields["confidence"] = answer.confidence
    return fields | _extras(answer)


def _extras(answer: Answer) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if answer.abstained:
        fields["abstained"] = True
    if answer.certified is not None:
        fields["certified"] = answer.certified
    if answer.unfamiliar is not None:
        fields["unfamiliar"] = answer.unfamiliar
    if isinstance(answer, MultiLabelAnswer):
        return fields
    if answer.cheapest is not None:
        fields |= {"cheapest": plain_value(answer.cheapest), "expected_cost": answer.expected_cost}
    if answer.allowed_probability is not None:
        fields["allowed_probability"] = answer.allowed_probability
    if answer.prediction_set is not None:
        fields["prediction_set"] = list(map(plain_value, answer.prediction_set))
    if answer.passages is not None:
        fields["passages"] = list(map(vars, answer.passages))
    return fields


def pairs_of(answer: Answer) -> list[tuple[Any, float]]:
    """Return the values of an answer, or the labels of its levels, with their probabilities."""
    if isinstance(answer, PredicateAnswer):
        return list(zip((True, False), answer.distribution, strict=True))
    if isinstance(answer, MultiLabelAnswer):
        return list(answer.probabilities.items())
    return list(answer.levels if isinstance(answer, ScoreAnswer) else answer.options)


def by_text(answer: Answer) -> dict[str, float]:
    """Return the probabilities of an answer by the texts of its values."""
    pairs = pairs_of(answer)
    texts = [text_of(value) for value, _ in pairs if not isinstance(value, bool)]
    return {value_text(value, texts): p for value, p in pairs}


def single_answers(decision: Decision) -> Iterator[tuple[str, Any]]:
    """Yield the answers to the parts of all questions, except the labels of a shortlist, which is
    different for each input."""
    for i, answer in enumerate(decision.answers):
        name = name_of(answer.name, i)
        if isinstance(answer, MultiLabelAnswer) and answer.n_labels:
            continue
        if isinstance(answer, MultiLabelAnswer):
            for label, each in answer.answers:
                yield f"{name}: {label}", each
        else:
            yield name, answer


def given_answer(answer: Any) -> Any:
    """Return the answer that the model gives or would give if it did not abstain."""
    if hasattr(answer, "choice"):
        return answer.choice
    return answer.label if hasattr(answer, "label") else answer.is_true
