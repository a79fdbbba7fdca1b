"""Check the settings of decisions, prepare their plans, and convert scores to answers.

A :class:`DecisionPlan` has everything that depends only on the questions, the settings and the
model. A session keeps the plans of recent calls, so that an equal call only tokenizes its input.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._lazy import Recent, once_for_each
from ..checks import check_flag, check_number, check_one_of, check_whole
from ..errors import ChatTemplateError, InvalidArgumentError, NotSupportedError
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
from .asking import EVERY_ORDER, QuestionPlan, orders_of, score_run
from .auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from .fingerprint import fingerprint_of
from .learning.calibration import Calibration, as_calibration, rule_of, wording_hash
from .learning.input_prior import with_input_prior
from .learning.stopping import AT_ONCE, has_margin
from .models.model_asking import decision_model_of
from .prompt_settings import PromptArguments, PromptSettings
from .prompts import ask
from .questions import Choice, MultiLabel, Question, values_of
from .scoring import Array, QuestionScores, Rule
from .think_budget import ThinkBudget, certainty
from .wire import as_questions

if TYPE_CHECKING:
    from ..session.session import Session

METHOD_KEYWORDS = {"timeout", "progress", "max_concurrency", "return_exceptions"}
"""Keywords of the methods themselves, to suggest if one is misspelt."""

MOST_PLANS, MOST_PROMPTS, MOST_OPTIONS = 64, 256, 4096
"""The number of plans that a session keeps, and of prompts and options of each of them."""

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
        prompts = how.described()
        del prompts["prompt"]
        return {
            **prompts,
            "wording": wording_hash(how.prompt),
            "examples": [[shot.text, shot.option] for _, each in how.examples for shot in each],
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
    """Check the keyword arguments of `method`, as in :class:`DecideSettings`.

    A setting that is None comes from the calibration. Without a calibration it has its default.
    `inputs` is a sample of the inputs if the questions are asked about several, otherwise None.

    InvalidArgumentError is raised if a setting is out of range, or the calibration is for another
    model, other questions or other settings. `think` must be 0 with a calibration, which is fitted
    without reasoning, and for a decision model, which cannot reason. ``abstain="risk"`` needs a
    calibration that was fitted with a risk.
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
    """Questions and the settings of their decisions, prepared for any input."""

    def __init__(self, session: Session, questions: Sequence[Question], settings: Settings) -> None:
        self.questions, self.settings = questions, settings
        self._expanded = [expand(question) for question in questions]
        self.every = [each for expanded in self._expanded for each in expanded]
        self._stages: dict[int, QuestionPlan] = {}
        self.stage(session, 0)

    @property
    def questions_text(self) -> str:
        return "\n\n".join(ask(each).text for each in self.every)

    def stage(self, session: Session, begin: int) -> QuestionPlan:
        """Return the plan for the orders from `begin` on: :data:`AT_ONCE` if they may end early."""
        settings, calibration = self.settings, self.settings.calibration
        stops_early = calibration is not None and calibration.stops_early
        if begin not in self._stages:
            self._stages[begin] = QuestionPlan(
                session,
                self.every,
                settings.how,
                joint=settings.needs_joint,
                stream=settings.stream,
                may_search=settings.may_search,
                hidden=None if calibration is None else calibration.wanted_hidden,
                part=slice(begin, begin + AT_ONCE) if stops_early else EVERY_ORDER,
            )
        return self._stages[begin]

    def runs(
        self, session: Session, given: Any, at_once: int | None = None, *, with_mass: bool = False
    ) -> Generator[Run[ScoreResult], ScoreResult, tuple[Decision, list[float | None]]]:
        """Yield the runs of a decision, whose results are sent.

        There is one run, or one for each :data:`AT_ONCE` orders until all questions have enough.
        `at_once` is as for :func:`~eliza_ffi.decisions.asking.score_run`. Returns the decision, and
        the allowed probability of each question, which `with_mass` requests.
        """
        start = time.perf_counter()
        with_mass = with_mass or self.settings.allowed_probability
        total: ScoreResult | None = None
        found: list[Any] = []
        read: list[Any] = [None] * len(self.every)
        logs: list[Array | None] = [None] * len(self.every)
        for begin in itertools.count(0, AT_ONCE):
            asking = self.stage(session, begin).about(session, given, allowed_probability=with_mass)
            result = yield score_run(session, asking.args, at_once)
            new = asking.scores(result)
            found = [a + b for a, b in zip(found, new, strict=True)] if found else list(new)
            total = result if total is None else _sum(total, result)
            for place, scores in enumerate(found):
                # A question that ended earlier keeps its answer while the others go on.
                if read[place] is None:
                    logs[place], is_over = self._read(place, scores)
                    read[place] = scores if is_over else None
            if None not in read:
                break
        assert total is not None
        usage = DecisionUsage(
            input_tokens=total.prompt_tokens,
            cached_tokens=total.cached_tokens,
            forward_passes=total.forward_passes,
            seconds=time.perf_counter() - start,
        )
        singles = iter(map(self._answer, range(len(read)), read, logs))
        answers = [
            collect(question, list(itertools.islice(singles, len(expanded))))
            for question, expanded in zip(self.questions, self._expanded, strict=True)
        ]
        decision = Decision(tuple(answers), usage, self.settings.calibration is not None)
        return decision, [getattr(scores, "allowed_probability", None) for scores in read]

    def _read(self, place: int, scores: QuestionScores | Ranking) -> tuple[Array | None, bool]:
        """Return the log-probabilities of a question's options, and whether they are final."""
        if isinstance(scores, Ranking):
            return None, True
        calibration = self.settings.calibration
        if calibration is None:
            return scores.log_probabilities(self.settings.scoring), True
        fitted = calibration.questions[place]
        logs = fitted.apply(scores, calibration.rule)
        n_orders = len(orders_of(fitted.asked, calibration.orders)) if fitted.scores_options else 0
        return logs, len(scores.orders) == n_orders or has_margin(fitted, logs)

    def _answer(
        self, place: int, scores: QuestionScores | Ranking, logs: Array | None
    ) -> SingleAnswer:
        settings, question = self.settings, self.every[place]
        if logs is None:
            assert isinstance(question, Choice) and isinstance(scores, Ranking)
            return ranked_answer(question, scores, settings.min_probability)
        certificate = self._certificate(place, logs)
        if isinstance(question, Choice) and question.has_many_options:
            ranking = ranking_of(logs, question.top)
            return ranked_answer(question, ranking, settings.min_probability, **certificate)
        assert isinstance(scores, QuestionScores)
        mass = scores.allowed_probability if settings.allowed_probability else None
        p = np.exp(logs).tolist()
        return answer_of(question, p, mass, settings.min_probability, **certificate)

    def _certificate(self, place: int, logs: Array) -> dict[str, Any]:
        """Return what the calibration knows about the risk of an answer, as fields of it."""
        calibration = self.settings.calibration
        fitted = None if calibration is None else calibration.questions[place]
        if fitted is None or fitted.threshold is None or fitted.sets is None:
            return {}
        p = np.exp(logs)
        least = fitted.threshold.threshold
        certified = least is not None and float(p.max()) >= least
        (places,) = fitted.sets_of(p[None])
        return {
            "abstained": self.settings.abstain == "risk" and not certified,
            "certified": certified,
            "set": tuple(fitted.values[i] for i in places),
        }

    def texts(self, session: Session, given: Any) -> list[str]:
        """Return the texts of the prompts, one for each question and order."""
        return QuestionPlan(session, self.every, self.settings.how).texts(session, given)


