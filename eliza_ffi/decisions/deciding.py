"""Convert an input and questions to a scoring request, and the scores to answers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._lazy import once_for_each
from ..checks import check_flag, check_number, check_one_of, check_whole
from ..errors import InvalidArgumentError
from ..library.protocol import Ranking
from ..session.options import CacheOptions
from ..session.requests import check_keywords
from ..session.run import Run
from ..session.scoring import ScoreResult, ranking_of
from .answers import (
    Decision,
    DecisionUsage,
    SingleAnswer,
    answer_of,
    collect,
    expand,
    ranked_answer,
)
from .asking import EVERY_ORDER, asking_of, orders_of, score_run
from .auto_prompts import settings_of_prompts
from .fingerprint import fingerprint_of
from .learning.calibration import Calibration, as_calibration, rule_of, wording_hash
from .learning.stopping import AT_ONCE, first_enough, has_enough_orders
from .models.model_asking import decision_model_of
from .prompt_settings import PromptArguments, PromptSettings
from .questions import Choice, Question
from .scoring import Array, QuestionScores, Rule
from .think_budget import ThinkBudget, certainty

if TYPE_CHECKING:
    from ..session.session import Session

METHOD_KEYWORDS = {"timeout", "progress", "max_concurrency", "return_exceptions"}
"""Keywords of the methods themselves, to suggest if one is misspelt."""

_fingerprint_of = once_for_each(fingerprint_of)


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a decision.

    Attributes
    ----------
    think : int
        Maximum number of tokens of the reasoning before the questions; 0 = no reasoning.
    think_below : float
        Reason only if an answer has a lower probability than this; 1 = always.
    think_share : float
        The largest share of the decisions that may reason.
    budget : ThinkBudget
        Counts these decisions.
    stream : mapping
        The settings of the stream: slot and cache.
    """

    how: PromptSettings = field(default_factory=PromptSettings)
    scoring: Rule = "constrained"
    calibration: Calibration | None = None
    allowed_probability: bool = False
    min_probability: float = 0.0
    think: int = 0
    stream: Mapping[str, Any] = field(default_factory=dict)
    abstain: Literal["risk"] | None = None
    think_below: float = 1.0
    think_share: float = 1.0
    budget: ThinkBudget = field(default_factory=ThinkBudget, compare=False)

    @property
    def thinks_sometimes(self) -> bool:
        """Whether only some decisions reason."""
        return bool(self.think) and (self.think_below, self.think_share) != (1.0, 1.0)

    def thinks_after(self, decision: Decision) -> bool:
        """Count a decision without reasoning, and return whether the model should reason."""
        is_uncertain = self.think_below == 1 or certainty(decision) < self.think_below
        return self.budget.allows(is_uncertain, self.think_share)

    @property
    def needs_joint(self) -> bool:
        """Whether joint scores are needed, which require whole rows of logits."""
        if self.calibration is not None:
            return self.calibration.needs_whole_rows
        return self.scoring != "constrained"

    def described(self) -> dict[str, Any]:
        """Return everything that affects the answers to a question, as JSON."""
        how, calibration = self.how, self.calibration
        shots = [[shot.text, shot.option] for _, each in how.examples for shot in each]
        return {
            "wording": wording_hash(how.prompt),
            "answer_style": how.answer_style,
            "orders": how.orders,
            "prompt_order": how.order,
            "prompt_format": how.format,
            "prior": how.prior,
            "examples": shots,
            "scoring": self.scoring,
            "calibration": None if calibration is None else calibration.digest,
            "allowed_probability": self.allowed_probability,
            "min_probability": self.min_probability,
            "abstain": self.abstain,
            "think": self.think,
            "think_below": self.think_below,
            "think_share": self.think_share,
        }

    @property
    def may_search(self) -> bool:
        """Whether the most probable options can be found without the scores of all."""
        return (
            self.scoring == "constrained"
            and self.calibration is None
            and not self.allowed_probability
        )


class DecideSettings(PromptArguments, total=False):
    """The keyword arguments of :meth:`Model.decide <eliza_ffi.Model.decide>`."""

    examples: Any
    scoring: Rule | None
    calibration: Calibration | str | os.PathLike[str] | None
    allowed_probability: bool
    min_probability: float
    abstain: Literal["risk"] | None
    think: int
    think_below: float
    think_share: float
    cache: CacheOptions | None


