"""Signs that a prompt does not work, which need no right answers.

A model that does not understand a prompt still returns an option, with a probability. Three signs
show it: almost all inputs get the same answer, the model expects a different text after the prompt,
or the names of options are codes. A fourth sign needs right answers: the accuracy is not above the
share of the most frequent one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..decisions.answers import Decision, given_answer, single_answers
from ..decisions.questions import Choice
from .question_plan import N_MASSES

if TYPE_CHECKING:
    from .deciding import DecisionPlan

MIN_ROWS = 20
"""With fewer answers, no share is conspicuous."""

MAX_SHARE = 0.9
"""A larger share of one answer is a sign."""

MIN_MASS = 0.01
"""A smaller mean allowed probability is a sign."""

ADVICE = (
    "try examples in the prompt, the other prompt_format or prompt_order, or a larger model, and "
    "measure with evaluate"
)

COMPARING_ADVICE = "describe every option in more words, or use another model"
"""For encoders and rerankers, which have no prompts."""


def reasons_to_doubt(
    name: str, answers: Mapping[Any, int], masses: Sequence[float], *, compares: bool = False
) -> list[str]:
    """Return what suggests that a question's prompt does not work, one sentence for each sign.

    `answers` counts how often each answer was given, and `masses` are allowed probabilities. If
    `compares` is true, the model is an encoder or a reranker, which has no prompt.
    """
    reasons = []
    n = sum(answers.values())
    if n >= MIN_ROWS:
        answer, most = max(answers.items(), key=lambda item: item[1])
        if most > MAX_SHARE * n:
            broken = "the descriptions do" if compares else "the prompt does"
            advice = COMPARING_ADVICE if compares else ADVICE
            reasons.append(
                f"{name}: {most:,} of {n:,} answers are {answer!r}; unless that is right, "
                f"{broken} not work: {advice}"
            )
    if masses and fmean(masses) < MIN_MASS:
        reasons.append(
            f"{name}: only {fmean(masses):.2%} of the model's probability falls on the options, so "
            f"it expects a different text after this prompt: {ADVICE}"
        )
    return reasons


def reason_to_doubt_names(name: str, codes: Sequence[str]) -> list[str]:
    """Return a sentence if the model reads the names of options that are codes."""
    if not codes:
        return []
    shown = ", ".join(map(repr, codes[:3])) + (", ..." if codes[3:] else "")
    return [
        f"{name}: {shown} look like codes, which say nothing to a model: use plain words, or "
        "describe every option"
    ]


def reason_to_doubt_accuracy(name: str, accuracy: float, majority: float) -> list[str]:
    """Return a sentence if always giving the most frequent right answer would be as accurate."""
    if accuracy > majority:
        return []
    return [
        f"{name}: the accuracy, {accuracy:.1%}, is not above the share of the most frequent right "
        f"answer, {majority:.1%}: {ADVICE}"
    ]


class Doubts:
    """Collect the answers to the same questions about many inputs. Thread-safe."""

    def __init__(self, plan: DecisionPlan) -> None:
        # With a mass, all options of a question would be scored instead of searched.
        searches = any(
            isinstance(each, Choice) and each.has_many_options for each in plan.questions
        )
        self._n_masses = 0 if searches else N_MASSES
        self._plan = plan
        self._lock = threading.Lock()
        self._answers: dict[str, Counter[Any]] = {}
        self._masses: dict[str, list[float]] = {}

    def wants_mass(self) -> bool:
        """Return whether the next input needs allowed probabilities; the first ones do."""
        with self._lock:
            self._n_masses -= 1
            return self._n_masses >= 0

    def add(self, decision: Decision, masses: Sequence[float | None]) -> None:
        """Count the answers of a decision, and the allowed probabilities of its questions."""
        with self._lock:
            for (name, answer), mass in zip(single_answers(decision), masses, strict=True):
                self._answers.setdefault(name, Counter())[given_answer(answer)] += 1
                if mass is not None:
                    self._masses.setdefault(name, []).append(mass)

    def reasons(self) -> list[str]:
        reasons = [
            reason
            for name, answers in self._answers.items()
            for reason in reasons_to_doubt(
                name, answers, self._masses.get(name, ()), compares=self._plan.compares
            )
        ]
        # The names are in the order of the plan's questions.
        for place, name in enumerate(self._answers):
            reasons += reason_to_doubt_names(name, self._plan.codes(place))
        return reasons
