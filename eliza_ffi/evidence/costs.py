"""The costs of the kinds of error, and the answer with the least expected cost.

An answer's expected cost is the sum of the costs of this answer, weighted by the probabilities of
the right options (Elkan, "The Foundations of Cost-Sensitive Learning", IJCAI 2001).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import check_kind, check_number, wrong
from ..decisions.answers import by_name
from ..decisions.examples import for_each_question, named_questions, option_names, option_place
from ..decisions.probabilities import Array
from ..decisions.prompts import AskedQuestion
from ..decisions.questions import Choice, MultiLabel, Predicate, Question
from ..errors import InvalidArgumentError
from .json_fields import JsonFields

Cost = Annotated[float, (0.0,)]


@dataclass(frozen=True, kw_only=True)
class Costs(JsonFields):
    """Hold the costs of the answers to a question.

    Attributes
    ----------
    matrix : tuple of tuple of float
        The cost of each answer, for each right option.
    review : float or None
        The cost of an answer by a person. The model abstains if its own answer has a larger
        expected cost. None if it does not abstain for this reason.
    """

    matrix: tuple[tuple[Cost, ...], ...]
    review: Cost | None = None

    @property
    def largest(self) -> float:
        """The largest cost."""
        return max(map(max, self.matrix))

    def answers(self, p: ArrayLike) -> NDArray[np.intp]:
        """Return the option with the least expected cost for each row of probabilities."""
        answers: NDArray[np.intp] = self._expected(p).argmin(axis=1)
        return answers

    def expected(self, p: ArrayLike) -> Array:
        """Return the expected costs of these answers."""
        least: Array = self._expected(p).min(axis=1)
        return least

    def is_review(self, p: ArrayLike) -> NDArray[np.bool_]:
        """Return which rows cost less if a person answers them."""
        return self.expected(p) > (math.inf if self.review is None else self.review)

    def sure(self, p: ArrayLike) -> Array:
        """Return 1 - expected cost / largest cost, which a threshold is certified for.

        If a wrong answer always costs 1, this is the probability of the answer. A row for a person
        has -1, which is below all thresholds.
        """
        return np.where(self.is_review(p), -1.0, 1 - self.expected(p) / self.largest)

    def of_answers(self, answers: ArrayLike, targets: ArrayLike) -> Array:
        """Return the costs of answers, for the right options of the same rows."""
        costs: Array = np.array(self.matrix)[np.asarray(targets), np.asarray(answers)]
        return costs

    def _expected(self, p: ArrayLike) -> Array:
        expected: Array = np.asarray(p, dtype=np.float64) @ np.array(self.matrix)
        return expected

    def _check(self) -> None:
        n = len(self.matrix)
        if n < 2 or any(len(row) != n for row in self.matrix):
            raise wrong("matrix", "a square matrix of costs", self.matrix)
        if not self.largest:
            raise InvalidArgumentError("costs: expected a cost above 0, got only zeros")


def costs_of(costs: Any, review_cost: Any, questions: Sequence[Question]) -> list[Costs | None]:
    """Return the costs for each question of :func:`.named_questions`; None without any.

    `costs` maps right options to mappings from answers to costs; a wrong answer that is missing
    costs 1, and a right one 0. Several questions have a mapping from their names to such mappings.
    `review_cost` is a number or a mapping from the names of all questions.
    """
    named = named_questions(questions)
    if costs is None and review_cost is None:
        return [None] * len(named)
    if isinstance(costs, Costs):
        return [costs] * len(named)
    asked = by_name(questions)
    if costs is None:
        costs = {name: {} for name in asked}
    check_kind("costs", costs, Mapping, "a mapping from right options to costs of answers")
    if len(asked) == 1 and not _is_by_question(costs, *asked):
        costs = dict.fromkeys(asked, costs)
    for name in costs:
        if name not in asked:
            listed = ", ".join(map(repr, asked))
            raise InvalidArgumentError(f"costs: expected questions among {listed}, got {name!r}")
    if any(isinstance(asked[name], MultiLabel) for name in costs):
        raise InvalidArgumentError("costs need a Choice or a Predicate, not labels")
    reviews = for_each_question("review_cost", review_cost, questions)
    return [
        _costs(name, question, costs[name], review) if name in costs else None
        for (name, question), review in zip(named, reviews, strict=True)
    ]


def _is_by_question(costs: Mapping[Any, Any], name: str) -> bool:
    inner = costs.get(name)
    return (
        set(costs) == {name}
        and isinstance(inner, Mapping)
        and all(isinstance(each, Mapping) for each in inner.values())
    )


def _costs(name: str, question: AskedQuestion, given: Any, review: Any) -> Costs:
    what = f"costs of {name!r}"
    is_listed = isinstance(question, Choice) and not question.has_many_options
    if not is_listed and not isinstance(question, Predicate):
        raise InvalidArgumentError(
            f"{what}: expected a Choice of at most 255 options or a Predicate"
        )
    options = option_names(question)
    matrix = 1.0 - np.eye(len(options))
    check_kind(what, given, Mapping, "a mapping from right options to costs of answers")
    for right, answers in given.items():
        row = option_place(what, question, right)
        where = f"{what} if {options[row]!r} is right"
        check_kind(where, answers, Mapping, "a mapping from answers to costs")
        for answer, cost in answers.items():
            place = option_place(where, question, answer)
            matrix[row, place] = check_number(f"{where}: {options[place]!r}", cost, 0)
    if review is not None:
        review = float(check_number("review_cost", review, 0))
    found = Costs(matrix=tuple(map(tuple, matrix.tolist())), review=review)
    found._check()
    return found
