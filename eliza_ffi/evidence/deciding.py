"""Check the settings of decisions, prepare their plans, and convert scores to answers.

A :class:`DecisionPlan` has everything that depends only on the questions, the settings and the
model. A session keeps the plans of recent calls. A call with the same arguments, except for the
input, then only has to tokenize the input.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._lazy import Recent, once_for_each
from ..checks import check_flag, check_number, check_one_of, check_whole, wrong
from ..decisions.answers import (
    Answer,
    Decision,
    DecisionUsage,
    MultiLabelAnswer,
    Passage,
    SingleAnswer,
    answer_of,
    by_name,
    collect,
    expand,
    name_of,
    parts_of,
    ranked_answer,
)
from ..decisions.examples import named_questions
from ..decisions.fingerprint import fingerprint_once
from ..decisions.models.session_models import decision_model_of
from ..decisions.passages import Cut, cuts
from ..decisions.probabilities import Array, log_softmax
from ..decisions.prompt_settings import OptionPrior, PromptArguments, PromptSettings
from ..decisions.prompts import input_text
from ..decisions.questions import MAX_OPTIONS as LISTED_OPTIONS
from ..decisions.questions import Choice, MultiLabel, Question
from ..decisions.wire import as_questions
from ..errors import ChatTemplateError, ElizaError, InvalidArgumentError, NotSupportedError
from ..library.protocol import Ranking
from ..session.options import CacheOptions
from ..session.requests import check_keywords
from ..session.run import Run
from ..session.scoring import ScoreArgs, ScoreResult, ranking_of
from ..session.task import run_on_this_thread
from .auto_prompts import N_SAMPLE, prompt_settings_runs, sample_of
from .calibration import (
    Calibration,
    QuestionCalibration,
    as_calibration,
    scoring_of,
    wording_hash,
)
from .comparing import check_comparable, has_source, only_compares, warn_of_names
from .question_plan import QuestionPlan, Scores, WantedHidden, is_of_row, score_run
from .rewording import N_INPUTS, Recentring, in_other_words, known_recentrings
from .scoring import Prior, QuestionScores, ScoringRule
from .shortlist import Shortlist, check_can_shortlist
from .sources import Evidence

if TYPE_CHECKING:
    from ..session.session import Session

OnScores = Callable[[Sequence[Any], Sequence[Any]], Any]
"""Takes the log-probabilities and the scores of each question."""

logger = logging.getLogger("eliza_ffi")

METHOD_KEYWORDS = {"timeout", "progress", "max_concurrency", "return_exceptions"}
"""Other keyword arguments of the methods, which error messages suggest for misspelt ones."""

MOST_READ = 1.5
"""The most text that a model reads for the passages that an encoder chose, in lengths of the input.
With this limit, an answer with ``explain`` usually takes less than three times as long."""

N_PRIORS = 4
"""The number of labels that are asked to measure the prior of yes and no for all labels."""

MAX_PLANS, MAX_PROMPTS, MAX_OPTIONS = 64, 256, 4096
"""The number of plans that a session keeps, and of prompts and options of each of them."""


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a decision.

    `think` is the maximum number of tokens of the reasoning before the questions. `fitted` is the
    calibration before another wording of the questions changed it. `recentring` re-centres it on
    single inputs. `hidden` has the hidden states to read if the calibration needs none, and
    `stream` the slot and the cache.
    """

    prompts: PromptSettings = field(default_factory=PromptSettings)
    scoring: ScoringRule = "constrained"
    calibration: Calibration | None = None
    allowed_probability: bool = False
    min_probability: float = 0.0
    think: int = 0
    stream: Mapping[str, Any] = field(default_factory=dict)
    abstain: Literal["risk"] | None = None
    fitted: Calibration | None = None
    recentring: Recentring | None = None
    hidden: WantedHidden | None = None
    explain: bool = False

    @property
    def is_calibrated(self) -> bool:
        return self.calibration is not None and not self.calibration.is_prior

    @property
    def needs_full(self) -> bool:
        """Whether full scores are needed, which require whole rows of logits."""
        if self.calibration is not None:
            return self.calibration.needs_whole_rows
        return self.scoring != "constrained"

    def described(self) -> dict[str, Any]:
        """Return everything that affects the answers to a question, as JSON."""
        prompts, calibration = self.prompts, self.fitted
        described = prompts.described()
        del described["prompt"]
        return {
            **described,
            "wording": wording_hash(prompts.prompt),
            "examples": [[shot.text, shot.option] for _, each in prompts.examples for shot in each],
            "scoring": self.scoring,
            "calibration": None if calibration is None else calibration.digest,
            "allowed_probability": self.allowed_probability,
            "min_probability": self.min_probability,
            "abstain": self.abstain,
            "think": self.think,
        }

    @property
    def may_search(self) -> bool:
        """Whether the most probable options can be found without scoring all options."""
        return (
            self.scoring == "constrained"
            and self.calibration is None
            and not self.allowed_probability
        )


