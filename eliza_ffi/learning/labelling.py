r"""Select the rows that a person should label, and measure the model with the labels.

Two kinds of rows take turns. *Chosen* rows teach a head. *Random* rows only measure: the accuracy,
its interval and the certificate are computed from random rows alone. They are therefore valid for
the unlabelled rows, however the chosen rows were selected.

The first chosen rows are typical of the model's answers: for each answer in turn, a row that is
close to the mean of all rows with this answer, and unlike the earlier chosen rows. This ends when
two rows of each option have a label, or twice as many rows as there are options. For a score,
the first :data:`N_FIRST_OF_SCORE` ones are drawn at random. From then on, the unlabelled row with
the highest value of this product is chosen:

.. math:: (1 - (p_1 - p_2)) (1 - \max_l \cos(x, x_l)) \sum_i \max(0, \cos(x, x_i))

p_1 and p_2 are the probabilities of the two most probable options of the row, x is its centered
state, x_l are the states of the earlier chosen rows, and x_i the states of all rows. Such a row is
uncertain, unlike the labelled rows, and similar to many others. The measurements are in
docs/explanation/measurements.md.

References
----------
Lewis and Gale, "A Sequential Algorithm for Training Text Classifiers", SIGIR 1994 (uncertainty).
Brinker, "Incorporating Diversity in Active Learning with Support Vector Machines", ICML 2003.
Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
Binomial", Biometrika 26(4), 1934.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..decisions.probabilities import Array, Floats
from ..decisions.prompts import AskedQuestion
from ..evidence.auto_prompts import N_SAMPLE, sample_of, settings_of_prompts
from ..evidence.certificates import CertifiedThreshold
from ..evidence.features import Feature
from ..evidence.question_plan import WantedHidden
from ..evidence.scoring import ScoringRule
from ..terminal import counted
from .examples import ask_examples
from .fitting import heads_of, suspicious_places
from .heads import Group, features_of, fit_head
from .self_training import feature_of_rows
from .thresholds import certify, is_bounded, looks

MIN_LABELS = 6
"""The minimum number of labels for a head."""

Kind = Literal["chosen", "random"]

NO_OPTION = -1
"""The label of a row for which every option is wrong."""

MIN_READ = 20
"""The number of rows to read before the first row is offered, or all rows if there are fewer."""

MIN_RANDOM = 10
"""How many random rows are labelled before the screen says how many a certificate needs."""

N_FIRST_OF_SCORE = 10
"""How many of the first chosen rows of a score are drawn at random. The model's own levels are
often wrong, and then typical rows of a level are not."""

AT_ONCE = 4
"""How many rows are read together."""


class ReadRow(NamedTuple):
    """A row's place among the rows to read, its state, and the model's log-probabilities.

    `others` has the states and log-probabilities of further questions.
    """

    place: int
    state: Floats
    own: Array
    others: tuple[tuple[Floats, Array], ...] = ()


def read_rows(
    model: Any,
    question: AskedQuestion,
    texts: Sequence[str],
    prompts: Mapping[str, Any],
    scoring: ScoringRule = "constrained",
    others: Sequence[AskedQuestion] = (),
) -> Iterator[ReadRow]:
    """Yield the rows that the model can read, in order.

    `prompts` are the settings of the prompts, as for :func:`.settings_of_prompts`.
    """
    sample = sample_of(texts, N_SAMPLE)
    questions = [question, *others]
    settings = settings_of_prompts(model.session, questions, prompts, inputs=sample)
    n = len(questions)
    feature = feature_of_rows(features_of(heads_of(model)))
    hidden = WantedHidden(((feature,),) * n, (True,) * n)
    for begin in range(0, len(texts), AT_ONCE):
        part = texts[begin : begin + AT_ONCE]
        scores, usable = ask_examples(
            model,
            part,
            questions,
            np.full((len(part), n), True),
            settings,
            whole=scoring != "constrained",
            on_skip=lambda index, reason: None,
            hidden=hidden,
        )
        places = np.flatnonzero(usable.all(axis=1)).tolist()
        for place, *each in zip(places, *scores, strict=True):
            (state, own), *further = (
                (one.hidden[0], one.log_probabilities(scoring))
                for one in each
                if one.hidden is not None
            )
            yield ReadRow(begin + place, state, own, tuple(further))


class Readings(threading.Thread):
    """Reads rows in the background."""

    def __init__(self, rows: Iterator[ReadRow]) -> None:
        super().__init__(name="eliza-ffi-readings", daemon=True)
        self._rows = rows
        self._changed = threading.Condition()
        self._read: list[ReadRow] = []
        self._error: BaseException | None = None
        self._stops = self._is_done = False
        self.start()

    def after(self, n: int, wanted: int) -> list[ReadRow]:
        """Return what was read after the first `n` rows; wait until `wanted` rows are read."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_done or len(self._read) >= wanted)
            if self._error is not None and len(self._read) <= n:
                raise self._error
            return self._read[n:]

    def stop(self) -> None:
        self._stops = True
        self.join()

    def run(self) -> None:
        try:
            for row in self._rows:
                with self._changed:
                    self._read.append(row)
                    self._changed.notify_all()
                if self._stops:
                    break
        except BaseException as error:
            self._error = error
        with self._changed:
            self._is_done = True
            self._changed.notify_all()


