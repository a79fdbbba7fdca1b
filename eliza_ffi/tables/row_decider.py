"""Decide the rows of a table with one model, all with the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..decisions.answers import Decision
from ..decisions.deciding import DecideSettings, DecisionPlan, settings_for
from ..decisions.doubts import Doubts
from ..decisions.learning.calibration import Calibration
from ..decisions.learning.drift import RecentAnswers, reasons_to_doubt_drift
from ..decisions.learning.input_prior import fit_input_prior, with_input_prior
from ..decisions.prompts import as_one_input
from ..decisions.questions import Question
from ..decisions.reasoning import decision_task, inputs_at_once
from ..session.task import Task
from .columns import AnswerCounts

TEST_INPUT = "a test"


class RowDecider:
    """Answer the same questions about many inputs, several at the same time.

    `settings` are the keyword arguments of :meth:`~eliza_ffi.Model.decide`. With
    ``prior="inputs"``, call :meth:`fit_prior` or :meth:`use_prior` before the first row. `sample`
    has some of the inputs, whose tokens are counted for ``prompt_order="auto"``.

    `described` has everything that affects the answers, except the model and a prior of the inputs,
    as JSON. `at_once` is the number of inputs to decide at the same time. Questions or settings
    that do not suit the model raise here, because then every row would fail.
    """

    def __init__(
        self,
        model: Any,
        questions: Sequence[Question],
        settings: DecideSettings | Mapping[str, Any],
        sample: Sequence[Any] | None,
    ) -> None:
        self._model, self._questions = model, questions
        self._given: Mapping[str, Any] = settings
        self._sample = sample
        self.prior: Calibration | None = None
        is_from_inputs = settings.get("prior") == "inputs"
        self._use({**settings, "prior": None} if is_from_inputs else settings)
        own = self._plan.settings
        self.described = own.described()
        self.at_once = inputs_at_once(model.session, own.think, None)
        test = replace(own, think=min(own.think, 1), think_below=1.0, think_share=1.0)
        plan = DecisionPlan(model.session, questions, test)
        decision_task(model.session, TEST_INPUT, plan).run()  # without counting it

    def fit_prior(self, inputs: Sequence[Any]) -> None:
        """Divide the probabilities of all rows by a prior of these inputs."""
        self.use_prior(fit_input_prior(self._model, self._questions, inputs, self._given))

    def use_prior(self, prior: Calibration) -> None:
        """Divide the probabilities of all rows by a prior that was fitted before."""
        self.prior = prior
        own = ("allowed_probability", "min_probability", "abstain", "think", "cache")
        kept = {name: self._given[name] for name in own if name in self._given}
        self._use({"calibration": prior, **kept})

    def resume(self, counts: AnswerCounts) -> None:
        """Let the rows that are decided count for the share of rows that may think."""
        self._plan.settings.budget.add(counts.rows, counts.reasoned)

    def decide(self, input: Any) -> Decision:
        """Answer the questions about the input of a row. Several threads may call this."""
        decision: Decision = self.task(input, self._doubts).run()
        if self._recent is not None:
            self._recent.add(decision)
        return decision

    def task(self, input: Any, doubts: Doubts | None = None) -> Task[Decision]:
        return decision_task(self._model.session, as_one_input(input), self._plan, doubts=doubts)

    def reasons_to_doubt(self) -> list[str]:
        return self._doubts.reasons() + reasons_to_doubt_drift(self.drift() or {})

    def drift(self) -> dict[str, dict[str, Any]] | None:
        return None if self._recent is None else self._recent.drift()

    def _use(self, given: Mapping[str, Any]) -> None:
        session, questions = self._model.session, self._questions
        own = with_input_prior(self._model, questions, None, given)
        settings = settings_for(session, questions, own, inputs=self._sample)
        self._plan = DecisionPlan(session, questions, settings)
        self._doubts = Doubts(self._plan)
        calibration = settings.calibration
        self._recent = None if calibration is None else RecentAnswers(calibration, keeps_all=True)