class DecideSettings(PromptArguments, total=False):
    """The keyword arguments that :meth:`Model.decide <eliza_ffi.Model.decide>` and others share."""

    examples: Any
    scoring: ScoringRule | None
    calibration: Calibration | str | os.PathLike[str] | None
    allowed_probability: bool
    min_probability: float
    abstain: Literal["risk"] | None
    think: int
    cache: CacheOptions | None


class DecideOptions(DecideSettings, total=False):
    """The keyword arguments of :meth:`Model.decide <eliza_ffi.Model.decide>`."""

    explain: bool
    timeout: float | None


class DecideManyOptions(DecideSettings, total=False):
    """The keyword arguments of :meth:`Model.decide_many <eliza_ffi.Model.decide_many>`."""

    explain: bool
    progress: Callable[[int, int | None], Any] | None
    max_concurrency: int | None
    return_exceptions: bool


def can_abstain(arguments: Mapping[str, Any]) -> bool:
    """Return whether a decision with these keyword arguments can abstain."""
    calibration = arguments.get("calibration")
    fitted = calibration.questions if isinstance(calibration, Calibration) else ()
    reviews = [each.costs.review for each in fitted if each.costs is not None]
    limits = (arguments.get("min_probability") or None, arguments.get("abstain"), *reviews)
    return any(each is not None for each in limits)