class Next(NamedTuple):
    """The next row to label, and its kind."""

    row: int
    kind: Kind


@dataclass(frozen=True)
class LabelCounts:
    """Counts of labels, and measurements with the random rows.

    Attributes
    ----------
    n_chosen, n_random : int
        The number of labelled rows of each kind.
    n_right : int
        The number of random rows whose label is the model's answer.
    low, high : float
        An interval that contains the accuracy with the confidence of the labelling.
    certificate : CertifiedThreshold
        The certificate at the last of the preset numbers of random rows; see
        :func:`.thresholds.looks`. It does not change until the next one.
    next_look : int or None
        The number of random rows for the next certificate.
    """

    n_chosen: int
    n_random: int
    n_right: int
    low: float
    high: float
    certificate: CertifiedThreshold
    next_look: int | None

    @property
    def accuracy(self) -> float:
        """The share of right answers among the random rows; nan without any."""
        return self.n_right / self.n_random if self.n_random else float("nan")


def status(counts: LabelCounts) -> str:
    """Return a line that summarizes the labels."""
    text = counted(counts.n_chosen + counts.n_random, "labelled row")
    if not counts.n_random:
        return text
    text += (
        f", accuracy {counts.accuracy:.2f} ({counts.low:.2f} to {counts.high:.2f}, "
        f"{counted(counts.n_random, 'random row')})"
    )
    found = counts.certificate
    errors = f"{100 * found.risk:.3g} % errors"
    if counts.n_random < MIN_RANDOM:
        return text
    if found.threshold is not None:
        text += (
            f", certified at {found.n:,}: {found.coverage:.0%} can be automated with at most "
            f"{errors}"
        )
    elif found.needed is None:
        text += f", too many errors to automate with {errors}"
    elif found.needed > counts.n_random:
        text += f", a certificate for {errors} needs about {found.needed:,} random rows"
    next_look = counts.next_look
    return text if next_look is None else f"{text} (next test at {next_look:,})"


