"""Fit calibrations to examples, and select a method by cross-validation.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
section 7.10: cross-validation, and the rule to select the simplest model whose error is within one
standard error of the best.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lazy import lazy_property
from ..checks import (
    check_callback,
    check_flag,
    check_kind,
    check_number,
    check_one_of,
    check_several,
    short_repr,
)
from ..decisions.answers import parts_of
from ..decisions.examples import (
    UNLABELLED,
    for_each_question,
    named_questions,
    option_names,
    read_examples,
)
from ..decisions.fingerprint import fingerprint_of
from ..decisions.probabilities import Array, adjusted, log_mean
from ..decisions.prompt_settings import PromptArguments, PromptSettings
from ..decisions.prompts import AskedQuestion, input_text, option_count
from ..decisions.questions import Choice, MultiLabel, Question, Score
from ..decisions.wire import as_questions, question_to
from ..errors import InvalidArgumentError, NotSupportedError
from ..evidence.auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from ..evidence.calibration import (
    METHODS,
    Calibration,
    CalibrationMethod,
    LabelsThreshold,
    QuestionCalibration,
    SuspiciousLabel,
    wording_hash,
)
from ..evidence.cascade import TARGETS, Cascade, CascadeCalibration, Target
from ..evidence.certificates import (
    Automation,
    CertifiedThreshold,
    ConformalSets,
    ThresholdTarget,
    inner_fraction,
    of_answers,
)
from ..evidence.comparing import (
    check_described,
    compared,
    has_source,
    needs_threshold,
    only_compares,
)
from ..evidence.costs import costs_of
from ..evidence.features import Feature, embedding_of
from ..evidence.question_plan import WantedHidden, check_model, feature_reader
from ..evidence.scoring import (
    QuestionScores,
    ScoringRule,
    check_scoring,
    default_weights,
    with_unseen,
)
from ..evidence.self_training import MIN_ROWS, SelfTraining
from ..session.options import CacheOptions
from ..session.requests import check_keywords
from ..terminal import counted
from .cascades import calibrate_cascade, place_of_target
from .examples import OnSkip, Progress, ScoreCache, ask_examples, is_made
from .familiarity import TEXTS, fit_familiarity
from .heads import (
    Group,
    HeadFit,
    Preference,
    candidate_features,
    features_of,
    fit_head,
    folds_of,
    is_close,
)
from .self_training import MAX_ROWS, feature_of_rows, learn_from_rows
from .temperature import fit_temperature
from .thresholds import (
    automation,
    certify,
    certify_options,
    conformal,
    is_bounded,
    looks,
)
from .weights import MAX_WEIGHTED_OPTIONS, fit_weights

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("eliza_ffi")

MIN_REPEATS, MAX_REPEATED = 3, 0.05
"""Warn of an input with at least this many copies, and a larger share of the examples than this."""

SIGNIFICANCE = 0.05
"""Warn of wrong answers of an option if chance explains them with at most this probability."""

LABEL_DEVIATIONS = 1.0
"""Without labelled examples, a label fits an input if its similarity is this many standard
deviations above the mean."""

HALF = "the half of the rows that was not used for the fit"

MIN_TAUGHT = 20
"""With fewer labelled examples, these do not change answers learned from unlabelled rows."""

MIN_EXAMPLES = 10
"""The minimum number of examples per question for a fitted method. Use 100 or more if possible."""


@overload
def calibrate(
    model: Cascade,
    questions: Any,
    rows: Iterable[tuple[Any, Any]] = (),
    *,
    inputs: Iterable[Any] = (),
    confidence: float = 0.9,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    target: Target | None = None,
    at: float = 0.95,
    option: Any = None,
    adaptive: bool = False,
    teach: bool = False,
) -> CascadeCalibration: ...


@overload
def calibrate(
    model: Any,
    questions: Any,
    rows: Iterable[tuple[Any, Any]] = (),
    *,
    inputs: Iterable[Any] = (),
    method: CalibrationMethod | Literal["auto"] = "auto",
    scoring: ScoringRule = "constrained",
    strength: float = 1.0,
    prefer: Preference = "cheap",
    risk: float | Mapping[str, float] | None = None,
    confidence: float = 0.9,
    each_option: bool = False,
    option_risks: Mapping[Any, float] | None = None,
    random: Iterable[int] | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    on_warning: Callable[[str], Any] | None = None,
    examples: Any = None,
    cache: CacheOptions | None = None,
    score_cache: ScoreCache | None = None,
    target: Target | None = None,
    at: float = 0.95,
    option: Any = None,
    costs: Any = None,
    review_cost: float | Mapping[str, float] | None = None,
    **prompts: Unpack[PromptArguments],
) -> Calibration: ...


def calibrate(
    model: Any,
    questions: Any,
    rows: Iterable[tuple[Any, Any]] = (),
    *,
    inputs: Iterable[Any] = (),
    method: CalibrationMethod | Literal["auto"] = "auto",
    scoring: ScoringRule = "constrained",
    strength: float = 1.0,
    prefer: Preference = "cheap",
    risk: float | Mapping[str, float] | None = None,
    confidence: float = 0.9,
    each_option: bool = False,
    option_risks: Mapping[Any, float] | None = None,
    random: Iterable[int] | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    on_warning: Callable[[str], Any] | None = None,
    examples: Any = None,
    cache: CacheOptions | None = None,
    score_cache: ScoreCache | None = None,
    target: Target | None = None,
    at: float = 0.95,
    option: Any = None,
    adaptive: bool = False,
    teach: bool = False,
    costs: Any = None,
    review_cost: float | Mapping[str, float] | None = None,
    **prompts: Unpack[PromptArguments],
) -> Calibration | CascadeCalibration:
    """Fit a calibration to labelled examples, to unlabelled inputs, or to both.

    >>> examples = [("I was charged twice.", "billing"), ("I cannot sign in.", "login")] * 10
    >>> calibration = calibrate(model, Choice("Which team?", ["billing", "login"]), examples)

    Parameters
    ----------
    model
        An open model, or a :class:`~eliza_ffi.Cascade`. For an encoder, which cannot generate text,
        a head is fitted to the mean of its token embeddings. For a cascade, only `inputs`,
        `confidence`, `progress`, `on_skip`, `target`, `at`, `option`, `adaptive` and `teach` are
        supported, and the result is a :class:`~eliza_ffi.evidence.CascadeCalibration`.
    questions
        In any form that :func:`~eliza_ffi.decisions.as_questions` accepts.
    rows
        Pairs of an input and the right answers, in the form that
        :func:`~eliza_ffi.decisions.examples.read_examples` accepts. A question is fitted on the
        examples that answer it. The method ``"batch"`` needs no answers and uses all examples.
    inputs
        Unlabelled inputs. With the method ``"auto"``, a question learns from all inputs without an
        answer to it, including those of `rows`, if there are at least 60 of them or no labelled
        examples; see :mod:`.self_training`. At most 1,000 of them are read. If the checks fail, the
        model's own answers are kept. :attr:`.QuestionCalibration.rows` has the figures. With fewer
        than 10 labelled examples, the probabilities are not calibrated, and with fewer than 20, the
        examples do not change answers that the inputs have taught.
    method
        One of :data:`~eliza_ffi.evidence.METHODS`, or ``"auto"``. For each question ``"auto"``
        selects the first method whose NLL in cross-validation (5 folds, the same in every run) is
        at most one standard error above the lowest, and not above that of ``"frequencies"``.
        Methods with a head come first. ``"auto"`` tries heads if each option has an example, and
        the library can return hidden states.
    scoring
        The scoring rule.
    strength
        The exponent of the baseline that the probabilities are divided by, 0 to 1. A head has no
        baseline.
    prefer
        ``"cheap"`` selects the cheapest head whose NLL is at most one standard error above the
        lowest one. ``"right"`` selects the head with the lowest NLL.
    risk
        The share of wrong answers to accept, above 0 and below 1, or a mapping with the risk of
        each question by name. A random half of the examples is then not used for the fit. It
        determines the lowest probability above which at most this share of the answers is wrong,
        and sets of options that contain the right one with a probability of 1 - risk; see
        :mod:`.thresholds`. Both hold for later inputs from the same source as the examples, with
        repeated inputs as frequent as in the examples, and also for new texts alone.
    confidence
        The minimum probability, over draws of the examples, that `risk` is kept.
    each_option
        Keep `risk` for the inputs of each right option, and not only on average: a rare option can
        have many wrong answers without changing the average. This needs more examples: half of
        those of the rarest option must be enough for a threshold.
    option_risks
        The share of wrong answers to accept among the answers with an option, by option: 0.01 is a
        precision of 99 %. Each option then has a threshold of its own; `risk` is for the other
        options. All hold together with `confidence`.
    random
        With `risk`, the indices of the rows that are a random sample of the inputs, if the other
        rows are not. These rows replace the random half. The rows must be in the order in which
        they were labelled: those after the last of the preset numbers of random rows are not used,
        so that you may stop labelling at any time; see :mod:`.thresholds`.
    progress
        Called with the number of finished inputs and the number of all inputs.
    on_skip
        Called with the index of each example whose input cannot be used, for example because it
        does not fit into the context, and with the reason. None raises an error instead.
    on_warning
        Called with each warning, for example if no answers can be certified. None logs the warning
        to the logger ``eliza_ffi``.
    examples
        Examples to show in the prompts, as for :meth:`~eliza_ffi.Model.decide`.
    cache
        As for :meth:`~eliza_ffi.Model.decide`.
    score_cache
        Scores of earlier calls for this model. Their inputs are not read again. The calibration of
        `score_cache` has the settings of the prompts.
    target, at, option
        Certify, instead of `risk`, that with the probability `confidence`, the ``"accuracy"``, or
        the ``"precision"`` or ``"recall"`` of `option` is at least `at`. Answers below the
        threshold are for review; they are neither right nor missed. A cascade asks the next source
        as rarely as this target, or the ``"agreement"`` with all sources together, allows; see
        :mod:`.cascades`.
    adaptive
        For a cascade whose last source is expensive: ask this source about no more rows than the
        certificate needs. The threshold may be a little higher.
    teach
        For a cascade: fit the first source to the last source's answers to a random half of the
        rows. Only the other half is used to certify.
    costs
        What wrong answers cost, if some errors are worse than others: a mapping from right options
        to mappings from answers to costs, such as ``{"ham": {"spam": 5}}``. A wrong answer that is
        not listed costs 1, a right answer 0. Several questions need a mapping from their names to
        such mappings. The answer is then the option with the least expected cost (:mod:`.costs`),
        and `risk` is the highest mean cost of the certified answers.
    review_cost
        The cost of an answer by a person: the model abstains if its own answer has a larger
        expected cost. A mapping has the cost for each question, by name.
    **prompts
        `answer_style`, `orders`, `prompt`, `prompt_order`, `prompt_format` and `prior` of
        :meth:`~eliza_ffi.Model.decide`. The calibration is valid only for these settings, and
        contains them.

    Raises
    ------
    InvalidArgumentError, ContextFullError
        If an argument is wrong, if a question has fewer than :data:`MIN_EXAMPLES` examples for a
        method that is fitted on them, or if an input cannot be used or does not fit into the
        context. The message names the example.
    """
    if isinstance(model, Cascade):
        of_cascade: Any = {"target": target or "agreement", "at": at, "option": option}
        of_cascade |= {"progress": progress, "on_skip": on_skip, "confidence": confidence}
        of_cascade |= {"adaptive": adaptive, "teach": teach, "fit": calibrate}
        return calibrate_cascade(model, questions, rows, inputs=inputs, **of_cascade)
    for name, is_given in (("adaptive", adaptive), ("teach", teach)):
        if check_flag(name, is_given):
            raise InvalidArgumentError(f"{name} needs a Cascade")
    check_model(model)
    check_scoring(scoring)
    check_one_of("method", method, (*METHODS, "auto"))
    check_callback("progress", progress)
    check_callback("on_skip", on_skip)
    if score_cache is not None:
        check_kind("score_cache", score_cache, ScoreCache, "ScoreCache or None")
    warn = check_callback("on_warning", on_warning) or partial(logger.warning, "calibrate: %s")
    asked = as_questions(questions)
    unlabelled: list[Any] = [
        (each, {}) for each in check_several("inputs", inputs, "a list of inputs")
    ]
    labelled = read_examples(asked, [*rows, *unlabelled] if unlabelled else rows)
    strength = check_number("strength", strength, 0, 1)
    check_one_of("prefer", prefer, get_args(Preference))
    confidence = inner_fraction("confidence", confidence)
    if check_flag("each_option", each_option) and risk is None:
        raise InvalidArgumentError("each_option needs risk: the share of wrong answers to accept")
    option_risks = _checked_risks(option_risks, asked, risk is not None, each_option)
    costs_for = costs_of(costs, review_cost, asked)
    if any(costs_for) and (each_option or option_risks is not None or target is not None):
        raise InvalidArgumentError(
            "costs cannot be combined with each_option, option_risks or target"
        )
    largest = [1.0 if each is None else each.largest for each in costs_for]
    risks = None if risk is None else _risks(risk, asked, largest)
    target_options = _target_options(asked, target, option, risk)
    certified_target: Any = target or "accuracy"
    if target is not None:
        rest = 1 - Fraction(repr(inner_fraction("at", at)))  # 0.05 exactly for 0.95
        risks = [float(rest)] * len(target_options)
    sampled = None if random is None else check_several("random", random, "a list of indices")
    if sampled is not None and risks is None:
        raise InvalidArgumentError("random needs risk: the share of wrong answers to accept")
    check_keywords("calibrate", prompts, PromptArguments.__annotations__.keys())
    settings = settings_of_prompts(
        model.session,
        asked,
        prompts,
        examples=examples,
        calibration=None if score_cache is None else score_cache.calibration,
        inputs=sample_of(labelled.inputs, N_SAMPLE),
    )

    named = named_questions(asked)
    has_label = labelled.targets != UNLABELLED
    names, every = [name for name, _ in named], [question for _, question in named]
    learns = [
        method == "auto" and _may_learn(model, question, each)
        for question, each in zip(every, has_label.T, strict=True)
    ]
    hidden = _wanted_hidden(model, method, settings, named, labelled.targets, learns)
    features_for = ((),) * len(every) if hidden is None else hidden.features
    tried_for = [
        _tried(model, method, question, bool(features))
        for question, features in zip(every, features_for, strict=True)
    ]
    is_fitted = any(each != "none" for tried in tried_for for each in tried)
    learns = [each and bool(features) for each, features in zip(learns, features_for, strict=True)]
    wanted = (
        has_label | (method == "batch") | (_sampled(~has_label) & learns)
    )  # these need no answers

    def check_enough(asked_about: NDArray[np.bool_]) -> None:
        if is_fitted and risks is None:
            _check_enough(method, names, asked_about, MIN_EXAMPLES)
        if risks is not None:  # half of the right answers are for the risk
            answered = asked_about & has_label
            _check_enough(method, names, answered, 2 * MIN_EXAMPLES)

    check_enough(wanted)

    seen, asked_about = ask_examples(
        model,
        labelled.inputs,
        every,
        wanted,
        settings,
        whole=scoring != "constrained",
        progress=progress,
        on_skip=on_skip,
        stream={"cache": cache},
        hidden=hidden,
        score_cache=score_cache,
    )
    check_enough(asked_about)

    fitted: list[QuestionCalibration] = []
    of_heads: dict[int, _Scored] = {}
    certifying: list[_HeldOut] = []
    suspicious: list[tuple[float, SuspiciousLabel]] = []
    for i, (name, question) in enumerate(named):
        rows_of = np.flatnonzero(asked_about[:, i])
        targets = labelled.targets[rows_of, i]
        inputs = [labelled.inputs[row] for row in rows_of]
        groups = _groups(inputs)
        n_options = option_count(question)
        heads = _costs(model, question, settings, inputs, features_for[i])
        scored = _Scored(
            name, n_options, seen[i], targets, groups, scoring, strength, heads, prefer
        )
        shots = tuple((shot.text, shot.option) for shot in settings.shots_of(question))
        certifies = np.isin(rows_of, list(sampled or ()))
        if sampled is not None and risks is not None:
            preset = looks(risks[i] / largest[i], confidence)
            used, held_out = _split_at_look(targets, certifies, preset)
            if n_later := len(targets) - len(used) - len(held_out):
                warn(_later(name, n_later, len(held_out), preset))
        else:
            used, held_out = _split(targets, risks is not None)
        tried = tried_for[i]
        if any(_base(each) == "head" for each in tried):
            counts = _counts(targets[used], scored.n_options)
            if tried == ("head",):
                for reason in _unseen(name, question, counts):
                    warn(reason)
            elif method == "auto" and (counts > 0).sum() < 2:
                tried = tuple(each for each in tried if _base(each) != "head")
            elif method == "auto" and not counts.all():
                # A head alone would never select an option without an example.
                tried = tuple(each for each in tried if each != "head")
        learned = _learned(question, scored.at(used)) if learns[i] else None
        if learned is None:
            part, known = used, scored.at(used)
            best = _fit_best(question_to(question), known, tried)
        else:
            if learned.head is None:
                warn(f"{name}: {learned}")
            part, known, best = _fit_with_rows(question_to(question), scored, used, tried, learned)
        best = replace(best, costs=costs_for[i])
        suspicious += _suspicious(
            name, question, known, best.method, rows_of[part].tolist(), labelled.inputs
        )
        if risks is not None:
            certifying.append(_held_out(best, scored, used, held_out))
            frequencies = None
            if each_option:
                frequencies = tuple(_frequencies(targets[used], n_options).tolist())
            best = _certified(
                best,
                certifying[-1],
                risks[i],
                confidence,
                frequencies,
                option_risks,
                sampled is not None,
                certified_target,
                target_options[i],
            )
            reasons = _repeats(name, inputs, groups) + _neglected(name, best, certifying[-1])
            for reason in (*reasons, *_nothing_certified(name, best.threshold, sampled is None)):
                warn(reason)
        measured = (
            certifying[-1] if risks is not None else _cross_validated_rows(known, best.method)
        )
        fitted.append(replace(best, examples=shots, automation=_automation(best, measured)))
        if best.head is not None:
            of_heads[i] = known
    if of_heads:
        fitted = _with_familiarity(model, every, settings, fitted, of_heads, cache, score_cache)
    labels = []
    if risks is not None:
        for name, each, parts in parts_of(asked):
            if not isinstance(each, MultiLabel):
                continue
            threshold = _certified_labels(
                [certifying[part] for part in parts],
                risks[parts[0]],
                confidence,
                sampled is not None,
            )
            labels.append(LabelsThreshold(first=parts[0], n=len(parts), threshold=threshold))
            for reason in _nothing_certified(f"{name}, all labels", threshold, sampled is None):
                warn(reason)
    return Calibration(
        model=fingerprint_of(model),
        labels=tuple(labels),
        scoring=scoring,
        questions=tuple(fitted),
        suspicious_labels=tuple(label for _, label in sorted(suspicious, key=itemgetter(0))),
        wording=wording_hash(settings.prompt),
        **settings.described(),
    )


@dataclass(frozen=True, eq=False)
class _Scored:
    """Hold the scores of a question's options for some examples, and the right options.

    Examples with the same input have the same number in `groups`. `heads` has the groups of
    features to fit a head to, with their costs.
    """

    name: str
    n_options: int
    scores: Sequence[QuestionScores]
    targets: NDArray[np.intp]
    groups: NDArray[np.intp]
    scoring: ScoringRule
    strength: float = 1.0
    heads: Mapping[Group, float] = field(default_factory=dict)
    prefer: Preference = "cheap"
    learned: SelfTraining | None = None

    def at(self, rows: NDArray[np.intp]) -> _Scored:
        scores = [self.scores[row] for row in rows.tolist()]
        return replace(self, scores=scores, targets=self.targets[rows], groups=self.groups[rows])

    @lazy_property
    def head_fit(self) -> HeadFit:
        """The head alone."""
        heads = {each: cost for each, cost in self.heads.items() if not each.n_sources}
        return self._fit_head(heads, ())

    @lazy_property
    def weighted_head_fit(self) -> HeadFit:
        """The head together with other sources: with all of them if an option has no example."""
        shift, sources = self._shifted(np.full(len(self.targets), True))
        least = len(sources) if self.unseen else 1
        heads = {each: cost for each, cost in self.heads.items() if each.n_sources >= least}
        fit = self._fit_head(heads, sources)
        bias = fit.head.bias - (fit.source_weights @ shift).astype(np.float32)
        return replace(fit, head=replace(fit.head, bias=bias))

    def head_of(self, method: CalibrationMethod) -> HeadFit:
        return self.head_fit if method == "head" else self.weighted_head_fit

    def _fit_head(self, heads: Mapping[Group, float], sources: ArrayLike) -> HeadFit:
        rows = self.states_for(features_of(heads))
        return fit_head(
            rows, self.targets, heads, self.n_options, self.groups, self.prefer, sources
        )

    def taught(self, learned: SelfTraining) -> _Scored:
        """Replace all sources by one: the model's own answers, improved by unlabelled rows."""
        heads = {
            Group(each.features, min(each.n_sources, 1)): self.heads[each] for each in self.heads
        }
        return replace(self, heads=heads, learned=learned)

    def with_features(self, features: Sequence[Feature]) -> _Scored:
        every = features_of(self.heads)
        places = [every.index(each) for each in features]
        scores = [
            replace(each, hidden=None if each.hidden is None else each.hidden[places])
            for each in self.scores
        ]
        return replace(self, scores=scores)

    def states_for(self, features: Sequence[Feature]) -> NDArray[np.float32]:
        """Return some features, shape [n_features, n, n_embd]."""
        scores = self.with_features(features).scores
        return np.stack([each.hidden for each in scores if each.hidden is not None], axis=1)

    @lazy_property
    def unseen(self) -> dict[int, float]:
        """The options without an example, and the factors of their odds.

        The factor lowers the mean probability to that of Laplace's rule: an option that is never
        right in n examples has about the frequency 1/(n + n_options).
        """
        counts = _counts(self.targets, self.n_options)
        mean, n = np.exp(self.log_p).mean(axis=0), int(counts.sum())
        expected = 1 / (n + self.n_options)
        return {
            k: min(1.0, expected / float(mean[k])) for k in np.flatnonzero(counts == 0).tolist()
        }

    @lazy_property
    def log_p(self) -> Array:
        """Log-probabilities by the scoring rule and unlabelled rows, shape [n, n_options]."""
        own = self._finite([each.log_probabilities(self.scoring) for each in self.scores])
        if self.learned is None or self.learned.head is None:
            return own
        return self.learned.improved(own, self.states_for(self.learned.head.features)[0])

    @lazy_property
    def sources(self) -> Array:
        """Log-probabilities of each source, shape [n_sources, n, n_options]."""
        if self.learned is not None and self.learned.head is not None:
            return self.log_p[None]
        each = [scores.sources(self.scoring) for scores in self.scores]
        return self._finite([np.array(source) for source in zip(*each, strict=True)])

    @property
    def only_compares(self) -> bool:
        """Whether all scores come from an encoder or a reranker."""
        return not any(each.orders for each in self.scores)

    def center(self, rows: NDArray[np.bool_]) -> Array:
        """Return the mean log-probabilities of an encoder's options over some examples.

        A label that is compared alone gets its threshold instead: :data:`LABEL_DEVIATIONS` standard
        deviations above its mean.
        """
        values = self.sources[0, rows]
        center: Array = values.mean(axis=0)
        if self.scores[0].needs_threshold:
            center[0] += LABEL_DEVIATIONS * (values[:, 0] - values[:, 1]).std()
        return center

    def weights(self, rows: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the weights of the sources and the constants to subtract, fitted on examples."""
        rows = rows & (self.targets != UNLABELLED)
        shift, sources = self._shifted(rows)
        start = default_weights((True, False)[: len(sources)], is_score=False)
        weights, constants = fit_weights(sources[:, rows], self.targets[rows], start)
        return weights, weights @ shift - constants

    def _shifted(self, rows: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the threshold of a label as a shift of the sources, and the shifted sources."""
        shift = np.zeros((len(self.sources), self.n_options))
        if self.scores[0].needs_threshold:
            shift[0] = self.center(rows)
        return shift, self.sources - shift[:, None]

    def baseline(self, method: CalibrationMethod, rows: NDArray[np.bool_]) -> Array | None:
        if "batch" in method and self.only_compares:
            return self.strength * self.center(rows)
        if "batch" in method:
            return self.strength * log_mean(self.log_p[rows])
        if method == "frequencies":
            return np.log(_frequencies(self.targets[rows], self.n_options))
        return None

    def _finite(self, log_probabilities: Sequence[Array]) -> Array:
        values = np.array(log_probabilities)
        if not np.isfinite(values).all():
            raise InvalidArgumentError(
                f"the model gives an option of {self.name!r} probability 0, which cannot be fitted"
            )
        return values


@dataclass(frozen=True, eq=False)
class _Fit:
    """The fitted numbers of a method."""

    baseline: Array | None = None
    temperature: float = 1.0
    weights: Array | None = None

    def of(self, scored: _Scored, method: CalibrationMethod) -> Array:
        """Return the log-probabilities, shape [n, n_options]."""
        if method == "frequencies" and self.baseline is not None:
            return np.tile(self.baseline, (len(scored.targets), 1))
        weights = self.weights
        values = scored.log_p if weights is None else np.tensordot(weights, scored.sources, 1)
        return adjusted(values, self.baseline, self.temperature)


def _fit(scored: _Scored, method: CalibrationMethod, rows: NDArray[np.bool_]) -> _Fit:
    if method == "weights":
        weights, constants = scored.weights(rows)
        return _Fit(constants, weights=weights)
    baseline = scored.baseline(method, rows)
    if not method.endswith("temperature"):
        return _Fit(baseline)
    rows = rows & (scored.targets != UNLABELLED)
    log_p = _Fit(baseline).of(scored, method)[rows]
    return _Fit(baseline, fit_temperature(log_p, scored.targets[rows]))


def _fit_best(
    question: Mapping[str, Any], scored: _Scored, tried: Sequence[CalibrationMethod]
) -> QuestionCalibration:
    """Select a method by cross-validation, and fit it on all examples."""
    is_scored = tried != ("head",)
    compared = ("none", *tried) if is_scored and "none" not in tried else tried
    has_label = scored.targets != UNLABELLED
    predicted = {each: _cross_validated(scored, each) for each in compared}
    losses = {
        each: -log_p[has_label, scored.targets[has_label]] for each, log_p in predicted.items()
    }
    costs = {each: scored.head_of(each).cost if _base(each) == "head" else 1.0 for each in tried}
    method = _simplest({each: losses[each] for each in tried}, costs)
    everywhere = np.full(len(scored.targets), True)
    head = scored.head_of(method) if _base(method) == "head" else None
    fit = _fit(scored, method, everywhere) if head is None else _Fit()
    weights = head.source_weights if method == "head+weights" and head else fit.weights
    return QuestionCalibration(
        question=question,
        method=method,
        n_examples=len(scored.targets),
        nll={each: float(loss.mean()) for each, loss in losses.items() if len(loss)},
        temperature=fit.temperature,
        baseline=None if fit.baseline is None else tuple(fit.baseline.tolist()),
        weights=None if weights is None else tuple(weights.tolist()),
        head=None if head is None else head.head,
        cost=costs[method],
        unseen=tuple(scored.unseen.items()) if method == "head+weights" else (),
    )


def _with_familiarity(
    model: Any,
    questions: Sequence[AskedQuestion],
    settings: PromptSettings,
    fitted: Sequence[QuestionCalibration],
    scored: Mapping[int, _Scored],
    cache: CacheOptions | None,
    score_cache: ScoreCache | None,
) -> list[QuestionCalibration]:
    """Add the familiarity of each head, which marks inputs that are unlike its examples."""
    features = tuple(() if each.head is None else each.head.features for each in fitted)
    others, _ = ask_examples(
        model,
        TEXTS,
        questions,
        np.tile([bool(each) for each in features], (len(TEXTS), 1)),
        settings,
        whole=False,
        on_skip=lambda index, reason: None,
        stream={"cache": cache},
        hidden=WantedHidden(features, (False,) * len(fitted)),
        score_cache=score_cache,
    )
    found = list(fitted)
    for i, each in scored.items():
        head = found[i].head
        assert head is not None
        states = np.stack([other.hidden for other in others[i] if other.hidden is not None], axis=1)
        folds = folds_of(each.targets, each.groups)
        familiarity = fit_familiarity(each.states_for(head.features), states, folds)
        found[i] = replace(found[i], familiarity=familiarity)
    return found


def _learned(question: AskedQuestion, scored: _Scored) -> SelfTraining:
    """Learn from the different inputs of some examples, without their right answers.

    This fails for scores: their levels are not groups of similar inputs, and heads agree on wrong
    levels.
    """
    _, first = np.unique(scored.groups, return_index=True)
    if isinstance(question, Score):
        return SelfTraining(n_rows=len(first))
    rows, feature = scored.at(np.sort(first)), feature_of_rows(features_of(scored.heads))
    return learn_from_rows(rows.states_for([feature])[0], rows.log_p, feature)


def _fit_with_rows(
    question: Mapping[str, Any],
    scored: _Scored,
    used: NDArray[np.intp],
    tried: Sequence[CalibrationMethod],
    learned: SelfTraining,
) -> tuple[NDArray[np.intp], _Scored, QuestionCalibration]:
    """Fit a question that has also learned from its rows.

    Return the rows that have selected the method, their scores and the calibration.
    """
    part = used[scored.targets[used] != UNLABELLED]
    if len(part) < MIN_EXAMPLES:  # too few to measure anything
        unlabelled = np.full(len(used), UNLABELLED)
        known = replace(scored.at(used), targets=unlabelled).taught(learned)
        return used, known, replace(_fit_best(question, known, ("none",)), rows=learned)
    known = scored.at(part)
    best = _fit_best(question, known, tried)
    if learned.head is not None:
        taught = known.taught(learned)
        few = len(part) < MIN_TAUGHT  # too few to tell which answers are better
        rest: Sequence[CalibrationMethod] = ("none", "temperature")
        if not few:
            rest = [each for each in tried if each != "head" and _base(each) != "weights"]
        other = _fit_best(question, taught, rest)
        if few or is_close(_losses(taught, other.method), _losses(known, best.method)):
            return part, taught, replace(other, rows=learned)
    return part, known, replace(best, rows=replace(learned, head=None))


def _losses(scored: _Scored, method: CalibrationMethod) -> Array:
    """Return -log p of the right options, by cross-validation."""
    losses: Array = -_cross_validated(scored, method)[range(len(scored.targets)), scored.targets]
    return losses


def _suspicious(
    name: str,
    question: AskedQuestion,
    scored: _Scored,
    method: CalibrationMethod,
    rows: Sequence[int],
    inputs: Sequence[Any],
) -> list[tuple[float, SuspiciousLabel]]:
    """Return the examples whose label may be wrong, by cross-validation."""
    if method == "frequencies":  # all examples of a rare option would be suspicious
        return []
    p = np.exp(_cross_validated(scored, method))
    return [
        (
            relative,
            SuspiciousLabel(
                question=name,
                row=rows[place],
                input=input_text(inputs[rows[place]]),
                given=question.values[scored.targets[place]],
                expected=question.values[int(p[place].argmax())],
                probability=float(p[place, scored.targets[place]]),
            ),
        )
        for relative, place in suspicious_places(p, scored.targets)
    ]


def suspicious_places(p: Array, targets: NDArray[np.intp]) -> list[tuple[float, int]]:
    """Return the examples whose label is not the most probable one.

    Each comes with the label's probability relative to the mean for all examples with this label,
    because some options are harder to tell from the others.
    """
    differs = (targets != UNLABELLED) & (p.argmax(axis=1) != targets)
    return [
        (float(p[i, k] / p[targets == k, k].mean()), i)
        for i, k in zip(np.flatnonzero(differs).tolist(), targets[differs].tolist(), strict=True)
    ]


def _cross_validated_rows(scored: _Scored, method: CalibrationMethod) -> _HeldOut:
    has_label = np.flatnonzero(scored.targets != UNLABELLED)
    p = np.exp(_cross_validated(scored, method))[has_label]
    return _HeldOut(p, scored.targets[has_label], np.full(len(has_label), True))


def _automation(fitted: QuestionCalibration, rows: _HeldOut) -> Automation | None:
    if not len(rows.targets):
        return None
    answers = fitted.answers(rows.p)
    return automation(rows.p[np.arange(len(answers)), answers], answers == rows.targets)


def _simplest(
    losses: Mapping[CalibrationMethod, Array], costs: Mapping[CalibrationMethod, float]
) -> CalibrationMethod:
    """Return the first method whose loss is at most one standard error above the lowest.

    Methods with a head come first: the cheaper one, or else the one with the lower loss. Heads gain
    more than the others from the examples that cross-validation leaves out. A method with a higher
    loss than ``"frequencies"``, which ignores the input, is not selected. The standard error is the
    standard error of the differences of the losses.
    """
    if "frequencies" in losses:
        most = losses["frequencies"].sum()
        losses = {method: loss for method, loss in losses.items() if loss.sum() <= most}
    best = min(losses.values(), key=lambda loss: float(loss.sum()))
    close = [method for method, loss in losses.items() if is_close(loss, best)]
    heads = [method for method in close if _base(method) == "head"]
    return min(heads, key=lambda method: (costs[method], losses[method].sum()), default=close[0])


def _cross_validated(scored: _Scored, method: CalibrationMethod) -> Array:
    """Return log-probabilities, shape [n, n_options], from fits without the example's fold.

    The fit for an example without a right option may use this example, because it has no loss.
    """
    if _base(method) == "head":
        predicted = scored.head_of(method).log_probabilities
        unseen = scored.unseen if method == "head+weights" else {}
        return with_unseen(predicted, scored.log_p, unseen) if unseen else predicted
    fold_of = folds_of(scored.targets, scored.groups)
    log_p = np.zeros((len(scored.targets), scored.n_options))
    for fold in np.unique(fold_of):
        held_out = fold_of == fold
        fit = _fit(scored, method, (fold_of != fold) | (fold_of < 0))
        log_p[held_out] = fit.of(scored, method)[held_out]
    return log_p


def _groups(inputs: Iterable[Any]) -> NDArray[np.intp]:
    """Number the inputs so that copies have the same number.

    Copies stay together, because a fit must not be tested on what it has seen.
    """
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(input_text(each), len(numbers)) for each in inputs]
    return np.array(found, dtype=np.intp)


