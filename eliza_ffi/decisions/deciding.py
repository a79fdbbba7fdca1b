"""Convert an input and questions to a scoring request, and the scores to answers."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import check_flag, check_number, check_whole
from ..errors import InvalidArgumentError
from ..library.protocol import Ranking
from ..session.requests import check_keywords
from ..session.scoring import ScoreResult, ranking_of
from .answers import (
    ChoiceAnswer,
    Decision,
    DecisionUsage,
    PredicateAnswer,
    ScoreAnswer,
    answer_of,
    collect,
    expand,
    ranked_answer,
)
from .asking import How, WritePrompt, asking_of
from .calibration import Calibration, as_calibration, how_asked
from .fingerprint import fingerprint_of
from .models.model_asking import decision_model_of
from .prompts import LabelStyle
from .questions import Choice, Question
from .scoring import Rule

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = ["DecisionRun", "Settings", "settings_for"]

OWN_KEYWORDS = frozenset(
    (
        *("labels", "orders", "prompt", "scoring", "calibration", "option_mass", "abstain_below"),
        *("think", "wait", "progress", "max_concurrency", "return_exceptions"),
    )
)
"""Keywords to suggest if one is misspelt, in addition to the settings of a stream."""


_FINGERPRINTS: weakref.WeakKeyDictionary[Session, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a decision.

    Attributes
    ----------
    think : int
        Maximum number of tokens of the reasoning before the questions; 0 = no reasoning.
    stream : mapping
        The settings of the stream: slot and cache.
    """

    how: How = field(default_factory=How)
    scoring: Rule = "legal"
    calibration: Calibration | None = None
    option_mass: bool = False
    abstain_below: float = 0.0
    think: int = 0
    stream: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_joint(self) -> bool:
        """Whether joint scores are needed, which require whole rows of logits."""
        if self.calibration is not None:
            return self.calibration.needs_whole_rows
        return self.scoring != "legal"

    @property
    def may_search(self) -> bool:
        """Whether the most probable options can be found without the scores of all."""
        return self.scoring == "legal" and self.calibration is None and not self.option_mass


def settings_for(
    session: Session,
    questions: Sequence[Question],
    *,
    labels: LabelStyle | None,
    orders: int | None,
    prompt: WritePrompt | None,
    scoring: Rule | None,
    calibration: Calibration | str | os.PathLike[str] | None,
    option_mass: bool,
    abstain_below: float,
    stream: Mapping[str, Any],
    think: int = 0,
) -> Settings:
    """Check the settings of a decision.

    A setting that is None comes from the calibration. Without a calibration it has its default.

    Raises
    ------
    InvalidArgumentError
        If a setting is out of range, or if the calibration is for another model, other questions or
        other settings. Also if `think` is not 0 and there is a calibration (calibrations are fitted
        without reasoning) or the model is a decision model (it cannot reason).
    """
    check_keywords("decide", stream, {"cache"}, OWN_KEYWORDS)
    check_flag("option_mass", option_mass)
    abstain_below = check_number("abstain_below", abstain_below, 0, 1)
    calibration = as_calibration(calibration)
    how, rule = how_asked(calibration, labels=labels, orders=orders, rule=scoring, prompt=prompt)
    if calibration is not None:
        if session not in _FINGERPRINTS:
            _FINGERPRINTS[session] = fingerprint_of(session)
        calibration.check(_FINGERPRINTS[session], questions, how)
    if check_whole("think", think, 0):
        if calibration is not None:
            raise InvalidArgumentError(
                "think must be 0 with a calibration, because calibrations are fitted without "
                "reasoning"
            )
        if decision_model_of(session) is not None:
            raise InvalidArgumentError("think must be 0 for a decision model, which cannot reason")
    return Settings(how, rule, calibration, option_mass, abstain_below, think, stream)


class DecisionRun:
    """Prepare the scoring request of a decision, and convert its result to answers.

    Attributes
    ----------
    args : ScoreArgs
        The request for :class:`~eliza_ffi.session.scoring.ScoreRun`.
    """

    def __init__(
        self, session: Session, given: Any, questions: Sequence[Question], settings: Settings
    ) -> None:
        self._begin = time.perf_counter()
        self._questions = questions
        self._settings = settings
        self._expanded = [expand(question) for question in questions]
        self._asking = asking_of(
            session,
            given,
            [each for expanded in self._expanded for each in expanded],
            settings.how,
            joint=settings.needs_joint,
            option_mass=settings.option_mass,
            stream=settings.stream,
            may_search=settings.may_search,
        )
        self.args = self._asking.args

    def decision(self, result: ScoreResult) -> Decision:
        """Convert the scores to answers."""
        settings = self._settings
        parts = iter(self._parts(result))
        answers = [
            collect(question, [next(parts) for _ in expanded])
            for question, expanded in zip(self._questions, self._expanded, strict=True)
        ]
        usage = DecisionUsage(
            input_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            passes=result.forward_passes,
            seconds=time.perf_counter() - self._begin,
        )
        return Decision(tuple(answers), usage, settings.calibration is not None)

    def _parts(self, result: ScoreResult) -> Iterator[PredicateAnswer | ChoiceAnswer | ScoreAnswer]:
        """Yield the answers to the questions with one answer each."""
        settings, abstain_below = self._settings, self._settings.abstain_below
        every = itertools.chain.from_iterable(self._expanded)
        for place, (each, found) in enumerate(zip(every, self._asking.scores(result), strict=True)):
            if isinstance(found, Ranking):
                assert isinstance(each, Choice)
                yield ranked_answer(each, found, abstain_below)
                continue
            if settings.calibration is None:
                logs = found.log_probabilities(settings.scoring)
            else:
                logs = settings.calibration.apply(place, found)
            if isinstance(each, Choice) and each.has_many_options:
                yield ranked_answer(each, ranking_of(logs, each.top), abstain_below)
            else:
                yield answer_of(each, np.exp(logs).tolist(), found.option_mass, abstain_below)
