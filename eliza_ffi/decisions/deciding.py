"""One decision: an input and questions, to be run by whoever has a slot, and the answers."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import check_flag, check_number
from ..session.requests import check_keywords
from ..session.scoring import ScoreResult
from .answers import Decision, DecisionUsage, answer_of, collect, expand
from .asking import How, WritePrompt, asking_of
from .calibration import Calibration, as_calibration, how_asked
from .fingerprint import fingerprint_of
from .prompts import LabelStyle
from .questions import Question
from .scoring import Rule

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = ["DecisionRun", "Settings", "settings_for"]

OWN_KEYWORDS = frozenset(
    (
        *("labels", "orders", "prompt", "scoring", "calibration", "option_mass", "abstain_below"),
        *("wait", "progress", "max_concurrency", "return_exceptions"),
    )
)
"""What a misspelt keyword may have meant, beside the settings of a stream."""


_FINGERPRINTS: weakref.WeakKeyDictionary[Session, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Settings:
    """How questions are put and their answers scored.

    Attributes
    ----------
    how : How
    scoring : str
    calibration : Calibration or None
    option_mass : bool
    abstain_below : float
    stream : mapping
        Settings of the stream: slot and cache.
    """

    how: How = field(default_factory=How)
    scoring: Rule = "legal"
    calibration: Calibration | None = None
    option_mass: bool = False
    abstain_below: float = 0.0
    stream: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_joint(self) -> bool:
        """Whether whole rows of logits are needed at every token of every label."""
        if self.calibration is not None:
            return self.calibration.needs_whole_rows
        return self.scoring != "legal"


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
) -> Settings:
    """Return checked settings; what is None is the calibration's, or the default.

    Raises
    ------
    InvalidArgumentError
        If one is out of range, or the calibration is for another model, other questions or another
        way to ask them.
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
    return Settings(how, rule, calibration, option_mass, abstain_below, stream)


class DecisionRun:
    """One decision: what to score for it, and what the scores come to.

    Parameters
    ----------
    session
    given
        The input.
    questions
    settings

    Attributes
    ----------
    args : ScoreArgs
        What a :class:`~eliza_ffi.session.scoring.ScoreRun` is handed.
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
        )
        self.args = self._asking.args

    def decision(self, result: ScoreResult) -> Decision:
        """Return the answers that the scores come to."""
        settings = self._settings
        answers = []
        every = enumerate(self._asking.scores(result))
        for question, expanded in zip(self._questions, self._expanded, strict=True):
            parts = []
            for each in expanded:
                place, scores = next(every)
                if settings.calibration is None:
                    logs = scores.log_probabilities(settings.scoring)
                else:
                    logs = settings.calibration.apply(place, scores)
                parts.append(
                    answer_of(
                        each, np.exp(logs).tolist(), scores.option_mass, settings.abstain_below
                    )
                )
            answers.append(collect(question, parts))
        usage = DecisionUsage(
            input_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            passes=result.forward_passes,
            seconds=time.perf_counter() - self._begin,
        )
        return Decision(tuple(answers), usage, settings.calibration is not None)
