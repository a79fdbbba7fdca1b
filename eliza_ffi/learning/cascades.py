r"""Fit the thresholds of a :class:`~eliza_ffi.Cascade`, with a statistical guarantee.

The weights of the sources and the constants of the options, for each number of sources, are fitted
on a random half of the labelled rows (:mod:`.weights`). The thresholds are certified on all other
rows. All sources are asked about each row. So for each threshold of :data:`.thresholds.GRID`, it is
known at which source a row would have ended, and with which answer:

=========  =============================================  =========================================
target     rows that count                                rows that miss the target
=========  =============================================  =========================================
agreement  all                                            another answer than all sources together
accuracy   all with an answer                             a wrong answer
precision  those with the answer `option`                 another option is right
recall     those for which `option` is right              another answer; not those for review
=========  =============================================  =========================================

If the right answer of a row is not known, the answer of all sources together takes its place. If
the last source is a function, this is the function's answer. For a fixed threshold, the number of
rows that miss the target has a binomial distribution. The thresholds are tested from high to low
(Learn then Test; see :mod:`.thresholds`). There are two walks, each with half of the level. In the
first walk, the last source always answers. In the second walk, rows are for review if no source is
sure; it is used only if the first walk certifies nothing. The agreement needs only the first walk.
As in :func:`.fitting.calibrate`, the target also holds for the texts that the fit has not seen.

Adaptive sampling
-----------------
With `adaptive`, the last source is asked only about rows that a test needs, as in BARGAIN
(Zeighami, Shankar and Parameswaran, "Cut Costs, Not Accuracy: LLM-Powered Data Processing with
Guarantees", arXiv:2509.02896). For the agreement, these are the rows that end before the last
source at the tested threshold. The rows come in random order. The walks are tried at preset numbers
of rows, with equal shares of delta (:func:`.thresholds.looks`). Sampling stops if lower thresholds
that keep the target among the rows so far would end at most :data:`NEAR` of the rows more. BARGAIN
uses a betting bound instead of preset numbers. The guarantee holds for all looks together, so any
rule may end the sampling.

Distillation
------------
With `teach`, the last source answers a random half of the rows, and these answers fit the first
source with :func:`.fitting.calibrate` (Hinton, Vinyals and Dean, "Distilling the Knowledge in a
Neural Network", arXiv:1503.02531). Only the other half certifies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flag, check_one_of, check_several
from ..decisions.examples import (
    UNLABELLED,
    Examples,
    named_questions,
    option_place,
    read_examples,
)
from ..decisions.probabilities import Array, log_softmax
from ..decisions.prompts import AskedQuestion, input_text, option_count
from ..decisions.questions import Question, Score
from ..decisions.wire import as_questions, question_to
from ..errors import InvalidArgumentError
from ..evidence.calibration import Calibration
from ..evidence.cascade import (
    TARGETS,
    Cascade,
    CascadeCalibration,
    ModelSource,
    Reading,
    StagesOfQuestion,
    Target,
)
from ..evidence.certificates import inner_fraction
from ..evidence.scoring import default_weights
from .examples import OnSkip, Progress, raised_or_skipped
from .thresholds import GRID, STARTS, is_bounded, looks, rows_needed
from .weights import fit_weights

Bools = NDArray[np.bool_]
Options = NDArray[np.intp]

MIN_FIT = 20
"""With fewer labelled rows for the fit, the weights are not fitted."""


NEAR = 0.05
"""Adaptive sampling stops if lower thresholds could end at most this share of rows more."""


AT_ONCE = 16
"""The number of rows that the last source is asked about before the misses are counted again."""


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
    adaptive: bool = False,
    teach: bool = False,
    fit: Callable[..., Calibration] | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> CascadeCalibration:
    """Fit the thresholds of a cascade. The arguments are as for :func:`.fitting.calibrate`.

    `fit` is :func:`.fitting.calibrate` itself, which `teach` needs.
    """
    check_one_of("target", target, TARGETS)
    at, confidence = inner_fraction("at", at), inner_fraction("confidence", confidence)
    adaptive, teach = check_flag("adaptive", adaptive), check_flag("teach", teach)
    asked = as_questions(questions)
    unlabelled: list[Any] = [
        (each, {}) for each in check_several("inputs", inputs, "a list of inputs")
    ]
    examples = read_examples(asked, [*check_several("rows", rows, "a list of pairs"), *unlabelled])
    named = named_questions(asked)
    places = [place_of_target(question, target, option) for _, question in named]
    failed = raised_or_skipped(on_skip)

    every, texts = np.arange(len(examples.inputs)), list(examples.inputs)

    def read_some(read: Callable[..., list[Any]], places: Sequence[int]) -> list[Any]:
        """Return the readings of a source for some inputs; None for a skipped input."""
        if not places:
            return []
        return read(
            [texts[i] for i in places],
            on_error=lambda i, error: failed(places[i], error),
            progress=progress,
        )

    first: dict[str, Any] | None = None
    n_taught = 0
    if teach:
        order = np.random.default_rng(0).permutation(every)
        lessons, every = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        taught, n_taught = _taught(
            cascade, asked, examples, lessons.tolist(), fit, read_some, progress
        )
        first = {"source": taught.model, "prompts": {}, "calibration": taught.to_text()}
    described: list[dict[str, Any]] = []
    read_by: list[dict[int, Any]] = []
    for source in cascade.sources[:-1]:
        fitted = None if described else first
        with source.opened(asked, fitted, texts) as (read, found):
            described.append(found)
            said = read_some(read, every.tolist())
            read_by.append(dict(zip(every.tolist(), said, strict=True)))
    used = [i for i in every.tolist() if all(each[i] is not None for each in read_by)]
    numbers: dict[str, int] = {}
    groups = np.array([numbers.setdefault(input_text(texts[i]), i) for i in used], dtype=np.intp)
    last = cascade.sources[-1]
    known: dict[int, Reading | None] = {}  # the answers of the last source, by group
    with last.opened(asked, first if len(cascade.sources) == 1 else None, texts) as (read, found):
        described.append(found)

        def ask(rows: list[int]) -> list[Reading | None]:
            firsts = {int(groups[row]): used[row] for row in reversed(rows)}
            new = [number for number in firsts if number not in known]
            said = read_some(read, [firsts[number] for number in new])
            known.update(zip(new, said, strict=True))
            return [known[int(groups[row])] for row in rows]

        if not adaptive:
            answers = ask(list(range(len(used))))
            kept = [k for k, each in enumerate(answers) if each is not None]
            used, groups = [used[k] for k in kept], groups[kept]
        compares = [each.compares for each in cascade.sources]
        questions_fitted = []
        for place, (name, question) in enumerate(named):
            rows_of = [[each[i] for i in used] for each in read_by]
            rows_of.append([known.get(number) for number in groups.tolist()])
            targets = examples.targets[used, place]
            stages = Stages(question, rows_of, place, targets, groups, compares)
            goal = Goal(target, at, places[place], confidence)
            questions_fitted.append(stages.fit(name, goal, ask if adaptive else None))
    return CascadeCalibration(
        sources=tuple(described),
        questions=tuple(questions_fitted),
        target=target,
        at=at,
        confidence=confidence,
        option=None if option is None else str(option),
        n_answers=sum(each is not None for each in known.values()),
        n_taught=n_taught,
    )


Ask: TypeAlias = "Callable[[list[int]], list[Reading | None]]"
"""Asks the last source about some of the rows of a :class:`Stages`."""


def _taught(
    cascade: Cascade,
    asked: Sequence[Question],
    examples: Examples,
    rows: list[int],
    fit: Callable[..., Calibration] | None,
    read_some: Callable[..., list[Any]],
    progress: Progress | None,
) -> tuple[Calibration, int]:
    """Fit the first source to right answers, or to the last source's answers where there are none.

    Return the calibration of the first source, and the number of rows that it was fitted on.
    """
    first, last = cascade.sources[0], cascade.sources[-1]
    if len(cascade.sources) < 2 or not isinstance(first, ModelSource) or fit is None:
        raise InvalidArgumentError(
            "teach needs a model as the first source, and another source that teaches it"
        )
    settings = {name: each for name, each in first.settings.items() if each}
    if "calibration" in settings:
        raise InvalidArgumentError("teach: the first source already has a calibration")
    with last.opened(asked, None, examples.inputs) as (read, _):
        said = read_some(read, rows)
    named, pairs = named_questions(asked), []
    for row, reading in zip(rows, said, strict=True):
        if reading is None:
            continue
        answers = {}
        for place, (name, question) in enumerate(named):
            own, of_last = int(examples.targets[row, place]), reading.said[place]
            if own == UNLABELLED and of_last is not None:
                own = of_last if isinstance(of_last, int) else int(np.argmax(of_last))
            if own != UNLABELLED:
                answers[name] = question.values[own]
        pairs.append((examples.inputs[row], answers))
    singles = [replace(question, name=name) for name, question in named]
    with first.open() as model:
        taught = fit(model, singles, pairs, progress=progress, **settings)
    return taught, len(pairs)


class Stages:
    """The readings of a cascade's sources for one question and some rows.

    `targets` has the right options. Rows with the same text have the same number in `groups`.
    `compares` says which sources are encoders; None = a function. The reading of the last source is
    None for rows that it was not asked about.
    """

    def __init__(
        self,
        question: AskedQuestion,
        read: Sequence[Sequence[Reading | None]],
        place: int,
        targets: Options,
        groups: NDArray[np.intp],
        compares: Sequence[bool | None],
    ) -> None:
        self._question, self._n_options = question, option_count(question)
        self._place, self.targets, self._groups = place, targets, groups
        self._compares = compares
        self._models = [i for i, each in enumerate(compares) if each is not None]
        shape = len(read), len(targets)
        # Shape [n_sources, n, n_options], with zeros for functions.
        self.logs = np.zeros((*shape, self._n_options))
        self._final = np.full(shape, UNLABELLED)
        self._is_asked = np.full(len(targets), False)
        for stage, each in enumerate(read):
            self._note(stage, range(len(targets)), each)

    def _note(self, stage: int, rows: Iterable[int], read: Sequence[Reading | None]) -> None:
        for row, reading in zip(rows, read, strict=True):
            said = None if reading is None else reading.said[self._place]
            if isinstance(said, np.ndarray):
                self.logs[stage, row] = said
            elif said is not None:
                self._final[stage, row] = said
            self._is_asked[row] = reading is not None

    def fit(self, name: str, goal: Goal, ask: Ask | None = None) -> StagesOfQuestion:
        """Return the weights and the threshold; raise if nothing keeps the goal.

        With `ask`, the last source is asked about no more rows than the certificate needs.
        """
        labelled = np.flatnonzero(self.targets != UNLABELLED)
        fits = np.random.default_rng(0).permutation(labelled)[: len(labelled) // 2]
        if len(fits) < MIN_FIT:
            fits = fits[:0]
        rest, preset = np.setdiff1d(np.arange(len(self.targets)), fits), []
        if ask is not None:
            self._ask_about(fits, ask)
            rest = np.random.default_rng(1).permutation(rest)
            n_walks = 1 if goal.target == "agreement" else 2
            every = looks(1 - goal.at, goal.confidence, n_walks, len(rest))
            preset = [each for each in every if each < len(rest)]
        weights, constants = self._weights(fits)
        preset.append(len(rest))
        best = None
        for n in preset:
            walk = self._walk(rest[:n], fits, goal, weights, constants, len(preset), ask)
            found = walk.lowest()
            if found is not None:
                best = walk, *found
                if ask is None or walk.is_settled(*found):
                    break
        if best is None:
            raise InvalidArgumentError(
                f"{name}: {walk.refusal()} ({len(rest):,} rows certified, {len(fits):,} fitted the "
                "weights)"
            )
        walk, threshold, abstains = best
        counted, misses, ends = walk.counts(threshold, abstains)
        return StagesOfQuestion(
            question=question_to(self._question),
            weights=weights,
            constants=constants,
            threshold=threshold,
            abstains=abstains,
            n=int(counted.sum()),
            n_wrong=int(misses.sum()),
            early=float((ends < len(self.logs) - 1).mean()),
        )

    def _ask_about(self, rows: NDArray[np.intp], ask: Ask) -> bool:
        """Ask the last source about the rows that it was not asked about yet."""
        new = rows[~self._is_asked[rows]].tolist()
        self._note(len(self.logs) - 1, new, ask(new))
        self._is_asked[new] = True  # including rows that the source cannot read
        return bool(new)

    def _walk(
        self,
        rows: NDArray[np.intp],
        fits: NDArray[np.intp],
        goal: Goal,
        weights: Any,
        constants: Any,
        n_looks: int,
        ask: Ask | None,
    ) -> Walk:
        _, first = np.unique(self._groups[rows], return_index=True)
        is_new = np.full(len(rows), False)
        is_new[first] = ~np.isin(self._groups[rows][first], self._groups[fits])

        def asked(wanted: Bools) -> Array | None:
            if ask is None or not self._ask_about(rows[wanted], ask):
                return None
            return self.probabilities(weights, constants)[:, rows]

        p = self.probabilities(weights, constants)[:, rows]
        parts = [np.full(len(rows), True), is_new]
        return Walk(p, self.targets[rows], goal, parts, n_looks, asked)

    def _weights(self, rows: NDArray[np.intp]) -> Any:
        weights, constants = [], []
        for n in range(1, len(self._models) + 1):
            kinds = [bool(self._compares[i]) for i in self._models[:n]]
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
    right options. The goal must be kept in each of the `parts`, at `n_looks` numbers of rows
    together. `ask` asks the last source about rows, and returns `p` if it had to.
    """

    def __init__(
        self,
        p: Array,
        targets: Options,
        goal: Goal,
        parts: Sequence[Bools],
        n_looks: int = 1,
        ask: Callable[[Bools], Array | None] | None = None,
    ) -> None:
        self._goal, self._parts, self._ask = goal, parts, ask
        self._is_labelled = (targets != UNLABELLED) & (goal.target != "agreement")
        self._targets, self._is_known = targets, np.full(len(targets), False)
        self._use(p)
        delta = (1 - goal.confidence) / n_looks
        # Whether rows are for review, the level of each start, and the starts.
        self._walks = [(False, delta / 2, GRID[:1]), (True, delta / 2 / len(STARTS), STARTS)]
        if goal.target == "agreement":
            self._walks = [(False, delta, GRID[:1])]

    def _use(self, p: Array) -> None:
        self._sure, self._answers = p.max(axis=2), p.argmax(axis=2)
        self._right = np.where(self._is_labelled, self._targets, self._answers[-1])

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

    def _numbers(
        self,
        threshold: float,
        abstains: bool,
        fails: Callable[[int, int], bool] = lambda wrong, n: False,
    ) -> list[tuple[int, int]]:
        """Return how many rows of each part miss the goal, and how many count.

        The last source is asked about rows whose misses cannot be counted otherwise, until `fails`
        is True for a part: more answers only add misses. For the agreement and the accuracy, two
        kinds of rows need no answer: a row that reaches the last source and has no right answer
        cannot be a miss, and a row that ends before and has a right answer is counted already.
        """
        is_fixed = self._goal.target in ("agreement", "accuracy") and not abstains
        wanted = np.full(len(self._right), self._ask is not None)
        if is_fixed:
            wanted &= (self._sure[:-1] >= threshold).any(axis=0) != self._is_labelled
        open_rows = np.flatnonzero(wanted & ~self._is_known)
        size = AT_ONCE if is_fixed else max(len(open_rows), 1)
        while True:
            counted, misses, _ = self.counts(threshold, abstains)
            misses[open_rows] = False
            numbers = [(int((misses & e).sum()), int((counted & e).sum())) for e in self._parts]
            if not len(open_rows) or (is_fixed and any(fails(*each) for each in numbers)):
                return numbers
            self._ask_about(open_rows[:size])
            open_rows = open_rows[size:]

    def _ask_about(self, rows: NDArray[np.intp]) -> None:
        assert self._ask is not None
        wanted = np.full(len(self._right), False)
        wanted[rows] = self._is_known[rows] = True
        p = self._ask(wanted)
        if p is not None:
            self._use(p)

    def lowest(self) -> tuple[float, bool] | None:
        """Return the lowest certified threshold, and whether other rows are for review."""
        rate = 1 - self._goal.at
        for abstains, of_start, starts in self._walks:
            level, lowest = 0.0, None
            for threshold in GRID:
                level += of_start * (threshold in starts)

                def fails(wrong: int, n: int, level: float = level) -> bool:
                    return not is_bounded(wrong, n, rate, level)

                if level and not any(
                    fails(*each) for each in self._numbers(threshold, abstains, fails)
                ):
                    lowest = threshold
                else:
                    level = 0.0
            if lowest is not None:
                return lowest, abstains
        return None

    def is_settled(self, threshold: float, abstains: bool) -> bool:
        """Return whether lower thresholds that keep the target so far end few more rows early."""

        def fails(wrong: int, n: int) -> bool:
            return wrong > (1 - self._goal.at) * n

        for lower in GRID[GRID.index(threshold) + 1 :]:
            if any(fails(*each) for each in self._numbers(lower, abstains, fails)):
                return True
            sure = self._sure if abstains else self._sure[:-1]
            share = (sure >= lower).any(axis=0).mean() - (sure >= threshold).any(axis=0).mean()
            if share > NEAR:
                return False
        return True

    def refusal(self) -> str:
        """Return why nothing was certified, and how many rows would be enough."""
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


def place_of_target(question: AskedQuestion, target: Target, option: Any) -> int | None:
    """Return the place of the option whose precision or recall is the target."""
    if target in ("agreement", "accuracy"):
        if option is not None:
            raise InvalidArgumentError('option needs the target "precision" or "recall"')
        return None
    return option_place(f"the option of the target {target}", question, option)
