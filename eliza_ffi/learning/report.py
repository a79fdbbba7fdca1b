"""Evaluate the decisions of a model on labelled examples."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ..checks import check_callback, check_path, check_whole
from ..decisions.answers import single_answers
from ..decisions.examples import UNLABELLED, named_questions, option_names, read_examples
from ..decisions.fingerprint import fingerprint_of
from ..decisions.layout import PromptFormat, PromptOrder
from ..decisions.probabilities import Array
from ..decisions.prompt_settings import DEFAULT_PROMPT, MAX_ORDERS, OptionPrior, PromptArguments
from ..decisions.prompts import AnswerStyle, AskedQuestion
from ..decisions.questions import Score
from ..decisions.wire import as_questions, question_to
from ..errors import InvalidArgumentError
from ..evidence.auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from ..evidence.calibration import Calibration, QuestionCalibration, as_calibration, scoring_of
from ..evidence.cascade import (
    Cascade,
    CascadeCalibration,
    CascadePlan,
    decision_of,
    read_inputs,
)
from ..evidence.comparing import check_comparable, only_compares
from ..evidence.doubts import MIN_ROWS, reason_to_doubt_accuracy, reasons_to_doubt
from ..evidence.question_plan import check_model
from ..evidence.rewording import N_INPUTS, in_other_words, recentred
from ..evidence.scoring import QuestionScores, ScoringRule
from ..session.requests import check_keywords
from ..terminal import counted, printable, text_table, wrap
from . import metrics
from .examples import OnSkip, Progress, ask_examples, is_made, raised_or_skipped
from .metrics import CostReport, CoveragePoint, OptionReport, QuestionReport, SetReport
from .pictures import draw_coverage, draw_reliability
from .thresholds import automation

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_BINS = 1000
"""The largest number of bins of a reliability diagram."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DecisionReport:
    """Report the quality of a model's decisions.

    Attributes
    ----------
    model : str
        The fingerprint of the model.
    scoring, answer_style : str
    orders : int
    prompt, prompt_order, prompt_format, prior : str
        The settings of the questions, as in :class:`~eliza_ffi.evidence.Calibration`.
    n_examples : int
        The number of examples in the prompts of all questions together.
    calibrated : bool
        Whether a calibration was applied to the probabilities. If not, they are the model's own
        probabilities.
    questions : tuple of QuestionReport
        One for each question with a single answer.
    overall : QuestionReport
        The report of all questions together.
    """

    model: str
    scoring: ScoringRule
    answer_style: AnswerStyle
    orders: int
    prompt: str
    prompt_order: PromptOrder
    prompt_format: PromptFormat
    prior: OptionPrior
    n_examples: int
    calibrated: bool
    questions: tuple[QuestionReport, ...]
    overall: QuestionReport

    def text(self, width: int | None = None) -> str:
        """Return tables for a terminal: the metrics, and the accuracy of confident answers.

        `width` is the number of columns. None uses as many as the tables need.
        """
        if width is not None:
            width = check_whole("width", width, 1)
        shown = [*self.questions, self.overall]
        kind = "calibrated" if self.calibrated else "uncalibrated"
        settings = (
            f"model {self.model}, {kind} probabilities, scoring {self.scoring}, "
            f"answer style {self.answer_style}, orders {self.orders}, prompt {self._prompt}"
        )
        caption = (
            "Answers with at least this probability: their share of all answers, and their accuracy"
        )
        thresholds = [f"{point.threshold:g}" for point in self.overall.coverage]
        metrics = text_table([_HEAD, *map(_metrics_row, shown)], left=2, width=width)
        shares = text_table([["question", *thresholds], *map(_coverage_row, shown)], width=width)
        head = wrap(printable(settings), width)
        automated = (
            "At 5 % error: how many answers can be automated if at most 5 % of them may be wrong, "
            "with a 90 % interval"
        )
        tables = [f"{metrics}\n", f"{wrap(automated, width)}\n", wrap(caption, width), shares]
        parts = [f"{head}\n", *tables]
        notes = [line for each in self.questions if (line := _risk_line(each))]
        notes += [f"Warning: {reason}" for reason in self.overall.warnings]
        return "\n".join([*parts, *(f"\n{wrap(printable(note), width)}" for note in notes)])

    @property
    def _prompt(self) -> str:
        if self.prompt != DEFAULT_PROMPT:
            return self.prompt
        parts = [self.prompt_format, self.prompt_order, f"prior {self.prior}"]
        if self.n_examples:
            parts.append(counted(self.n_examples, "example"))
        return f"{self.prompt} ({', '.join(parts)})"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data, without the individual answers."""
        return {
            **vars(self),
            "questions": [question.to_json() for question in self.questions],
            "overall": self.overall.to_json(),
        }

    def save_plots(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``reliability.png`` and ``coverage.png`` into a folder, and return both paths.

        The folder is created if it does not exist. This needs matplotlib.
        """
        target = Path(check_path("folder", folder))
        target.mkdir(parents=True, exist_ok=True)
        files = target / "reliability.png", target / "coverage.png"
        shown = [self.overall, *self.questions] if len(self.questions) > 1 else self.questions
        draw_reliability(shown, files[0])
        draw_coverage(shown, files[1])
        return files