def refuse_input_prior(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for ``prior="inputs"``, which needs many inputs."""
    if isinstance(prior := arguments.get("prior"), str) and prior == "inputs":
        raise InvalidArgumentError('prior="inputs" needs several inputs: use decide_many()')


def _settings_runs(
    session: Session,
    questions: Sequence[Question],
    arguments: Mapping[str, Any],
    method: str = "decide",
    inputs: Sequence[Any] | None = None,
) -> Generator[Run[Any], Any, Settings]:
    """Check the keyword arguments of `method`, as in :class:`DecideSettings`.

    A setting that is None comes from the calibration. Without a calibration it has its default.
    `inputs` is a sample of the inputs if the questions are asked about several, otherwise None.

    InvalidArgumentError is raised if a setting is out of range, or the calibration is for another
    model, other questions or other settings. `think` must be 0 with a calibration, which is fitted
    without reasoning, and for a decision model, which cannot reason.
    """
    explains = ("explain",) if method in ("decide", "decide_many") else ()
    known = {*DecideSettings.__annotations__, *explains}
    check_keywords(method, arguments, known, METHOD_KEYWORDS)
    refuse_input_prior(arguments)
    allowed_probability = check_flag(
        "allowed_probability", arguments.get("allowed_probability", False)
    )
    min_probability = check_number("min_probability", arguments.get("min_probability", 0.0), 0, 1)
    fitted = as_calibration(arguments.get("calibration"))
    calibration = None if fitted is None else in_other_words(fitted, questions)
    scoring = scoring_of(calibration, arguments.get("scoring"))
    prompts = yield from prompt_settings_runs(
        session,
        questions,
        {name: arguments[name] for name in PromptArguments.__annotations__ if name in arguments},
        examples=arguments.get("examples"),
        calibration=calibration,
        inputs=inputs,
    )
    if calibration is not None:
        calibration.check(fingerprint_once(session), questions, prompts)
    decision_model = decision_model_of(session) if prompts.prompt is None else None
    if allowed_probability and decision_model is not None and decision_model.marked is not None:
        raise InvalidArgumentError(
            f"allowed_probability is not available for a decision model of type "
            f"{decision_model.type}, which has no labels"
        )
    abstain = arguments.get("abstain")
    if abstain is not None:
        check_one_of("abstain", abstain, ("risk",))
        if calibration is None or not calibration.can_certify:
            raise InvalidArgumentError(
                'abstain="risk" needs a calibration with a certified threshold for these '
                "questions: pass risk= to calibrate()"
            )
    think = arguments.get("think", 0)
    cache = arguments.get("cache")
    stream = {} if cache is None else {"cache": cache}
    think = check_whole("think", think, 0)
    if think:
        if calibration is not None:
            raise InvalidArgumentError(
                "think must be 0 with a calibration, because calibrations are fitted without "
                "reasoning"
            )
        if decision_model_of(session) is not None:
            raise InvalidArgumentError("think must be 0 for a decision model, which cannot reason")
        if only_compares(session):
            raise InvalidArgumentError(
                "think must be 0 for an encoder or a reranker, which cannot generate text"
            )
    explain = check_flag("explain", arguments.get("explain", False))
    if explain:
        _check_explicable(questions, think)
    recentring = None
    if calibration is not None and calibration is not fitted:
        recentring = yield from _recentring_runs(
            session, questions, calibration, prompts, method, inputs
        )
    return Settings(
        prompts=prompts,
        scoring=scoring,
        calibration=calibration,
        allowed_probability=allowed_probability,
        min_probability=min_probability,
        think=think,
        stream=stream,
        abstain=abstain,
        fitted=fitted,
        recentring=recentring,
        explain=explain,
    )


settings_for = run_on_this_thread(_settings_runs)


def _check_explicable(questions: Sequence[Question], think: int) -> None:
    if think:
        raise InvalidArgumentError(
            "explain must be False with think, because the reasoning repeats what the input says"
        )
    for name, each in by_name(questions).items():
        if isinstance(each, Choice) and each.has_many_options:
            raise InvalidArgumentError(
                f"explain must be False for the question {name!r}: expected at most "
                f"{LISTED_OPTIONS} options, got {len(each.options):,}"
            )


def _recentring_runs(
    session: Session,
    questions: Sequence[Question],
    calibration: Calibration,
    prompts: PromptSettings,
    method: str,
    inputs: Sequence[Any] | None,
) -> Generator[Run[Any], Any, Recentring | None]:
    """Warn of another wording, and re-centre the heads on a sample of inputs or on later ones."""
    named = named_questions(questions)
    pairs = zip(named, calibration.questions, strict=True)
    names = ", ".join(repr(name) for (name, _), each in pairs if each.recentred is not None)
    warning = f"{method}: the calibration was fitted for another wording of {names}"
    wanted = calibration.wanted_hidden
    if wanted is None or not calibration.needs_inputs or only_compares(session):
        logger.warning("%s; measure it with evaluate", warning)
        return None
    if inputs is None or len(inputs) < N_INPUTS:
        known, digest = known_recentrings(session), calibration.digest
        if known.find(digest) is None:
            logger.warning("%s; %d inputs re-centre its head", warning, N_INPUTS)
        return known.get(digest, lambda: Recentring(calibration))
    logger.warning("%s; its head is re-centred on %d inputs", warning, N_INPUTS)
    recentring = Recentring(calibration)
    hidden = replace(wanted, is_scored=(False,) * len(named))
    plan = QuestionPlan(session, [question for _, question in named], prompts, hidden=hidden)
    for i, input in enumerate(inputs):
        try:
            request = plan.about(session, input)
            result = yield score_run(session, request.args)
        except ElizaError as error:
            if not is_of_row(error):
                raise
        else:
            recentring.add(str(i), request.scores(result))
    return recentring


class DecisionPlan:
    """Questions and the settings of their decisions, prepared for any input."""

    def __init__(self, session: Session, questions: Sequence[Question], settings: Settings) -> None:
        self.questions, self.settings = questions, settings
        self._many = _many_labels(session, questions, settings)
        self._label_priors: dict[int, tuple[Prior, ...]] = {}  # of yes and no, for these
        self._single = [each for i, each in enumerate(questions) if i not in self._many]
        self.every = [each for question in self._single for each in expand(question)]
        self._parts = list(parts_of(self._single))
        if settings.calibration is None:
            for each in self.every:
                check_comparable(session, each)
        self.compares, self.has_source = only_compares(session), has_source(session)
        if self.has_source:
            warn_of_names(session, self.every)
        self.question_plan = QuestionPlan(
            session,
            self.every,
            settings.prompts,
            full=settings.needs_full,
            stream=settings.stream,
            may_search=settings.may_search,
            hidden=(settings.calibration and settings.calibration.wanted_hidden) or settings.hidden,
        )

    def codes(self, place: int) -> list[str]:
        """Return the options of a question whose names are codes that the model must read."""
        return [] if self.has_source else self.question_plan.codes(place)

    def runs(
        self,
        session: Session,
        input: Any,
        at_once: int | None = None,
        *,
        with_mass: bool = False,
        on_scores: OnScores | None = None,
    ) -> Generator[Run[ScoreResult], ScoreResult, tuple[Decision, list[float | None]]]:
        """Yield the runs of a decision; the caller sends the result of each run.

        `at_once` is as for :func:`.score_run`. `on_scores` is called with the log-probabilities and
        the scores of each question. Returns the decision and, if `with_mass` is true, the allowed
        probability of each question.
        """
        start = time.perf_counter()
        recentring, calibration = self.settings.recentring, self.settings.calibration
        if recentring is not None:
            calibration = recentring.calibration  # the same for the whole decision
        with_mass = with_mass or self.settings.allowed_probability
        passages: Sequence[Cut] = self._passages(input) if self.settings.explain else []
        plan = self.question_plan
        results: list[ScoreResult] = []
        found: list[Scores] = []
        if not self.every:
            input_text(input)  # raises an error if it is malformed
            found = [()]
        elif passages and plan.can_share:
            results, found, passages = yield from self._scored_together(
                session, input_text(input), passages, with_mass, at_once
            )
        else:
            for each in plan.ahead([input, *map(attrgetter("rest"), passages)], lambda text: text):
                wants_mass = with_mass and not results  # only for the whole input
                request = plan.about(session, each, allowed_probability=wants_mass)
                if not results:
                    yield from plan.prior_runs(session)
                results.append((yield score_run(session, request.args, at_once)))
                found.append(request.scores(results[-1]))
        by_text = [
            [self._read(place, scores, calibration) for place, scores in enumerate(each)]
            for each in found
        ]
        read, (logs, *without) = found[0], by_text
        if recentring is not None:
            recentring.add(input_text(input), read)
        if on_scores is not None:
            on_scores(logs, read)
        pairs = enumerate(zip(read, logs, strict=True))
        singles = [self._answer(place, *each, calibration) for place, each in pairs]
        if self.settings.explain:
            singles = [
                replace(single, passages=_effects(passages, logs[i], [each[i] for each in without]))
                for i, single in enumerate(singles)
            ]
        answers: list[Answer] = []
        of_singles = iter(self._parts)
        for i in range(len(self.questions)):
            if i in self._many:
                more, answer = yield from self._shortlisted(session, input, i, with_mass, at_once)
                results += more
            else:
                _, question, parts = next(of_singles)
                answer = singles[parts.start]
                if isinstance(question, MultiLabel):
                    of_labels = singles[parts.start : parts.stop]
                    answer = self._collected(question, parts, of_labels)
            answers.append(answer)
        usage = _usage_of(results, time.perf_counter() - start)
        decision = Decision(tuple(answers), usage, self.settings.is_calibrated)
        if not with_mass:
            return decision, [None] * len(read)
        return decision, [getattr(scores, "allowed_probability", None) for scores in read]

    def _shortlisted(
        self, session: Session, input: Any, i: int, with_mass: bool, at_once: int | None
    ) -> Generator[Run[ScoreResult], ScoreResult, tuple[list[ScoreResult], Answer]]:
        """Yield the runs that find the best labels of a question and ask about each of them."""
        question, settings = self.questions[i], self.settings
        assert isinstance(question, MultiLabel)
        text = input_text(input)
        places, found = yield from self._many[i].runs(session, text, at_once)
        shares = None
        if found.evidence is not None:  # relative to an equal share of the shortlist
            (values,) = found.evidence.scores
            shares = log_softmax(values)[places] + np.log(len(places))
        labels = [question.labels[place] for place in places]
        asked = MultiLabel(question.instructions, labels, question.name)
        if i not in self._label_priors:
            self._label_priors[i] = yield from self._prior_of_labels(session, question)
        plan = self._plan_of_labels(session, asked)
        request = plan.about(session, input, allowed_probability=with_mass)
        result = yield score_run(session, request.args, at_once)
        parts = []
        for k, (predicate, scores) in enumerate(
            zip(asked.predicates, request.scores(result), strict=True)
        ):
            assert isinstance(scores, QuestionScores)
            evidence = None if shares is None else np.array([shares[k], 0.0])
            whole = replace(scores, priors=self._label_priors[i], evidence=evidence)
            p = np.exp(whole.log_probabilities(settings.scoring)).tolist()
            mass = scores.allowed_probability if settings.allowed_probability else None
            parts.append(answer_of(predicate, p, mass, settings.min_probability))
        answer = collect(asked, parts)
        assert isinstance(answer, MultiLabelAnswer)
        return [found, result], replace(answer, n_labels=len(question.labels))

    def _plan_of_labels(
        self, session: Session, question: MultiLabel, prior: OptionPrior = "none"
    ) -> QuestionPlan:
        """Return the plan that asks about each label; the input is read once for all of them."""
        settings = self.settings
        prompts = replace(settings.prompts, order="input-first", prior=prior, examples=())
        # The encoder has compared the labels already.
        asked = [replace(each, label=None) for each in question.predicates]
        full, stream = settings.needs_full, settings.stream
        return QuestionPlan(session, asked, prompts, full=full, stream=stream)

    def _prior_of_labels(
        self, session: Session, question: MultiLabel
    ) -> Generator[Run[ScoreResult], ScoreResult, tuple[Prior, ...]]:
        """Yield the run that measures the prior of yes and no: the mean over a few labels."""
        few = sample_of(question.labels, N_PRIORS)
        sample = MultiLabel(question.instructions, few, question.name)
        plan = self._plan_of_labels(session, sample, self.settings.prompts.prior)
        yield from plan.prior_runs(session)
        return plan.mean_priors()

    def _passages(self, input: Any) -> list[Cut]:
        if not self.question_plan.takes_json or isinstance(input, str):
            return cuts(input)
        raise wrong("input", "a string to explain the answers of a decision model", input)

    def _scored_together(
        self,
        session: Session,
        text: str,
        passages: Sequence[Cut],
        with_mass: bool,
        at_once: int | None,
    ) -> Generator[
        Run[ScoreResult], ScoreResult, tuple[list[ScoreResult], list[Scores], Sequence[Cut]]
    ]:
        """Yield the runs that score an input, and the input without passages, in shared passes.

        Returns the passages that were left out: if there is an encoder, only those it chose.
        """
        plan = self.question_plan
        yield from plan.prior_runs(session)
        results: list[ScoreResult] = []
        if plan.has_cheap_evidence:
            texts = [text, *(each.rest for each in passages)]
            args = ScoreArgs([], evidence=plan.evidence_of(texts))
            results.append((yield score_run(session, args, at_once)))
            passages = _promising(text, passages, results[0].evidence)
        texts = [text, *(each.rest for each in passages)]
        args, read = plan.about_each(session, texts, allowed_probability=with_mass)
        results.append((yield score_run(session, args, at_once)))
        return results, read(results[-1]), passages

    def _read(
        self, place: int, scores: QuestionScores | Ranking, calibration: Calibration | None
    ) -> Array | None:
        """Return the log-probabilities of a question's options; None if they were searched."""
        if isinstance(scores, Ranking):
            return None
        if calibration is None:
            return scores.log_probabilities(self.settings.scoring)
        return calibration.questions[place].apply(scores, calibration.scoring)

    def _answer(
        self,
        place: int,
        scores: QuestionScores | Ranking,
        logs: Array | None,
        calibration: Calibration | None,
    ) -> SingleAnswer:
        settings, question = self.settings, self.every[place]
        if logs is None:
            assert isinstance(question, Choice) and isinstance(scores, Ranking)
            return ranked_answer(question, scores, settings.min_probability)
        assert isinstance(scores, QuestionScores)
        certificate: dict[str, Any] = {}
        if calibration is not None:
            fitted = calibration.questions[place]
            certificate = self._certificate(place, logs, fitted)
            certificate["unfamiliar"] = fitted.is_unfamiliar(scores)
        if isinstance(question, Choice) and question.has_many_options:
            ranking = ranking_of(logs, question.top)
            return ranked_answer(question, ranking, settings.min_probability, **certificate)
        mass = scores.allowed_probability if settings.allowed_probability else None
        p = np.exp(logs).tolist()
        return answer_of(question, p, mass, settings.min_probability, **certificate)

    def _certificate(self, place: int, logs: Array, fitted: QuestionCalibration) -> dict[str, Any]:
        """Return the fields of an answer that depend on the calibration's risk and costs."""
        p, values, found = np.exp(logs)[None], self.every[place].values, dict[str, Any]()
        if (costs := fitted.costs) is not None:
            found["cheapest"] = values[int(costs.answers(p)[0])]
            found["expected_cost"] = float(costs.expected(p)[0])
            found["abstained"] = bool(costs.is_review(p)[0])
        if fitted.threshold is not None:
            found["certified"] = bool(fitted.certifies(p)[0])
            if self.settings.abstain == "risk" and not found["certified"]:
                found["abstained"] = True
        if fitted.sets is not None:
            (places,) = fitted.sets_of(p)
            found["prediction_set"] = tuple(values[i] for i in places)
        return found

    def _collected(
        self, question: MultiLabel, parts: range, answers: Sequence[SingleAnswer]
    ) -> Answer:
        """Return the answer to a question from the answers about its labels."""
        settings, calibration = self.settings, self.settings.calibration
        answer = collect(question, answers)
        found = None if calibration is None else calibration.threshold_of_labels(parts)
        if not isinstance(answer, MultiLabelAnswer) or found is None:
            return answer
        certified = found.threshold is not None and answer.probability >= found.threshold
        if settings.abstain == "risk":  # a certificate of a label says nothing about the others
            least = min(max(each.distribution) for each in answers)
            abstained = not certified or least < settings.min_probability
            answer = replace(answer, abstained=abstained)
        return replace(answer, certified=certified)

    def never_certified(self) -> list[str]:
        """Return the names of the questions without a certified threshold.

        With ``abstain="risk"``, the model abstains from all answers to these questions.
        """
        calibration = self.settings.calibration
        if self.settings.abstain != "risk" or calibration is None:
            return []
        names = []
        for name, _, parts in parts_of(self.questions):
            of_one = calibration.questions[parts[0]].threshold
            found = calibration.threshold_of_labels(parts) or of_one
            if found is not None and found.threshold is None:
                names.append(name)
        return names

    def texts(self, session: Session, input: Any) -> list[str]:
        """Return the texts of the prompts, one for each question and order."""
        return QuestionPlan(session, self.every, self.settings.prompts).texts(session, input)


def _many_labels(
    session: Session, questions: Sequence[Question], settings: Settings
) -> dict[int, Shortlist]:
    """Return how to find the labels to ask, for the questions with more than 255 labels."""
    found = {}
    for i, each in enumerate(questions):
        if not isinstance(each, MultiLabel) or not each.has_many_labels:
            continue
        if settings.calibration is not None or settings.explain or settings.hidden is not None:
            expand(each)  # raises an error
        check_can_shortlist(session, f"the {len(each.labels):,} labels of {name_of(each.name, i)}")
        finder = Choice(each.instructions, each.labels, top=each.shortlist, show_options=False)
        found[i] = Shortlist(session, finder, settings.prompts, settings.stream)
    return found


def _usage_of(results: Sequence[ScoreResult], seconds: float) -> DecisionUsage:
    """Return the sums of the counts of several results."""
    n_tokens, n_cached, n_passes = 0, 0, -1
    for each in results:
        n_tokens += each.prompt_tokens
        n_cached += each.cached_tokens
        if each.forward_passes >= 0:
            n_passes = max(0, n_passes) + each.forward_passes
    return DecisionUsage(n_tokens, n_cached, n_passes, seconds)


def _promising(text: str, passages: Sequence[Cut], evidence: Evidence) -> Sequence[Cut]:
    """Return the passages without which an encoder's answers change most.

    For each passage, a model that generates text must read again all text after the passage.
    :data:`MOST_READ` limits the sum of these texts.
    """
    whole, *rests = [
        [log_softmax(scores) for scores in each.scores if scores is not None]
        for each in evidence.parts(1 + len(passages))
    ]
    changes = [
        sum(float(np.abs(before - after).max()) for before, after in zip(whole, rest, strict=True))
        for rest in rests
    ]
    chosen, left = [], MOST_READ * len(text)
    for i in sorted(range(len(passages)), key=changes.__getitem__, reverse=True):
        if (n_read := len(text) - passages[i].end) <= left:
            chosen.append(i)
            left -= n_read
    return [passages[i] for i in sorted(chosen)]


def _effects(
    passages: Sequence[Cut], whole: Array | None, without: Sequence[Array | None]
) -> tuple[Passage, ...]:
    """Return the effects of passages, from the log-probabilities of a question's options."""
    assert whole is not None  # a searched question cannot be explained
    answer = int(np.argmax(whole))
    effects = []
    for cut, logs in zip(passages, without, strict=True):
        assert logs is not None
        p, effect = math.exp(logs[answer]), float(whole[answer] - logs[answer])
        effects.append(Passage(cut.text, cut.start, cut.end, p, effect))
    return tuple(effects)


def never_certified_text(names: Sequence[str]) -> str:
    return (
        f"the calibration certified no threshold for {', '.join(map(repr, names))}, so that with "
        'abstain="risk" all of these answers are empty; calibrate with more rows or a higher risk'
    )


def plan_runs(
    session: Session,
    questions: Any,
    arguments: Mapping[str, Any],
    method: str = "decide",
    inputs: Iterable[Any] | None = None,
) -> Generator[Run[Any], Any, DecisionPlan]:
    """Return the plan of a decision, which is kept for later calls with equal arguments.

    `arguments` has the keyword arguments of `method`, and `inputs` the inputs if the questions are
    asked about several. Yields the runs that the settings need.
    """
    _ = session.ctx  # raises if the model is closed or belongs to the parent process
    asked = as_questions(questions)
    key = None
    if inputs is None:
        plans = _plans_of(session)
        key = plans.key(asked, arguments, method)
        try:
            known = None if key is None else plans.find(key)
        except TypeError:  # an argument has no hash
            key = known = None
        if known is not None:
            return known
    sample = sample_of(inputs, N_SAMPLE) if isinstance(inputs, Sequence) else None
    settings = yield from _settings_runs(session, asked, arguments, method, sample)
    plan = DecisionPlan(session, asked, settings)
    if inputs is not None and (names := plan.never_certified()):
        logger.warning("%s: %s", method, never_certified_text(names))
    if inputs is not None:  # otherwise several inputs at once would measure them
        yield from plan.question_plan.prior_runs(session)
    return plan if key is None else plans.get(key, lambda: plan)


plan_of = run_on_this_thread(plan_runs)


class _Plans(Recent[DecisionPlan]):
    """The plans of a model's recent decisions."""

    def __init__(self, session: Session) -> None:
        super().__init__(MAX_PLANS)
        # The plans of a decision model also depend on the sources of the questions.
        self._can_keep = decision_model_of(session) is None
        self.reads_clock = _reads_clock(session)

    def key(
        self, asked: tuple[Question, ...], arguments: Mapping[str, Any], method: str
    ) -> tuple[Hashable, ...] | None:
        """Return the key of a plan: everything that it depends on.

        None if it depends on files, or has too many prompts to keep.
        """
        calibration = arguments.get("calibration")
        depends_on_file = isinstance(calibration, str | os.PathLike)
        if depends_on_file or arguments.get("examples") is not None or not self._can_keep:
            return None
        orders = arguments.get("orders")
        if orders is None:
            orders = getattr(calibration, "orders", 1)
        n_asked = sum([each.n_asked if isinstance(each, MultiLabel) else 1 for each in asked])
        options = [value for each in asked for value in each.values]
        is_large = len(options) > MAX_OPTIONS
        if is_large or not isinstance(orders, int) or n_asked * orders > MAX_PROMPTS:
            return None
        # The plan holds its calibration, so no other one has the same id.
        values = {**arguments, "calibration": id(calibration)}.values()
        second = int(time.time()) if self.reads_clock else None
        # True differs from 1, and a member of an enumeration from the string that it is equal to.
        types = map(type, (*options, *arguments.values()))
        return method, asked, second, *arguments, *types, *values


_plans_of = once_for_each(_Plans)


def _reads_clock(session: Session) -> bool:
    """Return whether the chat template writes the time."""
    try:
        source = session.chat().template.source
    except (ChatTemplateError, NotSupportedError):
        return False
    return "strftime_now" in source or "datetime" in source
