r"""Fit the thresholds of a :class:`~eliza_ffi.Cascade`, with a statistical guarantee.

With labelled rows, a random half of them fits the weights of the sources and the constants of the
options, for each number of sources (:mod:`.weights`). The other rows certify. All sources are asked
about each row, so that for each threshold of :data:`.thresholds.GRID` it is known where a row would
have ended, and with which answer:

=========  =============================================  =========================================
target     rows that count                                rows that miss it
=========  =============================================  =========================================
agreement  all                                            another answer than all sources together
accuracy   all with an answer                             a wrong answer
precision  those with the answer `option`                 another option is right
recall     those for which `option` is right              another answer; not those for review
=========  =============================================  =========================================

A row without a right answer has that of all sources together: if the last one is a function, the
function's answer. For a fixed threshold, the number of rows that miss the target has a binomial
distribution. The thresholds are tested from high to low, as :mod:`.thresholds` explains (Learn then
Test). There are two walks, each with half of the level: one in which the last source always
answers, and one with rows for review, if no source is sure. The second one is used only if the
first one certifies nothing. The agreement needs only the first one. As for
:func:`.fitting.calibrate`, the target is also kept for the texts that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import check_one_of, check_several
from ..decisions.examples import UNLABELLED, named_questions, option_names, read_examples
from ..decisions.probabilities import Array, log_softmax
from ..decisions.prompts import AskedQuestion, input_text, option_count
from ..decisions.questions import Score
from ..decisions.wire import as_questions, question_to
from ..errors import InvalidArgumentError
from ..evidence.cascade import (
    TARGETS,
    Cascade,
    CascadeCalibration,
    Reading,
    StagesOfQuestion,
    Target,
)
from ..evidence.certificates import inner_fraction
from ..evidence.scoring import default_weights
from .examples import OnSkip, Progress, raised_or_skipped
from .thresholds import GRID, STARTS, is_bounded, rows_needed
from .weights import fit_weights

Bools = NDArray[np.bool_]
Options = NDArray[np.intp]

MIN_FIT = 20
"""With fewer labelled rows for the fit, the weights are not fitted."""


class Goal(NamedTuple):
    """What is certified; `option` is the place of the option."""

    target: Target
    at: float
    option: int | None = None
    confidence: float = 0.9


def calibrate_cascade(
    cascade: Cascade,
    questions: Any,
    rows: Iterable[tuple[Any, Any]] = (),
    *,
    inputs: Iterable[Any] = (),
    target: Target = "agreement",
    at: float = 0.95,
    option: Any = None,
    confidence: float = 0.9,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> CascadeCalibration:
    """Fit when the sources of a cascade are asked; arguments as :func:`.fitting.calibrate`."""
    check_one_of("target", target, TARGETS)
    at, confidence = inner_fraction("at", at), inner_fraction("confidence", confidence)
    asked = as_questions(questions)
    untold: list[Any] = [(each, {}) for each in check_several("inputs", inputs, "a list of inputs")]
    examples = read_examples(asked, [*check_several("rows", rows, "a list of pairs"), *untold])
    named = named_questions(asked)
    places = [_place(question, target, option) for _, question in named]

    failed = raised_or_skipped(on_skip)
    described, every = [], []
    for source in cascade.sources:
        with source.opened(asked, None, examples.inputs) as (read, found):
            described.append(found)
            every.append(read(list(examples.inputs), on_error=failed, progress=progress))
    used = [i for i in range(len(examples)) if all(each[i] is not None for each in every)]
    numbers: dict[str, int] = {}
    groups = np.array([numbers.setdefault(input_text(examples.inputs[i]), i) for i in used])
    compares = [bool(each.compares) for each in cascade.sources]
    fitted = []
    for place, (name, question) in enumerate(named):
        rows_of = [[each[i] for i in used] for each in every]
        stages = Stages(question, rows_of, place, examples.targets[used, place], groups, compares)
        fitted.append(stages.fit(name, Goal(target, at, places[place], confidence)))
    return CascadeCalibration(
        sources=tuple(described),
        questions=tuple(fitted),
        target=target,
        at=at,
        confidence=confidence,
        option=None if option is None else str(option),
    )


class Stages:
    """What the sources of a cascade say about one question, for some rows.

    `targets` has the right options. Rows with the same text have the same number in `groups`.
    """

    def __init__(
        self,
        question: AskedQuestion,
        read: Sequence[Sequence[Reading]],
        place: int,
        targets: Options,
        groups: NDArray[np.intp],
        compares: Sequence[bool],
    ) -> None:
        self._question, self._n_options = question, option_count(question)
        self.targets, self._groups, self._compares = targets, groups, compares
        said = [[row.said[place] for row in each] for each in read]
        zeros = np.zeros(self._n_options)
        self._models = [i for i, s in enumerate(said) if any(isinstance(x, np.ndarray) for x in s)]
        # Shape [n_sources, n, n_options], with zeros for functions.
        self.logs = np.array([[x if isinstance(x, np.ndarray) else zeros for x in s] for s in said])
        self._final = np.array([[x if isinstance(x, int) else UNLABELLED for x in s] for s in said])

    def fit(self, name: str, goal: Goal) -> StagesOfQuestion:
        """Return the weights and the threshold; raise if nothing keeps the goal."""
        told = np.flatnonzero(self.targets != UNLABELLED)
        fits = np.random.default_rng(0).permutation(told)[: len(told) // 2]
        if len(fits) < MIN_FIT:
            fits = fits[:0]
        weights, constants = self._weights(fits)
        p = self.probabilities(weights, constants)
        rest = np.setdiff1d(np.arange(len(self.targets)), fits)
        _, first = np.unique(self._groups[rest], return_index=True)
        is_new = np.full(len(rest), False)
        is_new[first] = ~np.isin(self._groups[rest][first], self._groups[fits])
        walk = Walk(p[:, rest], self.targets[rest], goal, [np.full(len(rest), True), is_new])
        found = walk.lowest()
        if found is None:
            raise InvalidArgumentError(
                f"{name}: {walk.refusal()} ({len(rest):,} rows certified, {len(fits):,} fitted the "
                "weights)"
            )
        counted, misses, ends = walk.counts(*found)
        return StagesOfQuestion(
            question=question_to(self._question),
            weights=weights,
            constants=constants,
            threshold=found[0],
            abstains=found[1],
            n=int(counted.sum()),
            n_wrong=int(misses.sum()),
            early=float((ends < len(p) - 1).mean()),
        )

    def _weights(self, rows: NDArray[np.intp]) -> Any:
        weights, constants = [], []
        for n in range(1, len(self._models) + 1):
            kinds = [self._compares[i] for i in self._models[:n]]
            each = np.array(default_weights(kinds, isinstance(self._question, Score)))
            of_options = np.zeros(self._n_options)
            if len(rows):
                sources = self.logs[self._models[:n]][:, rows]
                each, of_options = fit_weights(sources, self.targets[rows], each)
            weights.append(tuple(each.tolist()))
            constants.append(tuple(of_options.tolist()))
        return tuple(weights), tuple(constants)

    def probabilities(
        self, weights: Sequence[Sequence[float]], constants: Sequence[Sequence[float]]
    ) -> Array:
        """Return the probabilities after each source, shape [n_sources, n, n_options]."""
        result, n = [], self.logs.shape[1]
        p, final = np.full(self.logs.shape[1:], 1 / self._n_options), np.full(n, UNLABELLED)
        for stage, own in enumerate(self._final):
            if stage in self._models:
                k = self._models.index(stage)
                logs = np.tensordot(np.array(weights[k]), self.logs[self._models[: k + 1]], 1)
                p = np.exp(log_softmax(logs + np.array(constants[k])))
            final = np.where(own == UNLABELLED, final, own)
            certain = np.eye(self._n_options)[np.maximum(final, 0)]
            result.append(np.where((final == UNLABELLED)[:, None], p, certain))
        return np.array(result)


class Walk:
    """Tests thresholds from high to low on rows that are a random sample.

    `p` has the probabilities after each source, shape [n_sources, n, n_options], and `targets` the
    right options. The goal must be kept in each of the `parts`.
    """

    def __init__(self, p: Array, targets: Options, goal: Goal, parts: Sequence[Bools]) -> None:
        self._goal, self._parts = goal, parts
        self._sure, self._answers = p.max(axis=2), p.argmax(axis=2)
        is_untold = (targets == UNLABELLED) | (goal.target == "agreement")
        self._right = np.where(is_untold, self._answers[-1], targets)
        delta = 1 - goal.confidence
        # Whether rows are for review, the level of each start, and the starts.
        self._walks = [(False, delta / 2, GRID[:1]), (True, delta / 2 / len(STARTS), STARTS)]
        if goal.target == "agreement":
            self._walks = [(False, delta, GRID[:1])]

    def counts(self, threshold: float, abstains: bool) -> tuple[Bools, Bools, NDArray[np.intp]]:
        """Return which rows count, which of these miss the goal, and where each row ends."""
        is_sure = self._sure >= threshold
        has_end = is_sure.any(axis=0)
        ends = np.where(has_end, is_sure.argmax(axis=0), len(is_sure) - 1)
        answers = self._answers[ends, np.arange(len(ends))]
        has_answer = has_end | (not abstains)
        target, option = self._goal.target, self._goal.option
        counted = {
            "precision": has_answer & (answers == option),
            "recall": self._right == option,
        }.get(target, has_answer)
        return counted, counted & has_answer & (answers != self._right), ends

    def _numbers(self, threshold: float, abstains: bool) -> list[tuple[int, int]]:
        """Return how many rows of each part miss the goal, and how many count."""
        counted, misses, _ = self.counts(threshold, abstains)
        return [(int((misses & part).sum()), int((counted & part).sum())) for part in self._parts]

    def lowest(self) -> tuple[float, bool] | None:
        """Return the lowest certified threshold, and whether other rows are for review."""
        for abstains, of_start, starts in self._walks:
            level, lowest = 0.0, None
            for threshold in GRID:
                level += of_start * (threshold in starts)
                if level and all(
                    is_bounded(wrong, n, 1 - self._goal.at, level)
                    for wrong, n in self._numbers(threshold, abstains)
                ):
                    lowest = threshold
                else:
                    level = 0.0
            if lowest is not None:
                return lowest, abstains
        return None

    def refusal(self) -> str:
        """Say why nothing was certified, and how many rows would do."""
        total, needed, best = len(self._right), [], 0.0
        at, confidence = self._goal.at, self._goal.confidence
        for abstains, level, starts in self._walks:
            for threshold in starts:
                parts = []
                for wrong, n in self._numbers(threshold, abstains):
                    best = max(best, 1 - wrong / n if n else 0.0)
                    share, rate = (n / total, wrong / n) if n else (float(not total), 0.0)
                    parts.append(rows_needed(share, rate, 1 - at, level))
                if None not in parts:
                    needed.append(max(each or 0 for each in parts))
        what = f"no threshold keeps a target of {at:.1%} with {confidence:.0%} confidence"
        if needed:
            return f"{what}: about {min(needed):,} rows for the certificate would do"
        return (
            f"{what}, and no number of rows would do: the best share on these rows is {best:.1%}; "
            "give a lower target or a better source"
        )


def _place(question: AskedQuestion, target: Target, option: Any) -> int | None:
    """Return the place of the option whose precision or recall is the target."""
    if target in ("agreement", "accuracy"):
        if option is not None:
            raise InvalidArgumentError('option needs the target "precision" or "recall"')
        return None
    values, names = list(question.values), option_names(question)
    if option not in values and str(option) not in names:
        raise InvalidArgumentError(
            f"the target {target} needs an option of each question, one of "
            f"{', '.join(map(repr, names))}; got {option!r}"
        )
    return values.index(option) if option in values else names.index(str(option))
