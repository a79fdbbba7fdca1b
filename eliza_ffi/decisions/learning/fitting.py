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
from ...errors import InvalidArgumentError
from ...session.requests import check_keywords
from ..asking import check_model
from ..auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from ..examples import (
    UNTOLD,
    Examples,
    OnSkip,
    Progress,
    ask_examples,
    is_made,
    named_questions,
    read_examples,
)
from ..fingerprint import fingerprint_of
from ..option_prior import CONTENT_FREE
from ..prompt_settings import PromptArguments, PromptSettings
from ..questions import Question
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
    METHODS,
    Calibration,
    CalibrationMethod,
    QuestionCalibration,
    prompt_name,
    wording_hash,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CONTENT_FREE", "EMPTY", "LEAST_EXAMPLES", "calibrate", "fit", "folds_of"]

EMPTY = ""
"""The input that the method ``unconditional`` compares other inputs with."""

LEAST_EXAMPLES = 10
"""The minimum number of examples per question for a fitted method. Use 100 or more if possible."""

MOST_FOLDS = 5


def calibrate(
    model: Any,
    questions: Any,
    examples: Iterable[tuple[Any, Any]],
    *,
    method: CalibrationMethod | Literal["auto"] = "temperature",
    rule: Rule = "legal",
    strength: float = 1.0,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    prompt_examples: Any = None,
    **prompts: Unpack[PromptArguments],
) -> Calibration:
    """Fit a calibration to labelled examples.

    Parameters
    ----------
    model
        An open model.
    questions
        In any form that :func:`~eliza_ffi.decisions.wire.as_questions` accepts.
    examples
        Pairs of an input and the right answers, in the form that
        :func:`~eliza_ffi.decisions.examples.read_examples` accepts. A question is fitted on the
        examples that answer it. The method ``"batch"`` needs no answers and uses all examples.
    method
        One of :data:`.calibration.METHODS`, or ``"auto"``. For each question
        ``"auto"`` selects the first method whose NLL in cross-validation is at most one standard
        error above the lowest. Cross-validation uses 5 folds, or one for each example if there are
        fewer. All folds have about the same proportions of right answers, and the folds are the
        same in every run. ``"auto"`` needs whole rows of logits, except for a decision model, where
        it does not try ``"unconditional"``.
    rule
        The scoring rule. The method ``"unconditional"`` ignores it.
    strength
        The exponent of the baseline that the probabilities are divided by, 0 to 1.
    progress
        Called with the number of finished inputs and the number of all inputs.
    on_skip
        Called with the index of each example whose input cannot be used, for example because it
        does not fit into the context, and with the reason. The other examples are still used. None
        raises an error instead.
    prompt_examples
        The examples in the prompts, as `examples` of :meth:`~eliza_ffi.Model.decide`.
    **prompts
        `labels`, `orders`, `prompt`, `prompt_order`, `prompt_format` and `prior` of
        :meth:`~eliza_ffi.Model.decide`. The calibration is valid only for these settings, and
        contains them.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidArgumentError
        If an argument is wrong, if a question has fewer than :data:`LEAST_EXAMPLES` examples for a
        method that is fitted on them, or if an input cannot be used. In the last case the message
        names the example.
    ContextFullError
        If an input does not fit into the context. The message names the example.
    """
    check_model(model)
    check_rule(rule)
    check_one_of("method", method, (*METHODS, "auto"))
    check_callback("progress", progress)
    check_callback("on_skip", on_skip)
    asked = as_questions(questions)
    labelled = read_examples(asked, examples)
    strength = check_number("strength", strength, 0, 1)
    check_keywords("calibrate", prompts, PromptArguments.__annotations__.keys())
    how = settings_of_prompts(
        model.session,
        asked,
        prompts,
        examples=prompt_examples,
        inputs=sample_of(labelled.inputs, N_SAMPLE),
    )
    return fit(model, asked, labelled, how, method, rule, strength, progress, on_skip)


def fit(
    model: Any,
    questions: Sequence[Question],
    labelled: Examples,
    how: PromptSettings,
    method: CalibrationMethod | Literal["auto"],
    rule: Rule,
    strength: float,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    stream: Mapping[str, Any] | None = None,
) -> Calibration:
    """Fit a calibration with checked arguments of :func:`calibrate`.

    `stream` has the settings of the streams: slot and cache.
    """
    named = named_questions(questions)
    wanted = (
        np.full(labelled.targets.shape, True) if method == "batch" else labelled.targets != UNTOLD
    )
    tried = METHODS if method == "auto" else (method,)
    if method == "auto" and is_made(model, how):
        tried = tuple(each for each in METHODS if _base(each) != "unconditional")
    bases = {_base(each) for each in tried}
    is_fitted = any(map(_is_fitted, tried))
    names, every = [name for name, _ in named], [question for _, question in named]
    if is_fitted:
        _check_enough(method, names, wanted)
    whole = rule != "legal" or "unconditional" in bases
    asking = partial(ask_examples, model, whole=whole, stream=stream)
    seen, asked_about = asking(
        labelled.inputs, every, wanted, how, progress=progress, on_skip=on_skip
    )
    if is_fitted:
        _check_enough(method, names, asked_about)
    plain = CONTENT_FREE if "contextual" in bases else (EMPTY,) if "unconditional" in bases else ()
    everywhere = np.full((len(plain), len(named)), True)
    plain_scores, _ = asking(plain, every, everywhere, how, called="content-free input")
    fitted = []
    for place, (name, question) in enumerate(named):
        targets = labelled.targets[asked_about[:, place], place]
        of_plain = dict(zip(plain, plain_scores[place], strict=True))
        scored = _Scored(name, seen[place], targets, of_plain, rule, strength)
        shots = tuple((shot.text, shot.option) for shot in how.shots_of(question))
        fitted.append(replace(_fit_best(question_to(question), scored, tried), examples=shots))
    return Calibration(
        model=fingerprint_of(model),
        rule=rule,
        labels=how.labels,
        orders=how.orders,
        prompt=prompt_name(how.prompt),
        prompt_order=how.order,
        prompt_format=how.format,
        prior=how.prior,
        questions=tuple(fitted),
        wording=wording_hash(how.prompt),
    )