def _split(targets: NDArray[np.intp], is_split: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the examples for the fit, and of those for certifying.

    A random half of the examples with a right answer certifies. It must be a random sample of the
    rows, as the guarantees need. Halves with equal shares of the options would not be random, nor
    would halves that keep copies together: a text with a quarter of the rows would be too frequent
    in one half, and missing in the other. The halves are the same in every run.
    """
    every = np.arange(len(targets))
    if not is_split:
        return every, np.arange(0)
    answered = np.flatnonzero(targets != UNLABELLED)
    held_out = np.random.default_rng(0).permutation(answered)[len(answered) // 2 :]
    return np.setdiff1d(every, held_out), np.sort(held_out)


def _split_at_look(
    targets: NDArray[np.intp], certifies: NDArray[np.bool_], preset: Sequence[int]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices for the fit and for certifying up to the last look.

    Labels after the look must not improve the fit. Otherwise, a person who sees the mistakes at the
    look could label more rows until the fit makes none of these mistakes.
    """
    answered = targets != UNLABELLED
    held_out = np.flatnonzero(certifies & answered)
    end = len(targets)
    if reached := [look for look in preset if look <= len(held_out)]:
        held_out = held_out[: reached[-1]]
        end = int(held_out[-1]) + 1
    return np.flatnonzero(~certifies & (~answered | (np.arange(len(targets)) < end))), held_out


def _later(name: str, n_later: int, look: int, preset: Sequence[int]) -> str:
    following = next((f" or {each:,}" for each in preset if each > look), "")
    return (
        f"{name}: {counted(n_later, 'labelled row')} after the certificate with {look:,} random "
        f"rows {'is' if n_later == 1 else 'are'} not used. To use all of them, stop at "
        f"exactly {look:,}{following} random rows"
    )


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """The calibrated probabilities of rows that the fit did not use, and the right options.

    `is_new` marks one row of each text that the fit has not seen. The guarantees hold for these
    rows, too. Otherwise, a table that contains every row several times by mistake would certify
    answers that the fit knows only from the copies.
    """

    p: Array
    targets: NDArray[np.intp]
    is_new: NDArray[np.bool_]

    @property
    def parts(self) -> tuple[NDArray[np.bool_], ...]:
        return () if self.is_new.all() else (self.is_new,)


def _held_out(
    fitted: QuestionCalibration,
    scored: _Scored,
    used: NDArray[np.intp],
    held_out: NDArray[np.intp],
) -> _HeldOut:
    rows, seen = scored.at(held_out), scored.groups[used]
    rows = rows.with_features(fitted.features)
    p = np.exp([fitted.apply(each, scored.scoring) for each in rows.scores])
    p = p.reshape(-1, scored.n_options)  # there may be no rows
    _, first = np.unique(rows.groups, return_index=True)
    is_new = np.full(len(held_out), False)
    is_new[first] = ~np.isin(rows.groups[first], seen)
    return _HeldOut(p, rows.targets, is_new)


def _certified(
    fitted: QuestionCalibration,
    rows: _HeldOut,
    risk: float,
    confidence: float,
    frequencies: tuple[float, ...] | None = None,
    option_risks: Mapping[Any, float] | None = None,
    at_looks: bool = False,
    target: ThresholdTarget = "accuracy",
    option: int | None = None,
) -> QuestionCalibration:
    """Return a calibration with a threshold and sets, from rows that it was not fitted on.

    With the `frequencies` of the options, both hold for the rows of each right option.
    """
    if (costs := fitted.costs) is not None:
        answers = fitted.answers(rows.p)
        threshold = certify(
            costs.sure(rows.p),
            answers == rows.targets,
            risk=risk,
            confidence=confidence,
            parts=rows.parts,
            at_looks=at_looks,
            costs=costs.of_answers(answers, rows.targets),
            largest_cost=costs.largest,
        )
        return replace(fitted, threshold=threshold)
    right = rows.p.argmax(axis=1) == rows.targets
    of_target = rows.targets if target == "recall" else rows.p.argmax(axis=1)
    each_option, n_options = frequencies is not None, rows.p.shape[1]
    bases = (np.full(len(right), True), *rows.parts)
    sets = [
        conformal(rows.p[base], rows.targets[base], risk, each_option=each_option) for base in bases
    ]
    parts = [base & (rows.targets == k) for base in bases for k in range(n_options)]
    if option_risks and not option_risks.keys().isdisjoint(fitted.values):
        n_looks = len(looks(risk, confidence)) if at_looks else 1
        threshold = certify_options(
            rows.p,
            rows.targets,
            [option_risks.get(value, risk) for value in fitted.values],
            confidence=1 - (1 - confidence) / n_looks,
            parts=rows.parts,
        )
        threshold = replace(threshold, confidence=confidence)
    else:
        threshold = certify(
            of_answers(rows.p, frequencies),
            right,
            risk=risk,
            confidence=confidence,
            parts=parts if each_option else rows.parts,
            at_looks=at_looks,
            target=target,
            of_option=None if option is None else of_target == option,
        )
        if option is not None:
            threshold = replace(threshold, option=option_names(fitted.asked)[option])
    return replace(
        fitted,
        threshold=replace(threshold, frequencies=frequencies),
        sets=_union(sets),
    )


def _risks(risk: Any, questions: Sequence[Question], largest: Sequence[float]) -> list[float]:
    """Return the risk of each question, which must be below its largest cost."""
    names = [
        f"risk of {name!r}" if isinstance(risk, Mapping) else "risk"
        for name, _ in named_questions(questions)
    ]
    each = zip(names, for_each_question("risk", risk, questions), largest, strict=True)
    return [inner_fraction(name, value, most) for name, value, most in each]


def _target_options(
    questions: Sequence[Question], target: Any, option: Any, risk: Any
) -> list[int | None]:
    """Return the place of the option of a target in each question; None without one."""
    named = named_questions(questions)
    if target is None:
        if option is not None:
            raise InvalidArgumentError('option needs the target "precision" or "recall"')
        return [None] * len(named)
    if check_one_of("target", target, TARGETS) == "agreement":
        raise InvalidArgumentError('the target "agreement" needs a Cascade')
    if risk is not None:
        raise InvalidArgumentError("target cannot be combined with risk: at is 1 - risk")
    if any(isinstance(each, MultiLabel) for each in questions):
        raise InvalidArgumentError("target needs questions with one answer, not labels: use risk")
    return [place_of_target(question, target, option) for _, question in named]


def _checked_risks(
    risks: Any, questions: Sequence[Question], has_risk: bool, each_option: bool
) -> dict[Any, float] | None:
    """Return the risks of options after checking that a question has each option."""
    if risks is None:
        return None
    check_kind("option_risks", risks, Mapping, "a mapping from options to shares")
    if not has_risk or each_option:
        raise InvalidArgumentError("option_risks needs risk, without each_option")
    known = [value for _, asked in named_questions(questions) for value in asked.values]
    for option in risks:
        if option not in known:
            raise InvalidArgumentError(
                f"option_risks: expected one of {', '.join(map(repr, known))}, got {option!r}"
            )
    return {option: inner_fraction("option_risks", each) for option, each in risks.items()}


def _union(sets: Sequence[ConformalSets]) -> ConformalSets:
    """Return sets that contain the options of each of the given sets."""
    lowest = min(sets, key=lambda each: each.threshold)
    of_options = [each.of_options for each in sets if each.of_options is not None]
    if not of_options:
        return lowest
    return replace(lowest, of_options=tuple(map(min, zip(*of_options, strict=True))))


def _frequencies(targets: NDArray[np.intp], n_options: int) -> Array:
    """Return how frequent the right options are, by Laplace's rule."""
    counts = _counts(targets, n_options) + 1.0
    shares: Array = counts / counts.sum()
    return shares


def _neglected(name: str, fitted: QuestionCalibration, rows: _HeldOut) -> list[str]:
    """Return a warning for each right option for which the risk is clearly not kept."""
    found = fitted.threshold
    assert found is not None
    if found.target != "accuracy" or found.largest_cost is not None:
        return []
    certified = found.certifies(rows.p)
    wrong, reasons = rows.p.argmax(axis=1) != rows.targets, []
    for k, option in enumerate(option_names(fitted.asked)):
        above = certified & (rows.targets == k)
        n, n_wrong = int(above.sum()), int((above & wrong).sum())
        if n_wrong and is_bounded(n - n_wrong, n, 1 - found.risk, SIGNIFICANCE):
            reasons.append(
                f"{name}: {n_wrong:,} of {n:,} certified answers are wrong where {option!r} is "
                "right. The risk is kept on average; each_option=True keeps it for each option"
            )
    return reasons


def _certified_labels(
    labels: Sequence[_HeldOut], risk: float, confidence: float, at_looks: bool
) -> CertifiedThreshold:
    """Return the threshold above which few whole answers have a wrong label.

    The labels have the same rows, because the right answer to the question names all labels that
    fit.
    """
    sure = np.prod([each.p.max(axis=1) for each in labels], axis=0)
    right = np.all([each.p.argmax(axis=1) == each.targets for each in labels], axis=0)
    parts = labels[0].parts
    return certify(sure, right, risk=risk, confidence=confidence, parts=parts, at_looks=at_looks)


def _repeats(name: str, inputs: Sequence[Any], groups: NDArray[np.intp]) -> list[str]:
    """Return a warning if one input has a large share of the rows."""
    counts = np.bincount(groups)
    n, most = len(groups), int(counts.argmax())
    if counts[most] < max(MIN_REPEATS, MAX_REPEATED * n):
        return []
    text = input_text(inputs[int((groups == most).argmax())])
    return [
        f"{name}: {counts[most]:,} of {n:,} rows have the same input, {short_repr(text)}. The "
        "certificate holds if this input is as frequent among later inputs; if the copies are a "
        "mistake in the table, remove them"
    ]


def _nothing_certified(name: str, found: CertifiedThreshold | None, is_half: bool) -> list[str]:
    """Return a warning if no threshold was certified, with the number of examples it needs."""
    if found is None or found.threshold is not None:
        return []
    if not is_half:
        return [f"{name} (random rows): {found}"]
    half = f"{name} ({HALF}): {found}"
    if found.needed is None:
        return [half]
    in_all = f"{2 * found.needed:,} rows in all, because half of them are for the fit"
    return [f"{half} That is about {in_all}."]


def _wanted_hidden(
    model: Any,
    method: str,
    settings: PromptSettings,
    named: Sequence[tuple[str, AskedQuestion]],
    targets: NDArray[np.intp],
    learns: Sequence[bool],
) -> WantedHidden | None:
    """Return the hidden states that heads are fitted to; None if no head is tried."""
    # Whether the model gives the options probabilities without a head.
    is_scored = tuple(
        method != "head" and (not only_compares(model.session) or compared(asked) is not None)
        for _, asked in named
    )
    if method.startswith("head"):
        features = features_of(heads_of(model))
        return WantedHidden((features,) * len(named), is_scored)
    counts = [_counts(targets[:, i], option_count(asked)) for i, (_, asked) in enumerate(named)]
    has_enough = [
        method == "auto" and each.sum() >= MIN_EXAMPLES and (each > 0).sum() >= 2 for each in counts
    ]
    found = _features_for(model, settings) if any([*has_enough, *learns]) else ()
    of_rows = (feature_of_rows(found),) if found else ()
    features_for = tuple(
        found if enough else of_rows if may_learn else ()
        for enough, may_learn in zip(has_enough, learns, strict=True)
    )
    return WantedHidden(features_for, is_scored) if found else None


def heads_of(model: Any, n_sources: int = 0) -> list[Group]:
    """Return the groups of features to fit heads to, with up to `n_sources` other sources.

    Each group of states is tried alone. Groups that need the whole prompt are also tried with all
    sources, because scoring the options then costs nothing more. An encoder's embedding is one more
    group, and a part of most others. With it, the encoder's similarities are tried, too.
    """
    session = model.session
    embedding = embedding_of(session)
    if only_compares(session):
        if embedding is None:
            raise NotSupportedError("a reranker returns no hidden states, which a head needs")
        return [Group((embedding,), n) for n in range(n_sources + 1)]
    cheapest, *others = candidate_features(session.hidden_shape[0])
    states = [cheapest, *others]
    if embedding is not None:
        states = [(embedding,), cheapest, *((*each, embedding) for each in others)]
    groups = [Group(each) for each in states]
    for each in states if n_sources else ():
        if any(feature.pooling == "last" for feature in each):
            groups.append(Group(each, n_sources))
        elif embedding in each and n_sources > 1:
            groups.append(Group(each, 1))
    return groups


def _costs(
    model: Any,
    question: AskedQuestion,
    settings: PromptSettings,
    inputs: Sequence[Any],
    features: tuple[Feature, ...],
) -> dict[Group, float]:
    """Return the groups of features to try, with costs relative to a decision without a head."""
    if not features:
        return {}
    if len(features) < 2 and not only_compares(model.session):
        return {Group(features, n): 1.0 for n in range(2)}
    session = model.session
    is_compared = has_source(session) and compared(question) is not None
    n_sources = is_compared + (not only_compares(session))
    groups = heads_of(model, n_sources)
    if only_compares(session):
        return dict.fromkeys(groups, 1.0)
    reader = feature_reader(session, question, settings, features_of(groups))
    texts = [input_text(each) for each in sample_of(inputs, N_SAMPLE)]
    costs, of_encoder = reader.costs(session, texts, [each.features for each in groups])

    def cost(group: Group, of_states: float) -> float:
        is_encoded = group.n_sources > 0 or embedding_of(session) in group.features
        is_whole = group.n_sources == n_sources
        return (max(of_states, is_whole) + of_encoder * is_encoded) / (1 + of_encoder)

    return {each: cost(each, states) for each, states in zip(groups, costs, strict=True)}


def _may_learn(model: Any, question: AskedQuestion, has_label: NDArray[np.bool_]) -> bool:
    """Return whether a question may learn from the inputs without an answer to it."""
    n_told = int(has_label.sum())
    least = MIN_ROWS if n_told else 1
    has_own = "none" in _tried(model, "auto", question, True)  # answers to start from
    return has_own and len(has_label) - n_told >= least


def can_learn_from_rows(model: Any, settings: PromptSettings) -> bool:
    """Return whether a model returns the states that learning from unlabelled inputs needs."""
    return bool(_features_for(model, settings))


def features_of_rows(
    model: Any, questions: Sequence[AskedQuestion], settings: PromptSettings
) -> tuple[Feature | None, ...]:
    """Return the feature for learning from unlabelled inputs for each question, or None.

    The levels of a score, and more than 255 options, do not form groups of rows.
    """
    feature = feature_of_rows(_features_for(model, settings))
    return tuple(
        None
        if isinstance(each, Score)
        or (isinstance(each, Choice) and each.has_many_options)
        or "none" not in _tried(model, "auto", each, True)
        else feature
        for each in questions
    )


def _sampled(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return at most :data:`.self_training.MAX_ROWS` of the rows of each column, evenly spaced."""
    chosen = np.zeros_like(rows)
    for column, wanted in zip(chosen.T, rows.T, strict=True):
        column[sample_of(np.flatnonzero(wanted).tolist(), MAX_ROWS)] = True
    return chosen


def _tried(
    model: Any,
    method: CalibrationMethod | Literal["auto"],
    question: AskedQuestion,
    has_head: bool,
) -> tuple[CalibrationMethod, ...]:
    compares = only_compares(model.session)
    is_compared = compared(question) is not None
    if method != "auto":
        if compares and method != "head":
            check_described(question)
            if needs_threshold(question) and _base(method) == "none":
                raise InvalidArgumentError(
                    f'the method "{method}" gives the labels of an encoder no threshold: use '
                    '"batch" or "weights"'
                )
        if method == "weights":
            if not has_source(model.session):
                raise InvalidArgumentError(
                    'the method "weights" needs a model that was opened with an encoder'
                )
            check_described(question)
        return (method,)
    if compares and not is_compared:
        return ("head",)
    without = set() if has_head else {"head"}
    if (
        not (is_compared and has_source(model.session))
        or option_count(question) > MAX_WEIGHTED_OPTIONS
    ):
        without.add("weights")
    if compares and needs_threshold(question):
        without.add("none")
    return tuple(each for each in METHODS if _base(each) not in without)


def _features_for(model: Any, settings: PromptSettings) -> tuple[Feature, ...]:
    """Return the features for a head; () if hidden states cannot be read."""
    if is_made(model, settings):
        return ()
    try:
        features = features_of(heads_of(model))
        if not only_compares(model.session):
            layers = {each.layer for each in features if each.pooling != "embedding"}
            model.hidden_states("a", layers=sorted(layers))
    except NotSupportedError:
        return ()
    return features


def _counts(targets: NDArray[np.intp], n_options: int) -> NDArray[np.intp]:
    return np.bincount(targets[targets != UNLABELLED], minlength=n_options)


def _unseen(name: str, question: AskedQuestion, counts: NDArray[np.intp]) -> list[str]:
    """Return a warning if a head is fitted without an example of some options."""
    pairs = zip(option_names(question), counts.tolist(), strict=True)
    missing = [repr(option) for option, n in pairs if not n]
    if not missing:
        return []
    return [
        f"{name}: the rows of the fit have no example of {', '.join(missing)}. A head alone "
        "never selects such an option: add an example"
    ]


def _check_enough(method: str, names: Sequence[str], wanted: NDArray[np.bool_], least: int) -> None:
    for name, n in zip(names, wanted.sum(axis=0), strict=True):
        if n < least:
            half = "" if least == MIN_EXAMPLES else ", half of them for the risk"
            raise InvalidArgumentError(
                f"the method {method} needs at least {least} examples of {name!r}{half}, "
                f"got {n}; 100 or more are better"
            )


def _base(method: CalibrationMethod) -> str:
    """Return a method without its temperature: ``"none"``, ``"batch"``, ..."""
    return "none" if method == "temperature" else method.partition("+")[0]
