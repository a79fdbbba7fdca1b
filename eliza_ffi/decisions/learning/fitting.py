"""Fit calibrations to examples, and select a method by cross-validation.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
section 7.10: cross-validation, and the rule to select the simplest model whose error is within one
standard error of the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._lazy import lazy_property
from ...checks import check_callback, check_number, check_one_of
from ...errors import InvalidArgumentError, NotSupportedError
from ...session.options import CacheOptions
from ...session.requests import check_keywords
from ..asking import WantedHidden, check_model, is_encoder
from ..auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from ..examples import (
    UNTOLD,
    OnSkip,
    Progress,
    ask_examples,
    is_made,
    named_questions,
    option_names,
    read_examples,
)
from ..fingerprint import fingerprint_of
from ..option_prior import CONTENT_FREE
from ..prompt_settings import PromptArguments, PromptSettings
from ..prompts import AskedQuestion, input_text, option_count
from ..scoring import (
    Array,
    QuestionScores,
    Rule,
    check_rule,
    fit_temperature,
    log_mean,
    relative_to,
    tempered,
)
from ..wire import as_questions, question_to
from .calibration import (
    BATCH_WEIGHT,
    METHODS,
    Calibration,
    CalibrationMethod,
    QuestionCalibration,
    wording_hash,
)
from .heads import HeadFit, candidate_layers, fit_head, folds_of
from .stopping import applied, stop_margin
from .thresholds import certify, conformal, inner_fraction

if TYPE_CHECKING:
    from typing_extensions import Unpack

EMPTY = ""
"""The input that the method ``unconditional`` compares other inputs with."""

LEAST_EXAMPLES = 10
"""The minimum number of examples per question for a fitted method. Use 100 or more if possible."""


def calibrate(
    model: Any,
    questions: Any,
    examples: Iterable[tuple[Any, Any]],
    *,
    method: CalibrationMethod | Literal["auto"] = "auto",
    rule: Rule = "constrained",
    strength: float = 1.0,
    risk: float | None = None,
    confidence: float = 0.9,
    max_flips: float | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    prompt_examples: Any = None,
    cache: CacheOptions | None = None,
    **prompts: Unpack[PromptArguments],
) -> Calibration:
    """Fit a calibration to labelled examples.

    Parameters
    ----------
    model
        An open model. If it is an encoder, which cannot generate text, a head is fitted to the mean
        of its token embeddings.
    questions
        In any form that :func:`~eliza_ffi.decisions.as_questions` accepts.
    examples
        Pairs of an input and the right answers, in the form that
        :func:`~eliza_ffi.decisions.examples.read_examples` accepts. A question is fitted on the
        examples that answer it. The method ``"batch"`` needs no answers and uses all examples.
    method
        One of :data:`.calibration.METHODS`, or ``"auto"``. For each question ``"auto"`` selects a
        method with a head if its NLL in cross-validation (5 folds, the same in every run) is the
        lowest. Otherwise it selects the first method whose NLL is at most one standard error above
        the lowest, and not above that of ``"frequencies"``. ``"auto"`` tries heads if each option
        has an example, and the library can return hidden states. Otherwise it tries
        ``"unconditional"``, which needs whole rows of logits. A decision model has neither.
    rule
        The scoring rule. The method ``"unconditional"`` ignores it.
    strength
        The exponent of the baseline that the probabilities are divided by, 0 to 1. A head has none.
    risk
        If given, a random half of the inputs is not used for the fit. This half determines the
        lowest probability above which at most this share of the answers is wrong, and sets of
        options that contain the right one with a probability of 1 - risk; see
        :mod:`.thresholds`. Above 0 and below 1.
    confidence
        The lowest probability, over draws of the examples, that `risk` and `max_flips` are kept.
    max_flips
        If given, decisions may end before all `orders` are asked, and at most this share of the
        answers differs from the answers in all orders; see :mod:`.stopping`.
        For 0.01, this needs about 230 examples, twice as many with `risk`. They need no right
        answers with the method ``"batch"``. Above 0 and below 1.
    progress
        Called with the number of finished inputs and the number of all inputs.
    on_skip
        Called with the index of each example whose input cannot be used, for example because it
        does not fit into the context, and with the reason. None raises an error instead.
    prompt_examples
        The examples in the prompts, as `examples` of :meth:`~eliza_ffi.Model.decide`.
    cache
        As for :meth:`~eliza_ffi.Model.decide`.
    **prompts
        `answer_style`, `orders`, `prompt`, `prompt_order`, `prompt_format` and `prior` of
        :meth:`~eliza_ffi.Model.decide`. The calibration is valid only for these settings, and
        contains them.

    Raises
    ------
    InvalidArgumentError, ContextFullError
        If an argument is wrong, if a question has fewer than :data:`LEAST_EXAMPLES` examples for a
        method that is fitted on them, or if an input cannot be used or does not fit into the
        context. The message names the example.
    """
    check_model(model)
    check_rule(rule)
    check_one_of("method", method, (*METHODS, "auto"))
    check_callback("progress", progress)
    check_callback("on_skip", on_skip)
    asked = as_questions(questions)
    labelled = read_examples(asked, examples)
    strength = check_number("strength", strength, 0, 1)
    inner_fraction("confidence", confidence)
    if risk is not None:
        inner_fraction("risk", risk)
    if max_flips is not None:
        inner_fraction("max_flips", max_flips)
    check_keywords("calibrate", prompts, PromptArguments.__annotations__.keys())
    how = settings_of_prompts(
        model.session,
        asked,
        prompts,
        examples=prompt_examples,
        inputs=sample_of(labelled.inputs, N_SAMPLE),
    )

    named = named_questions(asked)
    wanted = (labelled.targets != UNTOLD) | (method == "batch")  # which needs no answers
    names, every = [name for name, _ in named], [question for _, question in named]
    hidden = _wanted_hidden(model, method, how, named, labelled.targets)
    layers_of = ((),) * len(every) if hidden is None else hidden.layers
    tried_for = [_tried(model, method, how, bool(layers)) for layers in layers_of]
    bases = {_base(each) for tried in tried_for for each in tried}
    is_fitted = any(_is_fitted(each) for tried in tried_for for each in tried)

    def check_enough(asked_about: NDArray[np.bool_]) -> None:
        if is_fitted and risk is None:
            _check_enough(method, names, asked_about, LEAST_EXAMPLES)
        if risk is not None:  # half of the right answers are for the risk
            answered = asked_about & (labelled.targets != UNTOLD)
            _check_enough(method, names, answered, 2 * LEAST_EXAMPLES)

    check_enough(wanted)

    whole = rule != "constrained" or "unconditional" in bases
    asking = partial(ask_examples, model, whole=whole, stream={"cache": cache})
    seen, asked_about = asking(
        labelled.inputs, every, wanted, how, progress=progress, on_skip=on_skip, hidden=hidden
    )
    check_enough(asked_about)
    plain = CONTENT_FREE if "contextual" in bases else (EMPTY,) if "unconditional" in bases else ()
    everywhere = np.full((len(plain), len(named)), True)
    plain_scores, _ = asking(plain, every, everywhere, how, called="content-free input")

    fitted = []
    for i, (name, question) in enumerate(named):
        targets = labelled.targets[asked_about[:, i], i]
        groups = _groups([labelled.inputs[row] for row in np.flatnonzero(asked_about[:, i])])
        of_plain = dict(zip(plain, plain_scores[i], strict=True))
        n_options, layers = option_count(question), layers_of[i]
        scored = _Scored(
            name, n_options, seen[i], targets, groups, of_plain, rule, strength, layers
        )
        shots = tuple((shot.text, shot.option) for shot in how.shots_of(question))
        used, held_out = _split(groups, risk is not None)
        tried = tried_for[i]
        if "head" in tried and not _counts(targets[used], scored.n_options).all():
            if method != "auto" or tried == ("head",):
                _check_each_option(question, name, targets[used], risk is not None)
            tried = tuple(each for each in tried if _base(each) != "head")
        best = _fit_best(question_to(question), scored.at(used), tried)
        if max_flips is not None and best.head is None and best.empty_joint is None:
            margin = stop_margin(best, scored.at(used).scores, rule, max_flips, confidence)
            best = replace(best, margin=margin)
        if risk is not None:  # after the margin, which changes the probabilities
            best = _certified(best, scored.at(held_out), rule, risk, confidence)
        fitted.append(replace(best, examples=shots))
    return Calibration(
        model=fingerprint_of(model),
        rule=rule,
        questions=tuple(fitted),
        wording=wording_hash(how.prompt),
        **how.described(),
    )


@dataclass(frozen=True, eq=False)
class _Scored:
    """Hold the scores of a question's options for some examples, and the right options.

    Examples with the same input have the same number in `groups`. `plain` has the scores for the
    content-free inputs that the tried methods need, and `layers` the layers of the hidden states in
    `scores`.
    """

    name: str
    n_options: int
    scores: Sequence[QuestionScores]
    targets: NDArray[np.intp]
    groups: NDArray[np.intp]
    plain: Mapping[str, QuestionScores]
    rule: Rule
    strength: float = 1.0
    layers: tuple[int, ...] = ()

    def at(self, rows: NDArray[np.intp]) -> _Scored:
        scores = [self.scores[row] for row in rows.tolist()]
        return replace(self, scores=scores, targets=self.targets[rows], groups=self.groups[rows])

    @lazy_property
    def head_fit(self) -> HeadFit:
        rows = np.stack([each.hidden for each in self.scores if each.hidden is not None], axis=1)
        return fit_head(rows, self.targets, self.layers, self.n_options, self.groups)

    @lazy_property
    def log_p(self) -> Array:
        """Log-probabilities by the scoring rule, shape [n, n_options]."""
        return self._finite([each.log_probabilities(self.rule) for each in self.scores])

    @lazy_property
    def unconditional(self) -> Array:
        """Log-probabilities relative to an empty input, shape [n, n_options]."""
        joint = self.empty_joint
        return self._finite([each.unconditional_log_probabilities(joint) for each in self.scores])

    @lazy_property
    def empty_joint(self) -> tuple[tuple[float, ...], ...]:
        """The joint scores of the empty input for each order."""
        return tuple(tuple(one.of("full").tolist()) for one in self.plain[EMPTY].orders)

    def baseline(self, method: CalibrationMethod, rows: NDArray[np.bool_]) -> Array | None:
        """Return the baseline of a method, fitted on the examples in `rows`."""
        if _base(method) == "contextual":
            free = [self.plain[each].log_probabilities(self.rule) for each in CONTENT_FREE]
            return self.strength * log_mean(free)
        if "batch" in method:
            return self.strength * log_mean(self.log_p[rows])
        if method == "frequencies":
            counts = _counts(self.targets[rows], self.n_options) + 1.0  # Laplace's rule
            frequencies: Array = np.log(counts / counts.sum())
            return frequencies
        return None

    def by(self, method: CalibrationMethod, baseline: Array | None) -> Array:
        """Return the log-probabilities before the temperature of a method is applied."""
        if _base(method) == "unconditional":
            return self.unconditional
        if method == "frequencies":
            assert baseline is not None
            return np.tile(baseline, (len(self.targets), 1))
        values = self.log_p if baseline is None else relative_to(self.log_p, baseline)
        if _base(method) == "head":
            return self.head_fit.log_probabilities + BATCH_WEIGHT * values
        return values

    def _finite(self, log_probabilities: Sequence[Array]) -> Array:
        values = np.array(log_probabilities)
        if not np.isfinite(values).all():
            raise InvalidArgumentError(
                f"the model gives an option of {self.name!r} probability 0, which cannot be fitted"
            )
        return values


def _fit(
    scored: _Scored, method: CalibrationMethod, rows: NDArray[np.bool_]
) -> tuple[Array | None, float]:
    """Return the baseline and the temperature of a method, fitted on the examples in `rows`."""
    baseline = scored.baseline(method, rows)
    if not method.endswith("temperature"):
        return baseline, 1.0
    rows = rows & (scored.targets != UNTOLD)
    values = scored.by(method, baseline)[rows]
    return baseline, fit_temperature(values, scored.targets[rows])


def _fit_best(
    question: Mapping[str, Any], scored: _Scored, tried: Sequence[CalibrationMethod]
) -> QuestionCalibration:
    """Select a method by cross-validation, and fit it on all examples."""
    is_scored = tried != ("head",)
    compared = ("none", *tried) if is_scored and "none" not in tried else tried
    told = scored.targets != UNTOLD
    predicted = {each: _cross_validated(scored, each) for each in compared}
    losses = {each: -log_p[told, scored.targets[told]] for each, log_p in predicted.items()}
    method = _simplest({each: losses[each] for each in tried})
    everywhere = np.full(len(scored.targets), True)
    baseline, temperature = (None, 1.0) if method == "head" else _fit(scored, method, everywhere)
    answers, n = predicted[method], max(len(scored.targets), 1)
    n_each = np.bincount(answers.argmax(axis=1), minlength=scored.n_options)
    return QuestionCalibration(
        question=question,
        method=method,
        n_examples=len(scored.targets),
        nll={each: float(loss.mean()) for each, loss in losses.items() if len(loss)},
        shares=tuple((n_each / n).tolist()),
        mean_probability=float(np.exp(answers.max(axis=1)).sum() / n),
        temperature=temperature,
        baseline=None if baseline is None else tuple(baseline.tolist()),
        empty_joint=scored.empty_joint if _base(method) == "unconditional" else None,
        head=scored.head_fit.head if _base(method) == "head" else None,
    )


def _simplest(losses: Mapping[CalibrationMethod, Array]) -> CalibrationMethod:
    """Return the first method whose loss is at most one standard error above the lowest.

    If a method with a head has the lowest loss, one of these is selected, because a head alone
    scores no options. A method with a higher loss than ``"frequencies"``, which ignores the input,
    is not selected. The standard error is that of the differences of the losses.
    """
    if "frequencies" in losses:
        most = losses["frequencies"].sum()
        losses = {method: loss for method, loss in losses.items() if loss.sum() <= most}
    lowest = min(losses, key=lambda method: losses[method].sum())
    best = losses[lowest]
    if _base(lowest) == "head":
        losses = {method: loss for method, loss in losses.items() if _base(method) == "head"}

    def is_close(loss: Array) -> bool:
        worse = loss - best
        n = len(worse)
        return n < 2 or bool(worse.mean() <= worse.std(ddof=1) / np.sqrt(n))

    return next(method for method, loss in losses.items() if is_close(loss))


def _cross_validated(scored: _Scored, method: CalibrationMethod) -> Array:
    """Return log-probabilities, shape [n, n_options], from fits without the example's fold.

    An example without a right option cannot make its own prediction better: its fit may use it.
    """
    if method == "head":
        return scored.head_fit.log_probabilities
    fold_of = folds_of(scored.targets, scored.groups)
    log_p = np.zeros((len(scored.targets), scored.n_options))
    for fold in np.unique(fold_of):
        held_out = fold_of == fold
        baseline, temperature = _fit(scored, method, (fold_of != fold) | (fold_of < 0))
        log_p[held_out] = tempered(scored.by(method, baseline)[held_out], temperature)
    return log_p


def _groups(inputs: Iterable[Any]) -> NDArray[np.intp]:
    """Number the inputs so that copies have the same number.

    Copies stay together, because a fit must not be tested on what it has seen.
    """
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(input_text(each), len(numbers)) for each in inputs]
    return np.array(found, dtype=np.intp)


def _split(groups: NDArray[np.intp], is_split: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the examples for the fit, and of those for certifying.

    The halves of the groups are random, because stratified halves would not be independent, which
    the guarantees need. They are the same in every run.
    """
    if not is_split:
        return np.arange(len(groups)), np.arange(0)
    _, member = np.unique(groups, return_inverse=True)
    n = member.max(initial=-1) + 1
    is_used = np.isin(member, np.random.default_rng(0).permutation(n)[: n // 2])
    return np.flatnonzero(is_used), np.flatnonzero(~is_used)


def _certified(
    fitted: QuestionCalibration, held_out: _Scored, rule: Rule, risk: float, confidence: float
) -> QuestionCalibration:
    """Return a calibration with the threshold and the sets of examples it was not fitted on.

    Copies of an example count once, because they are not independent of each other.
    """
    held_out = held_out.at(np.flatnonzero(held_out.targets != UNTOLD))
    pairs = np.stack([held_out.groups, held_out.targets])
    held_out = held_out.at(np.sort(np.unique(pairs, axis=1, return_index=True)[1]))
    p = np.exp([applied(fitted, each, rule) for each in held_out.scores])
    right = p.argmax(axis=1) == held_out.targets
    return replace(
        fitted,
        threshold=certify(p.max(axis=1), right, risk=risk, confidence=confidence),
        sets=conformal(p, held_out.targets, risk),
    )


def _wanted_hidden(
    model: Any,
    method: str,
    how: PromptSettings,
    named: Sequence[tuple[str, AskedQuestion]],
    targets: NDArray[np.intp],
) -> WantedHidden | None:
    """Return the hidden states that heads are fitted to; None if no head is tried."""
    encodes = _encodes(model)
    if encodes and method not in ("auto", "head"):
        raise InvalidArgumentError(
            f'method must be "auto" or "head" for an encoder, which has no prompts, got {method!r}'
        )
    if encodes or method.startswith("head"):
        for i, (name, question) in enumerate(named):
            _check_each_option(question, name, targets[:, i])
        n_layers = model.session.hidden_shape[0]
        layers = (n_layers,) if encodes else tuple(candidate_layers(n_layers))
        is_scored = method != "head" and not encodes
        return WantedHidden((layers,) * len(named), (is_scored,) * len(named))
    has_enough = [
        method == "auto" and bool(_counts(targets[:, i], option_count(question)).all())
        for i, (_, question) in enumerate(named)
    ]
    found = _layers_for(model, how) if any(has_enough) else ()
    layers_of = tuple(found if enough else () for enough in has_enough)
    return WantedHidden(layers_of, (True,) * len(named)) if found else None


def _tried(
    model: Any, method: CalibrationMethod | Literal["auto"], how: PromptSettings, has_head: bool
) -> tuple[CalibrationMethod, ...]:
    if method != "auto":
        return (method,)
    if _encodes(model):
        return ("head",)
    without = {"unconditional"} if has_head or is_made(model, how) else set()
    if not has_head:
        without.add("head")
    return tuple(each for each in METHODS if _base(each) not in without)


def _encodes(model: Any) -> bool:
    """Return whether the model can only compute embeddings."""
    return is_encoder(getattr(model, "session", None))


def _layers_for(model: Any, how: PromptSettings) -> tuple[int, ...]:
    """Return the layers for a head; () if hidden states cannot be read."""
    if is_made(model, how):
        return ()
    try:
        layers = candidate_layers(model.session.hidden_shape[0])
        model.hidden_states("a", layers=layers)
    except NotSupportedError:
        return ()
    return tuple(layers)


def _counts(targets: NDArray[np.intp], n_options: int) -> NDArray[np.intp]:
    """Return how many examples each option is the right answer to."""
    return np.bincount(targets[targets != UNTOLD], minlength=n_options)


def _check_each_option(
    question: AskedQuestion, name: str, targets: NDArray[np.intp], is_half: bool = False
) -> None:
    options = option_names(question)
    counts = _counts(targets, len(options))
    if not counts.all():
        half = " in the half that is not for the risk" if is_half else ""
        raise InvalidArgumentError(
            f"the method head needs an example of each option of {name!r}, got none of "
            f"{options[counts.argmin()]!r}{half}"
        )


def _check_enough(method: str, names: Sequence[str], wanted: NDArray[np.bool_], least: int) -> None:
    for name, n in zip(names, wanted.sum(axis=0), strict=True):
        if n < least:
            half = "" if least == LEAST_EXAMPLES else ", half of them for the risk"
            raise InvalidArgumentError(
                f"the method {method} needs at least {least} examples of {name!r}{half}, "
                f"got {n}; 100 or more are better"
            )


def _base(method: CalibrationMethod) -> str:
    """Return a method without its temperature: ``"none"``, ``"contextual"``, ..."""
    return "none" if method == "temperature" else method.partition("+")[0]


def _is_fitted(method: CalibrationMethod) -> bool:
    return method.endswith("temperature") or _base(method) in ("batch", "head", "frequencies")
