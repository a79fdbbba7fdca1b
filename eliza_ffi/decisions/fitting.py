"""Fitting calibrations to examples, and choosing among methods by cross-validation.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
section 7.10: cross-validation, and the simplest model within one standard error of the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_callback, check_one_of
from ..errors import InvalidArgumentError
from .asking import How, WritePrompt, check_model
from .calibration import (
    METHODS,
    Calibration,
    CalibrationMethod,
    QuestionCalibration,
    prompt_name,
    wording_hash,
)
from .examples import (
    UNTOLD,
    OnSkip,
    Progress,
    ask_examples,
    is_made,
    named_questions,
    read_examples,
)
from .fingerprint import fingerprint_of
from .prompts import LabelStyle
from .scoring import (
    Array,
    QuestionScores,
    Rule,
    check_rule,
    fit_temperature,
    log_mean,
    relative_to,
    tempered,
)
from .wire import as_questions, question_to

__all__ = ["CONTENT_FREE", "EMPTY", "LEAST_EXAMPLES", "calibrate"]

EMPTY = ""
"""What scores of ``unconditional`` are relative to."""

CONTENT_FREE = ("N/A", EMPTY, "[MASK]")
"""Inputs that say nothing (Zhao et al. 2021), for ``contextual``."""

LEAST_EXAMPLES = 10
"""Of a question, for a method that is fitted on examples. 100 and more are better."""

MOST_FOLDS = 5


def calibrate(
    model: Any,
    questions: Any,
    examples: Iterable[tuple[Any, Mapping[str, Any]]],
    *,
    method: CalibrationMethod | Literal["auto"] = "temperature",
    rule: Rule = "legal",
    labels: LabelStyle = "text",
    orders: int = 1,
    prompt: WritePrompt | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> Calibration:
    """Fit a calibration to examples.

    Parameters
    ----------
    model
    questions
        In any form that :func:`~eliza_ffi.decisions.wire.as_questions` takes.
    examples
        Pairs of an input and the right answers, as
        :func:`~eliza_ffi.decisions.examples.read_examples` takes them. An example counts for the
        questions that it answers; for ``"batch"``, which learns from inputs alone, for all.
    method
        One of :data:`~eliza_ffi.decisions.calibration.METHODS`, or ``"auto"``: for each question
        the first of them whose NLL by cross-validation is no more than a standard error above the
        lowest. It has 5 folds or as many as there are examples, each with its share of every right
        answer, and the same whenever it is done. ``"auto"`` takes whole rows of logits, but for a
        model that was made for decisions: there it leaves ``"unconditional"`` out.
    rule, labels, orders, prompt
        How the questions are asked; the calibration holds for this alone. ``"unconditional"`` has a
        rule of its own.
    progress
        Called with how many inputs were asked about and how many there are.
    on_skip
        Called with the place of each example whose input cannot be asked about, such as one that
        does not fit into the context, and why; the others are learned from. None = that is an
        error.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidArgumentError
        If an argument is none of these, a question has fewer than :data:`LEAST_EXAMPLES` examples
        for a method that is fitted on them, or an input cannot be asked about; the text names the
        example.
    ContextFullError
        If an input does not fit into the context; so does this.
    """
    check_model(model)
    check_rule(rule)
    check_one_of("method", method, (*METHODS, "auto"))
    check_callback("progress", progress)
    check_callback("on_skip", on_skip)
    asked = as_questions(questions)
    named = named_questions(asked)
    told = read_examples(asked, examples)
    wanted = np.full(told.targets.shape, True) if method == "batch" else told.targets != UNTOLD
    how = How(labels=labels, orders=orders, prompt=prompt)
    tried = METHODS if method == "auto" else (method,)
    if method == "auto" and is_made(model, how):
        tried = tuple(each for each in METHODS if _base(each) != "unconditional")
    is_fitted = any(map(_is_fitted, tried))
    names, every = [name for name, _ in named], [question for _, question in named]
    if is_fitted:
        _check_enough(method, names, wanted)
    whole = rule != "legal" or any(_base(each) == "unconditional" for each in tried)
    seen, asked_about = ask_examples(
        model, told.inputs, every, wanted, how, whole=whole, progress=progress, on_skip=on_skip
    )
    if is_fitted:
        _check_enough(method, names, asked_about)
    plain = _plain_inputs(tried)
    everywhere = np.full((len(plain), len(named)), True)
    said_anyway, _ = ask_examples(
        model, plain, every, everywhere, how, whole=whole, called="content-free input"
    )
    fitted = []
    for place, (name, question) in enumerate(named):
        said = _Said.of(
            name,
            seen[place],
            dict(zip(plain, said_anyway[place], strict=True)),
            told.targets[asked_about[:, place], place],
            rule,
            tried,
        )
        fitted.append(_fit_best(question_to(question), said, tried))
    return Calibration(
        model=fingerprint_of(model),
        rule=rule,
        labels=labels,
        orders=orders,
        prompt=prompt_name(prompt),
        questions=tuple(fitted),
        wording=wording_hash(prompt),
    )


@dataclass(frozen=True, eq=False)
class _Said:
    """What a model said of a question's options for some examples.

    Attributes
    ----------
    targets : array of int, shape [n]
        The right options.
    log_p : array, shape [n, n_options]
        Log-probabilities by the scoring rule.
    content_free : array, shape [n_options], or None
        The mean of those of inputs that say nothing, if a method needs it.
    unconditional : array, shape [n, n_options], or None
        Log-probabilities relative to an empty input, if a method needs them.
    empty_joint : tuple of tuple of float, or None
        What these are relative to: for each order the joint scores of an empty input.
    """

    targets: NDArray[np.intp]
    log_p: Array
    content_free: Array | None
    unconditional: Array | None
    empty_joint: tuple[tuple[float, ...], ...] | None

    @classmethod
    def of(
        cls,
        name: str,
        scores: Sequence[QuestionScores],
        plain: Mapping[str, QuestionScores],
        targets: NDArray[np.intp],
        rule: Rule,
        tried: Sequence[CalibrationMethod],
    ) -> _Said:
        bases = {_base(method) for method in tried}
        log_p = [each.log_probabilities(rule) for each in scores]
        content_free, relative, empty_joint = None, None, None
        if "contextual" in bases:
            content_free = log_mean([plain[text].log_probabilities(rule) for text in CONTENT_FREE])
        if "unconditional" in bases:
            empty_joint = tuple(
                tuple(float(score) for score in one.of("joint")) for one in plain[EMPTY].orders
            )
            relative = [each.unconditional_log_probabilities(empty_joint) for each in scores]
        for values in (log_p, relative):
            if values and not np.isfinite(values).all():
                raise InvalidArgumentError(
                    f"the model gives an option of {name!r} no probability at all"
                )
        return cls(
            targets,
            np.array(log_p),
            content_free,
            None if relative is None else np.array(relative),
            empty_joint,
        )

    @property
    def is_told(self) -> NDArray[np.bool_]:
        """Of which examples the right option is known."""
        known: NDArray[np.bool_] = self.targets != UNTOLD
        return known

    def by(self, method: CalibrationMethod, baseline: Array | None) -> Array:
        """Return the log-probabilities that a method's temperature is applied to."""
        if _base(method) == "unconditional":
            assert self.unconditional is not None
            return self.unconditional
        return self.log_p if baseline is None else relative_to(self.log_p, baseline)