@overload
def evaluate(
    model: Cascade,
    questions: Any,
    rows: Iterable[tuple[Any, Any]],
    *,
    calibration: CascadeCalibration | str | os.PathLike[str] | None = None,
    bins: int = 10,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> CascadeReport: ...


@overload
def evaluate(
    model: Any,
    questions: Any,
    rows: Iterable[tuple[Any, Any]],
    *,
    calibration: Calibration | str | os.PathLike[str] | None = None,
    scoring: ScoringRule | None = None,
    reorder: int | None = None,
    bins: int = 10,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    examples: Any = None,
    **prompts: Unpack[PromptArguments],
) -> DecisionReport: ...


def evaluate(
    model: Any,
    questions: Any,
    rows: Iterable[tuple[Any, Any]],
    *,
    calibration: Any = None,
    scoring: ScoringRule | None = None,
    reorder: int | None = None,
    bins: int = 10,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    examples: Any = None,
    **prompts: Unpack[PromptArguments],
) -> DecisionReport | CascadeReport:
    """Evaluate the decisions of a model or a cascade on labelled examples.

    The report of a :class:`~eliza_ffi.Cascade` is a :class:`.report.CascadeReport`. It takes only
    `calibration`, `bins`, `progress` and `on_skip`.

    >>> examples = [("I was charged twice.", "billing"), ("I forgot my password.", "login")]
    >>> evaluate(model, Choice("Which team?", ["billing", "login"]), examples).questions[0].accuracy
    1.0

    Parameters
    ----------
    model, questions, rows, progress, on_skip, examples
        As for :func:`~eliza_ffi.learning.calibrate`. Do not use the rows on which the
        calibration was fitted: the result would be too good.
    calibration
        A calibration, or the path of its file. It must have been fitted for this model, these
        questions and these settings.
    scoring
        The scoring rule. None = the calibration's, or ``"constrained"`` without a calibration.
    reorder
        Ask about each example in at least this many orders of the options, to find answers that
        depend on the order. This affects only the metric `flips`. A value of at most `orders` adds
        no orders. None means 2, or 1 for a decision model, which has its own orders.
    bins
        The number of bins of the reliability diagram and the ECE.
    **prompts
        `answer_style`, `orders`, `prompt`, `prompt_order`, `prompt_format` and `prior` of
        :meth:`~eliza_ffi.Model.decide`. The defaults come from the calibration.

    Raises
    ------
    InvalidArgumentError, ContextFullError
        If an argument is out of range, if the calibration does not match, if no example answers
        one of the questions, or if an input cannot be used or does not fit into the context. The
        message names the example.
    """
    if isinstance(model, Cascade):
        return _evaluate_cascade(model, questions, rows, calibration, bins, progress, on_skip)
    check_model(model)
    check_callback("progress", progress)
    check_callback("on_skip", on_skip)
    calibration = as_calibration(calibration)
    asked = as_questions(questions)
    if calibration is not None:
        calibration = in_other_words(calibration, asked)
    scoring = scoring_of(calibration, scoring)
    check_keywords("evaluate", prompts, PromptArguments.__annotations__.keys())
    if reorder is not None:
        reorder = check_whole("reorder", reorder, 1, MAX_ORDERS)
    bins = check_whole("bins", bins, 1, MAX_BINS)
    named = named_questions(asked)
    labelled = read_examples(asked, rows)
    wanted = labelled.targets != UNLABELLED
    _check_answered(named, wanted)
    settings = settings_of_prompts(
        model.session,
        asked,
        prompts,
        examples=examples,
        calibration=calibration,
        inputs=sample_of(labelled.inputs, N_SAMPLE),
    )
    if reorder is None:
        reorder = 1 if is_made(model, settings) else 2
    fingerprint = fingerprint_of(model)
    if calibration is not None:
        calibration.check(fingerprint, asked, settings)

    for _, question in named if calibration is None else ():
        check_comparable(model.session, question)
    scores, asked_about = ask_examples(
        model,
        labelled.inputs,
        [question for _, question in named],
        wanted,
        replace(settings, orders=max(settings.orders, reorder)),
        whole=scoring != "constrained"
        or (calibration is not None and calibration.needs_whole_rows),
        progress=progress,
        on_skip=on_skip,
        hidden=None if calibration is None else calibration.wanted_hidden,
    )
    _check_answered(named, asked_about)
    if calibration is not None and calibration.needs_inputs and not only_compares(model.session):
        calibration = recentred(calibration, [sample_of(each, N_INPUTS) for each in scores])
    reports = []
    for i, (name, question) in enumerate(named):
        fitted = None if calibration is None else calibration.questions[i]
        asked_for = [each.first(settings.orders) for each in scores[i]]
        log_p = np.array(
            [
                each.log_probabilities(scoring) if fitted is None else fitted.apply(each, scoring)
                for each in asked_for
            ]
        )
        targets = labelled.targets[asked_about[:, i], i]
        masses = [
            each.allowed_probability for each in asked_for if each.allowed_probability is not None
        ]
        flips = _flips(scores[i], scoring)
        answers = None if fitted is None else fitted.answers(np.exp(log_p))
        report = question_report(name, question, log_p, targets, flips, bins, masses, answers)
        reports.append(report if fitted is None else _with_risk(report, fitted, log_p, targets))
    return DecisionReport(
        **settings.described(),
        model=fingerprint,
        scoring=scoring,
        n_examples=sum(len(shots) for _, shots in settings.examples),
        calibrated=calibration is not None,
        questions=tuple(reports),
        overall=overall_report(reports, bins),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class CascadeReport:
    """Report the quality of a cascade's decisions.

    Attributes
    ----------
    questions : tuple of QuestionReport
        One for each question with a single answer.
    rows : dict of str to int
        How many rows ended at each source, and how many of all rows are for ``"review"``.
    cpu_seconds : dict of str to float
        The CPU time in which each source read its rows.
    certificate : str or None
        What the calibration has certified.
    """

    questions: tuple[QuestionReport, ...]
    rows: dict[str, int]
    cpu_seconds: dict[str, float]
    certificate: str | None = None

    def text(self, width: int | None = None) -> str:
        """Return tables for a terminal; `width` is the number of columns."""
        metrics = text_table([_HEAD, *map(_metrics_row, self.questions)], left=2, width=width)
        parts = [metrics, text_table([_STAGE_HEAD, *self._stages()], left=1, width=width)]
        if self.certificate is not None:
            parts.append(wrap(printable(self.certificate), width))
        return "\n\n".join(parts)

    def _stages(self) -> Iterator[list[str]]:
        n_read = sum(self.rows.values()) - self.rows["review"]
        for name, seconds in self.cpu_seconds.items():
            n_ended = self.rows[name]
            each = f"{1e3 * seconds / n_read:,.1f}" if n_read else "-"
            yield [name, f"{n_read:,}", f"{n_ended:,}", f"{seconds:,.2f}", each]
            n_read -= n_ended
        yield ["for review", "", f"{self.rows['review']:,}", "", ""]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data, without the individual answers."""
        return {**vars(self), "questions": [each.to_json() for each in self.questions]}


def _evaluate_cascade(
    cascade: Cascade,
    questions: Any,
    rows: Any,
    calibration: Any,
    bins: int,
    progress: Progress | None,
    on_skip: OnSkip | None,
) -> CascadeReport:
    bins = check_whole("bins", bins, 1, MAX_BINS)
    plan = CascadePlan(cascade, questions, calibration)
    examples = read_examples(plan.questions, rows)
    failed = raised_or_skipped(on_skip)
    every = read_inputs(plan, examples.inputs, failed, progress=progress)
    used = [place for place, each in enumerate(every) if isinstance(each, list)]
    readings = [every[place] for place in used]
    decided, targets_of = [decision_of(plan, each) for each in readings], examples.targets[used]
    reports, named = [], named_questions(plan.questions)
    _check_answered(named, targets_of != UNLABELLED)
    for i, (name, question) in enumerate(named):
        labelled = np.flatnonzero(targets_of[:, i] != UNLABELLED)
        singles = [
            [each for _, each in single_answers(decided[row])][i] for row in labelled.tolist()
        ]
        p = np.array([each.distribution for each in singles])
        log_p = np.log(np.maximum(p, np.finfo(float).tiny))
        targets = targets_of[labelled, i]
        reports.append(question_report(name, question, log_p, targets, None, bins, ()))
    stages = [each.stage for each in decided]
    review = sum(any(answer.abstained for answer in each.values()) for each in decided)
    names = cascade.names
    return CascadeReport(
        questions=tuple(reports),
        rows={name: stages.count(n) for n, name in enumerate(names, 1)} | {"review": review},
        cpu_seconds={
            name: sum(each[n].cpu_seconds for each in readings if len(each) > n)
            for n, name in enumerate(names)
        },
        certificate=None if plan.calibration is None else str(plan.calibration),
    )


def _check_answered(named: Sequence[tuple[str, AskedQuestion]], wanted: NDArray[np.bool_]) -> None:
    for (name, _), is_wanted in zip(named, wanted.T, strict=True):
        if not is_wanted.any():
            raise InvalidArgumentError(f"no example answers {name!r}")


def _flips(scores: Sequence[QuestionScores], scoring: ScoringRule) -> float | None:
    """Return the proportion of examples whose answer depends on the order of the options.

    None if the options were not shown in several orders. With a head, options have no order.
    """
    if len(scores[0].orders) < 2:
        return None
    answers = [[int(one.argmax()) for one in each.by_order(scoring)] for each in scores]
    return metrics.flip_rate(np.array(answers).T)


def question_report(
    name: str,
    question: AskedQuestion,
    log_p: Array,
    targets: NDArray[np.intp],
    flips: float | None = None,
    bins: int = 10,
    masses: Sequence[float] = (),
    answers: NDArray[np.intp] | None = None,
) -> QuestionReport:
    """Report the answers to one question.

    `log_p` has the log-probabilities of the options, shape [n, n_options], and `targets` the right
    options, shape [n]. `masses` has the allowed probabilities that are known. `answers` has the
    given answers, shape [n]; None = the most probable options.
    """
    p = np.exp(log_p)
    answers = p.argmax(axis=1) if answers is None else answers
    probabilities, right = p[np.arange(len(p)), answers], answers == targets
    confusion = metrics.confusion_matrix(answers, targets, p.shape[1])
    majority = float(np.bincount(targets).max() / len(targets))
    options = option_names(question)
    counts = Counter(options[answer] for answer in answers.tolist())
    reasons = reasons_to_doubt(name, counts, masses)
    if len(targets) >= MIN_ROWS:
        reasons += reason_to_doubt_accuracy(name, float(right.mean()), majority)
    return QuestionReport(
        name=name,
        kind=question_to(question)["type"],
        options=options,
        majority=majority,
        macro_f1=metrics.macro_f1(confusion),
        nll=metrics.nll(log_p, targets),
        brier=metrics.brier(p, targets),
        confusion=tuple(map(tuple, confusion.tolist())),
        flips=flips,
        level_error=metrics.level_error(p, targets) if isinstance(question, Score) else None,
        warnings=tuple(reasons),
        **_of_answers(probabilities, right, bins),
    )


def _of_answers(probabilities: Array, right: NDArray[np.bool_], bins: int) -> dict[str, Any]:
    """Return the fields of a report that need only the probabilities of the answers."""
    diagram = metrics.reliability(probabilities, right, bins)
    return {
        "n": len(right),
        "accuracy": float(right.mean()),
        "ece": metrics.calibration_error(diagram),
        "bins": diagram,
        "coverage": metrics.coverage(probabilities, right),
        "automated": automation(probabilities, right),
        "probabilities": probabilities,
        "right": right,
    }


def _with_risk(
    report: QuestionReport, fitted: QuestionCalibration, log_p: Array, targets: NDArray[np.intp]
) -> QuestionReport:
    """Add how well the certified threshold and the sets did on the evaluated examples."""
    certified, sets = None, None
    p = np.exp(log_p)
    is_certified = np.full(len(targets), False)
    if fitted.threshold is not None and fitted.threshold.threshold is not None:
        is_certified = fitted.certifies(p)
        accuracy = _mean(report.right[is_certified])
        least = fitted.threshold.threshold
        certified = CoveragePoint(least, float(is_certified.mean()), accuracy)
    has_right = np.full(len(targets), False)
    if fitted.sets is not None:
        found = fitted.sets_of(p)
        has_right[:] = [y in each for each, y in zip(found, targets.tolist(), strict=True)]
        sets = SetReport(float(has_right.mean()), fmean(map(len, found)))
    by_option = tuple(
        OptionReport(
            option=option,
            n=int(is_right.sum()),
            certified=float(is_certified[is_right].mean()),
            accuracy=_mean(report.right[is_right & is_certified]),
            in_set=float(has_right[is_right].mean()),
        )
        for k, option in enumerate(report.options)
        if (is_right := targets == k).any()
    )
    has_risk = fitted.threshold is not None
    if (costs := fitted.costs) is not None:
        is_given = is_certified if has_risk else ~costs.is_review(p)
        of_answers = costs.of_answers(fitted.answers(p), targets)
        most_expected = fitted.threshold.most_expected if fitted.threshold is not None else None
        report = replace(report, costs=CostReport(_mean(of_answers[is_given]), most_expected))
    return replace(report, certified=certified, sets=sets, by_option=by_option if has_risk else ())


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def overall_report(reports: Sequence[QuestionReport], bins: int = 10) -> QuestionReport:
    """Report the answers to several questions together, each answer with the same weight."""
    probabilities = np.concatenate([each.probabilities for each in reports])
    right = np.concatenate([each.right for each in reports])
    reordered = [each for each in reports if each.flips is not None]

    def mean(name: str, of: Sequence[QuestionReport] = reports) -> float:
        return float(np.average([getattr(each, name) for each in of], weights=[e.n for e in of]))

    return QuestionReport(
        name="all",
        kind="all",
        options=(),
        majority=mean("majority"),
        macro_f1=fmean(each.macro_f1 for each in reports),
        nll=mean("nll"),
        brier=mean("brier"),
        confusion=(),
        flips=mean("flips", reordered) if reordered else None,
        level_error=None,
        warnings=tuple(reason for each in reports for reason in each.warnings),
        **_of_answers(probabilities, right, bins),
    )


_STAGE_HEAD = ["source", "read", "ended", "CPU s", "ms a row"]

_HEAD = (
    *("question", "kind", "n", "accuracy", "at 5 % error", "majority"),
    *("macro-F1", "NLL", "Brier", "ECE", "flips", "level error"),
)


def _metrics_row(report: QuestionReport) -> list[str]:
    figures = (report.macro_f1, report.nll, report.brier, report.ece)
    return [
        report.name,
        report.kind,
        str(report.n),
        f"{report.accuracy:.1%}",
        str(report.automated),
        f"{report.majority:.1%}",
        *(f"{figure:.3f}" for figure in figures),
        "-" if report.flips is None else f"{report.flips:.1%}",
        "-" if report.level_error is None else f"{report.level_error:.2f}",
    ]


def _risk_line(report: QuestionReport) -> str:
    """Return a sentence about the certified answers and the sets of a question."""
    found = []
    if (point := report.certified) is not None:
        wrong = "" if point.accuracy is None else f", and {1 - point.accuracy:.1%} of these wrong"
        least = f"with a probability of at least {point.threshold:g}"
        if report.costs is not None:
            least = f"with an expected cost of at most {report.costs.most_expected:.3g}"
        found.append(f"{point.coverage:.1%} of the answers are certified ({least}){wrong}")
    if (sets := report.sets) is not None:
        found.append(
            f"the sets have {sets.size:.2f} options on average, and {sets.coverage:.1%} of them "
            "contain the right one"
        )
    if report.costs is not None and report.costs.mean is not None:
        which = "certified answers" if report.by_option else "answers that need no review"
        found.append(f"the {which} cost {report.costs.mean:.3g} on average")
    if not found:
        return ""
    return f"{report.name}: {'; '.join(found)}.{_rarest_option(report)}"


def _rarest_option(report: QuestionReport) -> str:
    """Return how well certificates and sets did on the rows of the rarest right option."""
    if not report.by_option:
        return ""
    rarest = min(report.by_option, key=lambda each: each.n)
    inside = "" if report.sets is None else f", and {rarest.in_set:.1%} of the sets contain it"
    wrong = "" if rarest.accuracy is None else f" ({1 - rarest.accuracy:.1%} of these wrong)"
    return (
        f" Where {rarest.option!r} is right ({counted(rarest.n, 'row')}), {rarest.certified:.1%} "
        f"of the answers are certified{wrong}{inside}."
    )


def _coverage_row(report: QuestionReport) -> list[str]:
    cells = (
        f"{point.coverage:.0%} " + ("-" if point.accuracy is None else f"{point.accuracy:.0%}")
        for point in report.coverage
    )
    return [report.name, *cells]