@dataclass(frozen=True, eq=False)
class _Scored:
    """Hold the scores of a question's options for some examples.

    Attributes
    ----------
    scores : sequence of QuestionScores
        The scores for each example.
    targets : array of int, shape [n]
        The index of the right option of each example.
    plain : mapping of str to QuestionScores
        The scores for the content-free inputs that the tried methods need.
    """

    name: str
    scores: Sequence[QuestionScores]
    targets: NDArray[np.intp]
    plain: Mapping[str, QuestionScores]
    rule: Rule
    strength: float = 1.0

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
        return tuple(tuple(one.of("joint").tolist()) for one in self.plain[EMPTY].orders)

    def baseline(self, method: CalibrationMethod, rows: NDArray[np.bool_]) -> Array | None:
        """Return the baseline of a method, fitted on the examples in `rows`."""
        if _base(method) == "contextual":
            free = [self.plain[each].log_probabilities(self.rule) for each in CONTENT_FREE]
            return self.strength * log_mean(free)
        if _base(method) == "batch":
            return self.strength * log_mean(self.log_p[rows])
        return None

    def by(self, method: CalibrationMethod, baseline: Array | None) -> Array:
        """Return the log-probabilities before the temperature of a method is applied."""
        if _base(method) == "unconditional":
            return self.unconditional
        return self.log_p if baseline is None else relative_to(self.log_p, baseline)

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
    """Fit the baseline and the temperature of a method on the examples in `rows`."""
    baseline = scored.baseline(method, rows)
    if not method.endswith("temperature"):
        return baseline, 1.0
    rows = rows & (scored.targets != UNTOLD)
    return baseline, fit_temperature(scored.by(method, baseline)[rows], scored.targets[rows])


def _fit_best(
    question: Mapping[str, Any], scored: _Scored, tried: Sequence[CalibrationMethod]
) -> QuestionCalibration:
    """Select a method by cross-validation, and fit it on all examples."""
    compared = tried if "none" in tried else ("none", *tried)
    losses = {each: _cross_validated(scored, each) for each in compared}
    method = _simplest({each: losses[each] for each in tried})
    baseline, temperature = _fit(scored, method, np.full(len(scored.targets), True))
    return QuestionCalibration(
        question=question,
        method=method,
        n_examples=len(scored.targets),
        nll={each: float(loss.mean()) for each, loss in losses.items() if len(loss)},
        temperature=temperature,
        baseline=None if baseline is None else tuple(float(each) for each in baseline),
        empty_joint=scored.empty_joint if _base(method) == "unconditional" else None,
    )


def _simplest(losses: Mapping[CalibrationMethod, Array]) -> CalibrationMethod:
    """Return the first method whose loss is at most one standard error above the lowest.

    All methods were evaluated on the same examples, so the standard error is computed from the
    differences of their losses.
    """
    best = min(losses.values(), key=lambda loss: loss.sum())

    def is_close(loss: Array) -> bool:
        worse = loss - best
        n = len(worse)
        return n < 2 or bool(worse.mean() <= worse.std(ddof=1) / np.sqrt(n))

    return next(method for method, loss in losses.items() if is_close(loss))


def _cross_validated(scored: _Scored, method: CalibrationMethod) -> Array:
    """Return -log p of the right option of each example, from a fit without the example's fold.

    Examples without a known right option are left out. The order is the same for all methods.
    """
    fold_of = folds_of(scored.targets)
    losses = np.zeros(len(scored.targets))
    for fold in range(int(fold_of.max(initial=-1)) + 1):
        held_out = np.flatnonzero(fold_of == fold)
        baseline, temperature = _fit(scored, method, fold_of != fold)
        values = tempered(scored.by(method, baseline)[held_out], temperature)
        losses[held_out] = -values[np.arange(len(held_out)), scored.targets[held_out]]
    return losses[fold_of >= 0]


def folds_of(targets: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the fold of each example, or -1 if its right option is not known.

    The examples are sorted by their right option and then dealt to the folds in turn, so that all
    folds have about the same proportions of right options.
    """
    labelled = np.flatnonzero(targets != UNTOLD)
    folds = np.full(len(targets), -1, dtype=np.intp)
    by_option = labelled[np.argsort(targets[labelled], kind="stable")]
    folds[by_option] = np.arange(len(labelled)) % MOST_FOLDS
    return folds


def _check_enough(method: str, names: Sequence[str], wanted: NDArray[np.bool_]) -> None:
    for name, n in zip(names, wanted.sum(axis=0), strict=True):
        if n < LEAST_EXAMPLES:
            raise InvalidArgumentError(
                f"the method {method} needs at least {LEAST_EXAMPLES} examples of {name!r}, "
                f"got {n}; 100 or more are better"
            )


def _base(method: CalibrationMethod) -> str:
    """Return a method without its temperature: ``"none"``, ``"contextual"``, ..."""
    return "none" if method == "temperature" else method.partition("+")[0]


def _is_fitted(method: CalibrationMethod) -> bool:
    """Return whether a method has a parameter that is fitted on the examples."""
    return method.endswith("temperature") or _base(method) == "batch"
