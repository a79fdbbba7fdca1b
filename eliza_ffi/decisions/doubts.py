"""Signs that a prompt does not work, which need no right answers.

A model that does not understand a prompt still returns an option, with a probability. Two signs
show it: almost all inputs get the same answer, or the model expects a different text after the
prompt. A third sign needs right answers: the accuracy is not above the share of the most frequent
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .answers import Decision, MultiLabelAnswer, name_of
from .asking import N_MASSES
from .questions import Choice, Question

if TYPE_CHECKING:
    from ..session.session import Session
    from .deciding import Settings

LEAST_ROWS = 20
"""With fewer answers, no share is conspicuous."""

MOST_SHARE = 0.9
"""A larger share of one answer is a sign."""

LEAST_MASS = 0.01
"""A smaller mean allowed probability is a sign."""

ADVICE = (
    "try examples in the prompt, the other prompt_format or prompt_order, or a larger model, and "
    "measure with evaluate"
)


def reasons_to_doubt(name: str, answers: Mapping[Any, int], masses: Sequence[float]) -> list[str]:
    """Return what suggests that a question's prompt does not work, one sentence for each sign.

    `answers` counts how often each answer was given, and `masses` are allowed probabilities.
    """
    reasons = []
    n = sum(answers.values())
    if n >= LEAST_ROWS:
        answer, most = max(answers.items(), key=lambda item: item[1])
        if most > MOST_SHARE * n:
            reasons.append(
                f"{name}: {most:,} of {n:,} answers are {answer!r}; unless that is right, the "
                f"prompt does not work: {ADVICE}"
            )
    if masses and fmean(masses) < LEAST_MASS:
        reasons.append(
            f"{name}: only {fmean(masses):.2%} of the model's probability falls on the options, so "
            f"it expects a different text after this prompt: {ADVICE}"
        )
    return reasons


def reason_to_doubt_accuracy(name: str, accuracy: float, majority: float) -> list[str]:
    """Return a sentence if always giving the most frequent right answer would be as accurate."""
    if accuracy > majority:
        return []
    return [
        f"{name}: the accuracy, {accuracy:.1%}, is not above the share of the most frequent right "
        f"answer, {majority:.1%}: {ADVICE}"
    ]


class Doubts:
    """Collect the answers to the same questions about many inputs."""

    def __init__(self, session: Session, questions: Sequence[Question], settings: Settings) -> None:
        self._wants_mass = settings.allowed_probability
        # With it, all options of a question would be scored instead of searched.
        searches = any(isinstance(each, Choice) and each.has_many_options for each in questions)
        supports = session.binding.supports
        has_functions = supports("score_endings") and supports("prepare_choices")
        self._can_have_mass = has_functions and not searches
        self._answers: dict[str, Counter[Any]] = {}
        self._masses: dict[str, list[float]] = {}

    def settings_of(self, index: int, settings: Settings) -> Settings:
        """Return the settings for an input: the first ones get allowed probabilities, too."""
        has_mass = self._wants_mass or (self._can_have_mass and index < N_MASSES)
        return replace(settings, allowed_probability=has_mass)

    def seen(self, decision: Any) -> Any:
        """Count the answers of a decision, and return it as the caller wants it.

        Anything else, such as an exception, is returned unchanged.
        """
        if not isinstance(decision, Decision):
            return decision
        for name, answer in single_answers(decision):
            self._answers.setdefault(name, Counter())[most_probable(answer)] += 1
            if answer.allowed_probability is not None:
                self._masses.setdefault(name, []).append(answer.allowed_probability)
        if self._wants_mass:
            return decision
        return replace(decision, answers=tuple(map(_without_mass, decision.answers)))

    def reasons(self) -> list[str]:
        """Return what suggests that a prompt does not work."""
        return [
            reason
            for name, answers in self._answers.items()
            for reason in reasons_to_doubt(name, answers, self._masses.get(name, ()))
        ]


def _without_mass(answer: Any) -> Any:
    if isinstance(answer, MultiLabelAnswer):
        parts = tuple((label, _without_mass(each)) for label, each in answer.answers)
        return replace(answer, answers=parts)
    return replace(answer, allowed_probability=None)


def single_answers(decision: Decision) -> Iterator[tuple[str, Any]]:
    """Yield the name of each single answer with the answer."""
    for i, answer in enumerate(decision.answers):
        name = name_of(answer.name, i)
        if isinstance(answer, MultiLabelAnswer):
            for label, each in answer.answers:
                yield f"{name}: {label}", each
        else:
            yield name, answer


def most_probable(answer: Any) -> Any:
    """Return the most probable answer, even if the model abstained."""
    if hasattr(answer, "choice"):
        return answer.choice
    return answer.label if hasattr(answer, "label") else answer.probability >= 0.5