def settings_for(
    session: Session,
    questions: Sequence[Question],
    given: Mapping[str, Any],
    *,
    method: str = "decide",
    inputs: Sequence[Any] | None = None,
) -> Settings:
    """Check the settings of a decision.

    A setting that is None comes from the calibration. Without a calibration it has its default.

    Parameters
    ----------
    given
        The keyword arguments of `method`, as in :class:`DecideSettings`.
    inputs
        A sample of the inputs if the questions are asked about several, otherwise None.

    Raises
    ------
    InvalidArgumentError
        If a setting is out of range, or if the calibration is for another model, other questions or
        other settings. Also if `think` is not 0 and there is a calibration (calibrations are fitted
        without reasoning) or the model is a decision model (it cannot reason), and if `abstain` is
        ``"risk"`` without a calibration that was fitted with a risk.
    """
    check_keywords(method, given, DecideSettings.__annotations__.keys(), METHOD_KEYWORDS)
    allowed_probability = check_flag("allowed_probability", given.get("allowed_probability", False))
    min_probability = check_number("min_probability", given.get("min_probability", 0.0), 0, 1)
    calibration = as_calibration(given.get("calibration"))
    rule = rule_of(calibration, given.get("scoring"))
    prompts = {name: given[name] for name in PromptArguments.__annotations__ if name in given}
    how = settings_of_prompts(
        session,
        questions,
        prompts,
        examples=given.get("examples"),
        calibration=calibration,
        inputs=inputs,
    )
    if calibration is not None:
        calibration.check(_fingerprint_of(session), questions, how)
    decision_model = decision_model_of(session) if how.prompt is None else None
    if allowed_probability and decision_model is not None and decision_model.marked is not None:
        raise InvalidArgumentError(
            f"allowed_probability is not available for a decision model of type "
            f"{decision_model.type}, which has no labels"
        )
    abstain = given.get("abstain")
    if abstain is not None:
        check_one_of("abstain", abstain, ("risk",))
        if calibration is None or not calibration.can_certify:
            raise InvalidArgumentError(
                'abstain="risk" needs a calibration with a certified threshold: pass risk= to '
                "calibrate()"
            )
    think = given.get("think", 0)
    below = check_number("think_below", given.get("think_below", 1.0), 0, 1)
    share = check_number("think_share", given.get("think_share", 1.0), 0, 1)
    cache = given.get("cache")
    stream = {} if cache is None else {"cache": cache}
    if check_whole("think", think, 0):
        if calibration is not None:
            raise InvalidArgumentError(
                "think must be 0 with a calibration, because calibrations are fitted without "
                "reasoning"
            )
        if decision_model_of(session) is not None:
            raise InvalidArgumentError("think must be 0 for a decision model, which cannot reason")
    elif (below, share) != (1.0, 1.0):
        raise InvalidArgumentError("think_below and think_share need think: the number of tokens")
    return Settings(
        how=how,
        scoring=rule,
        calibration=calibration,
        allowed_probability=allowed_probability,
        min_probability=min_probability,
        think=think,
        stream=stream,
        abstain=abstain,
        think_below=below,
        think_share=share,
        budget=ThinkBudget.of(session) if inputs is None else ThinkBudget(),
    )