def _sum(a: ScoreResult, b: ScoreResult) -> ScoreResult:
    """Return a result with the counts of both."""
    return replace(
        a,
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        forward_passes=-1 if b.forward_passes < 0 else a.forward_passes + b.forward_passes,
    )


def plan_of(
    model: Any,
    questions: Any,
    given: Mapping[str, Any],
    method: str = "decide",
    inputs: Iterable[Any] | None = None,
) -> DecisionPlan:
    """Return the plan of a decision, which is kept for the next one with equal arguments.

    `given` has the keyword arguments of `method`, and `inputs` the inputs if the questions are
    asked about several.
    """
    session: Session = model.session
    _ = session.ctx  # raises if the model is closed or belongs to the parent process
    asked = as_questions(questions)

    def make() -> DecisionPlan:
        own = with_input_prior(model, asked, inputs, given)
        sample = sample_of(inputs, N_SAMPLE) if isinstance(inputs, Sequence) else None
        settings = settings_for(session, asked, own, method=method, inputs=sample)
        return DecisionPlan(session, asked, settings)

    key = None if inputs is not None else _key(session, asked, given)
    return make() if key is None else _known_plans(session).get((method, *key), make)


def _key(
    session: Session, asked: tuple[Question, ...], given: Mapping[str, Any]
) -> tuple[Hashable, ...] | None:
    """Return what a plan depends on.

    None if it depends on files, cannot be compared, or has too many prompts to keep.
    """
    depends_on_file = isinstance(given.get("calibration"), str | os.PathLike)
    prior = given.get("prior")
    is_plain = prior is None or (isinstance(prior, str) and prior in ("auto", "options", "none"))
    if depends_on_file or not is_plain or given.get("examples") is not None:
        return None
    if decision_model_of(session) is not None:  # it also depends on the sources of the questions
        return None
    orders = given.get("orders")
    if orders is None:
        orders = getattr(given.get("calibration"), "orders", 1)
    n_asked = sum([len(each.labels) if isinstance(each, MultiLabel) else 1 for each in asked])
    options = [option for each in asked for option in values_of(each)]
    is_large = len(options) > MOST_OPTIONS
    if is_large or not isinstance(orders, int) or n_asked * orders > MOST_PROMPTS:
        return None
    # The plan holds its calibration, so no other one has the same id.
    values = [id(value) if isinstance(value, Calibration) else value for value in given.values()]
    second = int(time.time()) if _reads_clock(session) else None
    # True differs from 1, and a member of an enumeration from the string that it is equal to.
    key = (asked, second, *given, *map(type, (*options, *given.values())), *values)
    try:
        hash(key)
    except TypeError:
        return None
    return key


@once_for_each
def _known_plans(session: Session) -> Recent[DecisionPlan]:
    return Recent(MOST_PLANS)


@once_for_each
def _reads_clock(session: Session) -> bool:
    try:
        source = session.chat().template.source
    except (ChatTemplateError, NotSupportedError):
        return False
    return "strftime_now" in source or "datetime" in source