def _fit(
    said: _Said, method: CalibrationMethod, rows: NDArray[np.bool_]
) -> tuple[Array | None, float]:
    """Return a method's baseline and temperature, fitted on some of the examples."""
    baseline = None
    if _base(method) == "contextual":
        baseline = said.content_free
    elif _base(method) == "batch":
        baseline = log_mean(said.log_p[rows])
    if not method.endswith("temperature"):
        return baseline, 1.0
    rows = rows & said.is_told
    return baseline, fit_temperature(said.by(method, baseline)[rows], said.targets[rows])


def _fit_best(
    question: Mapping[str, Any], said: _Said, tried: Sequence[CalibrationMethod]
) -> QuestionCalibration:
    """Return the best of some methods, fitted on all examples."""
    compared = tried if "none" in tried else ("none", *tried)
    losses = {each: _cross_validated(said, each) for each in compared}
    method = _simplest({each: losses[each] for each in tried})
    baseline, temperature = _fit(said, method, np.full(len(said.targets), True))
    return QuestionCalibration(
        question=question,
        method=method,
        n_examples=len(said.targets),
        nll={each: float(loss.mean()) for each, loss in losses.items() if len(loss)},
        temperature=temperature,
        baseline=None if baseline is None else tuple(float(each) for each in baseline),
        empty_joint=said.empty_joint if _base(method) == "unconditional" else None,
    )


def _simplest(losses: Mapping[CalibrationMethod, Array]) -> CalibrationMethod:
    """Return the first method that is not worse than the best by more than chance has it.

    All were judged by the same examples, so the error is that of the mean of the differences.
    """
    best = min(losses.values(), key=lambda loss: loss.sum())
    for method, loss in losses.items():
        worse = loss - best
        n = len(worse)
        if n < 2 or worse.mean() <= worse.std(ddof=1) / np.sqrt(n):
            return method
    raise AssertionError("the best is not worse than itself")


def _cross_validated(said: _Said, method: CalibrationMethod) -> Array:
    """Return -log p of the right option of each example that tells it, by a fit without its fold.

    The order is the same for all methods.
    """
    fold_of = _folds(said.targets)
    losses = np.zeros(len(said.targets))
    for fold in range(int(fold_of.max(initial=-1)) + 1):
        held_out = np.flatnonzero(fold_of == fold)
        baseline, temperature = _fit(said, method, fold_of != fold)
        values = tempered(said.by(method, baseline)[held_out], temperature)
        losses[held_out] = -values[np.arange(len(held_out)), said.targets[held_out]]
    return losses[said.is_told]


def _folds(targets: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the fold of each example, -1 where the right option is not known.

    Dealt out by the right option like cards, so that each fold has its share of every one.
    """
    told = np.flatnonzero(targets != UNTOLD)
    folds = np.full(len(targets), -1, dtype=np.intp)
    by_option = told[np.argsort(targets[told], kind="stable")]
    folds[by_option] = np.arange(len(told)) % MOST_FOLDS
    return folds


def _plain_inputs(tried: Sequence[CalibrationMethod]) -> tuple[str, ...]:
    bases = {_base(method) for method in tried}
    if "contextual" in bases:
        return CONTENT_FREE
    return (EMPTY,) if "unconditional" in bases else ()


def _check_enough(method: str, names: Sequence[str], wanted: NDArray[np.bool_]) -> None:
    for name, n in zip(names, wanted.sum(axis=0), strict=True):
        if n < LEAST_EXAMPLES:
            raise InvalidArgumentError(
                f"{method} needs {LEAST_EXAMPLES} examples of {name!r} or more, not {n}; "
                "100 and more are better"
            )


def _base(method: CalibrationMethod) -> str:
    """Return what comes before a temperature: ``"none"``, ``"contextual"``, ..."""
    return "none" if method == "temperature" else method.partition("+")[0]


def _is_fitted(method: CalibrationMethod) -> bool:
    """Return whether there is anything of it that examples decide."""
    return method.endswith("temperature") or _base(method) == "batch"