class Labelling:
    """The labels of the rows of one question.

    `risk` and `confidence` are for the certificate. `looks` has the numbers of random rows at which
    there is one. `is_score` says whether the options are the levels of a score.
    """

    def __init__(
        self,
        n_options: int,
        risk: float = 0.05,
        confidence: float = 0.9,
        is_score: bool = False,
    ) -> None:
        self._n_options, self._is_score = n_options, is_score
        self._risk, self._confidence = risk, confidence
        self.looks = looks(risk, confidence)
        self._certificates: dict[int, CertifiedThreshold] = {}  # by the number of random rows
        self._states: list[Floats] = []
        self._own: list[Array] = []
        self._labels: dict[int, tuple[int, Kind]] = {}
        self._passed: set[int] = set()
        self._log_p: Array | None = None  # the answers of the head; None = to be fitted
        self._taught: dict[int, Array] = {}  # its cross-validated answers to the rows of its fit

    @property
    def n_rows(self) -> int:
        return len(self._own)

    def add_row(self, state: Floats, log_p: Array) -> None:
        """Add a row. The order of the rows must be random.

        `state` has the shape [n_embd], and `log_p`, the model's own log-probabilities, [n_options].
        """
        self._states.append(np.asarray(state, dtype=np.float32))
        self._own.append(np.asarray(log_p, dtype=np.float64))
        self._log_p = None

    def label(self, row: int, option: int, kind: Kind) -> None:
        """Label a row with the index of an option or :data:`NO_OPTION`."""
        self._labels[row] = (option, kind)
        self._log_p = None if kind == "chosen" else self._log_p
        if kind == "random" and (n := len(self._random())) in self.looks:
            self._certificates[n] = self._certified()

    def skip(self, row: int) -> None:
        """Do not offer a row again."""
        self._passed.add(row)

    def take_back(self, row: int) -> None:
        """Forget the label of a row, or that it was skipped."""
        self._labels.pop(row, None)
        self._passed.discard(row)
        self._log_p = None

    def log_probabilities(self) -> Array:
        """Return the log-probabilities of all rows, from the head, shape [n, n_options]."""
        if self._log_p is None:
            self._log_p = self._fitted()
        return self._log_p

    def next(self) -> Next | None:
        """Return the next row to label; None if all rows are labelled or skipped."""
        free = [i for i in range(self.n_rows) if i not in self._labels and i not in self._passed]
        if not free:
            return None
        kinds = [kind for _, kind in self._labels.values()]
        if kinds.count("chosen") > kinds.count("random"):
            return Next(free[0], "random")
        return Next(self._chosen(np.array(free)), "chosen")

    def counts(self) -> LabelCounts:
        n = len(self._random())
        n_right = int(self._random_answers()[1].sum())
        low, high = interval(n_right, n, self._confidence)
        reached = [look for look in self.looks if look <= n]
        certificate = self._certificates[reached[-1]] if reached else self._certified()
        following = next((look for look in self.looks if look > n), None)
        n_chosen = len(self._labels) - n
        return LabelCounts(n_chosen, n, n_right, low, high, certificate, following)

    def _random(self) -> list[int]:
        return [row for row, (_, kind) in self._labels.items() if kind == "random"]

    def _random_answers(self) -> tuple[Array, NDArray[np.bool_]]:
        """Return the probabilities of the answers to the random rows, and whether each is right."""
        random = self._random()
        p = np.exp(self.log_probabilities()[random].reshape(-1, self._n_options))
        right = p.argmax(axis=1) == np.array([self._labels[row][0] for row in random])
        return p.max(axis=1), right

    def _certified(self) -> CertifiedThreshold:
        risk, confidence = self._risk, self._confidence
        return certify(*self._random_answers(), risk=risk, confidence=confidence, at_looks=True)

    def suspicious(self) -> list[int]:
        """Return the rows whose label may be wrong, the most suspicious first.

        The model has learned from none of them when it answers (cross-validation).
        """
        log_p = self.log_probabilities().copy()
        for row, each in self._taught.items():
            log_p[row] = each
        rows = [row for row, (option, _) in self._labels.items() if option != NO_OPTION]
        targets = np.array([self._labels[row][0] for row in rows], dtype=np.intp)
        found = suspicious_places(np.exp(log_p[rows]), targets) if rows else []
        return [rows[place] for _, place in sorted(found)]

    def _fitted(self) -> Array:
        self._taught = {}
        own = np.array(self._own).reshape(-1, self._n_options)
        taught = [
            (row, option)
            for row, (option, kind) in self._labels.items()
            if kind == "chosen" and option != NO_OPTION
        ]
        if len(taught) < MIN_LABELS or len({option for _, option in taught}) < 2:
            return own
        rows, options = np.array(taught, dtype=np.intp).T
        states = np.array(self._states)
        group = Group((Feature("last", 0),), 1)
        fit = fit_head(
            states[None, rows], options, {group: 1.0}, self._n_options, sources=own[None, rows]
        )
        self._taught = dict(zip(rows.tolist(), fit.log_probabilities, strict=True))
        return fit.head.log_probabilities(states[None], fit.source_weights[0] * own)

    def _chosen(self, free: NDArray[np.intp]) -> int:
        log_p = self.log_probabilities()
        states = np.array(self._states)
        states = states - states.mean(axis=0)
        x = states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-9)
        chosen = {row: each for row, (each, kind) in self._labels.items() if kind == "chosen"}
        similar = (x[free] @ x.T).clip(min=0.0)
        unlike = 1 - similar[:, list(chosen)].max(axis=1, initial=0.0)
        if self._is_score and len(chosen) < N_FIRST_OF_SCORE:
            return int(free[-1])  # the rows are in random order
        counts = np.bincount(
            [each for each in chosen.values() if each != NO_OPTION], minlength=self._n_options
        )
        if counts.min() < 2 and len(chosen) < 2 * self._n_options:
            answers = log_p.argmax(axis=1)
            for option in np.argsort(counts, kind="stable"):
                places = np.flatnonzero(answers[free] == option)
                if len(places):
                    typical = x[free[places]] @ x[answers == option].mean(axis=0)
                    return int(free[places[(typical * unlike[places]).argmax()]])
        highest = np.sort(np.exp(log_p[free]), axis=1)[:, -2:]
        worth = (1 - (highest[:, 1] - highest[:, 0])) * unlike * similar.mean(axis=1)
        return int(free[worth.argmax()])


def interval(n_right: int, n: int, confidence: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a probability, to 0.001."""
    if not n:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    grid = [i / 1000 for i in range(1001)]
    # The upper bound is the lowest rate at which n_right or fewer right answers are improbable.
    high = next(rate for rate in grid if is_bounded(n_right, n, rate, tail))
    low = next(round(1 - rate, 3) for rate in grid if is_bounded(n - n_right, n, rate, tail))
    return low, high