class DecisionPlan:
    """The scoring request of a decision, which converts its result to answers.

    Parameters
    ----------
    part
        Which orders of the options to ask about.

    Attributes
    ----------
    args : ScoreArgs
        The request for :class:`~eliza_ffi.session.scoring.Scoring`.
    """

    def __init__(
        self,
        session: Session,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        part: slice = EVERY_ORDER,
    ) -> None:
        self._begin = time.perf_counter()
        self._questions = questions
        self._settings = settings
        self._expanded = [expand(question) for question in questions]
        every = [each for expanded in self._expanded for each in expanded]
        calibration = settings.calibration
        self._asking = asking_of(
            session,
            given,
            every,
            settings.how,
            joint=settings.needs_joint,
            allowed_probability=settings.allowed_probability,
            stream=settings.stream,
            may_search=settings.may_search,
            hidden=None if calibration is None else calibration.wanted_hidden,
            part=part,
        )
        self.args = self._asking.args

    def scores(self, result: ScoreResult) -> tuple[QuestionScores | Ranking, ...]:
        """Return the scores of each question with one answer."""
        return self._asking.scores(result)

    def decision(
        self, result: ScoreResult, scores: Sequence[QuestionScores | Ranking] | None = None
    ) -> Decision:
        """Convert the scores to answers: those of the result, or else other ones."""
        settings = self._settings
        parts = iter(self._parts(self.scores(result) if scores is None else scores))
        answers = [
            collect(question, [next(parts) for _ in expanded])
            for question, expanded in zip(self._questions, self._expanded, strict=True)
        ]
        usage = DecisionUsage(
            input_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            forward_passes=result.forward_passes,
            seconds=time.perf_counter() - self._begin,
        )
        return Decision(tuple(answers), usage, settings.calibration is not None)

    def _parts(self, scores: Sequence[QuestionScores | Ranking]) -> Iterator[SingleAnswer]:
        """Yield the answers to the questions with one answer each."""
        settings, min_probability = self._settings, self._settings.min_probability
        every = itertools.chain.from_iterable(self._expanded)
        for place, (each, found) in enumerate(zip(every, scores, strict=True)):
            if isinstance(found, Ranking):
                assert isinstance(each, Choice)
                yield ranked_answer(each, found, min_probability)
                continue
            if settings.calibration is None:
                logs = found.log_probabilities(settings.scoring)
            else:
                logs = settings.calibration.apply(place, found)
            p = np.exp(logs)
            answer: SingleAnswer
            if isinstance(each, Choice) and each.has_many_options:
                answer = ranked_answer(each, ranking_of(logs, each.top), min_probability)
            else:
                answer = answer_of(each, p.tolist(), found.allowed_probability, min_probability)
            yield self._certified(place, answer, p)

    def _certified(self, place: int, answer: SingleAnswer, p: Array) -> SingleAnswer:
        """Add to an answer what the calibration knows about its risk."""
        calibration = self._settings.calibration
        fitted = None if calibration is None else calibration.questions[place]
        if fitted is None or fitted.threshold is None or fitted.sets is None:
            return answer
        least = fitted.threshold.threshold
        is_certified = least is not None and float(p.max()) >= least
        abstained = answer.abstained or (self._settings.abstain == "risk" and not is_certified)
        values = fitted.values
        (places,) = fitted.sets_of(p[None])
        return replace(
            answer,
            abstained=abstained,
            certified=is_certified,
            set=tuple(values[i] for i in places),
        )


def decision_runs(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
    at_once: int | None = None,
) -> Generator[Run[ScoreResult], ScoreResult, Decision]:
    """Yield the runs of a decision, whose results are sent, and return the decision.

    There is one run, or one for each :data:`AT_ONCE` orders until all questions have enough.
    `at_once` is as for :func:`~eliza_ffi.decisions.asking.score_run`.
    """
    calibration = settings.calibration
    if calibration is None or not calibration.stops_early:
        plan = DecisionPlan(session, given, questions, settings)
        return plan.decision((yield score_run(session, plan.args, at_once)))
    found: list[Any] = []
    read: list[QuestionScores] = []
    first: DecisionPlan | None = None
    total: ScoreResult | None = None
    n_orders = [
        len(orders_of(each.asked, calibration.orders)) if each.scores_options else 0
        for each in calibration.questions
    ]
    for begin in range(0, max(n_orders), AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        plan = DecisionPlan(session, given, questions, settings, part)
        first = first or plan
        result = yield score_run(session, plan.args, at_once)
        new = plan.scores(result)
        found = [a + b for a, b in zip(found, new, strict=True)] if found else list(new)
        total = result if total is None else _sum(total, result)
        pairs = zip(calibration.questions, found, strict=True)
        # A question that ended earlier keeps its answer while the others go on.
        read = [first_enough(fitted, scores, calibration.rule) for fitted, scores in pairs]
        if all(
            len(each.orders) == n or has_enough_orders(fitted, each, calibration.rule)
            for fitted, each, n in zip(calibration.questions, read, n_orders, strict=True)
        ):
            break
    assert first is not None and total is not None
    return first.decision(total, read)


def _sum(a: ScoreResult, b: ScoreResult) -> ScoreResult:
    """Return a result with the counts of both."""
    return replace(
        a,
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        forward_passes=-1 if b.forward_passes < 0 else a.forward_passes + b.forward_passes,
    )
