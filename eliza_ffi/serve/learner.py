"""Learn from labels while a server runs: store them, and fit the calibration of a set again."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..decisions.answers import name_of
from ..decisions.examples import option_names
from ..decisions.fingerprint import fingerprint_of
from ..decisions.questions import MultiLabel, Score, text_of
from ..decisions.wire import question_to
from ..errors import ElizaError, InvalidArgumentError
from ..evidence.auto_prompts import settings_of_prompts
from ..evidence.calibration import Calibration, QuestionCalibration, wording_hash
from ..learning.examples import ScoreCache
from ..learning.fitting import MIN_EXAMPLES, calibrate
from ..learning.labelling import MIN_READ, NO_OPTION, Kind, Labelling, Readings, read_rows, status
from ..model import Model
from ..tables.label_file import Label, LabelFile
from ..tables.labels import right_answer
from .settings import QuestionSet, ServeSettings

MAX_LABELS = 2000
"""The maximum number of labels for a fit: the last ones."""

MAX_VERSIONS = 10
"""How many versions of a calibration are kept to go back to."""

MAX_ANSWERS, MAX_CHARACTERS = 1000, 2**24
"""How many inputs of answers are remembered, and their length together."""

MIN_P = 1e-12
"""A right option of a smaller probability gets this one in a comparison of two calibrations."""

logger = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The server stops during a fit."""


@dataclass(frozen=True)
class Version:
    """A version of a calibration, and the labels of its fit: for each question, by input."""

    number: int
    served: QuestionSet
    calibration: Calibration
    fitted_on: tuple[Mapping[str, str], ...]


class SetLearner:
    """The labels of a set of questions, and the versions of its calibration.

    Version 0 is the calibration that the server was started with, or none. After each label, a
    thread fits each question with new labels again. The new fit replaces the fit in use if its NLL
    on the labels, by cross-validation, is lower. The NLL of the fit in use comes from its own
    cross-validation for the labels of that fit, and from its answers for all other labels.

    Attributes
    ----------
    file : LabelFile
    options : mapping
        The options of each question, by its name.
    refits : Counter
        How many fits were ``accepted`` or ``rejected``, or have ``failed``.

    Raises
    ------
    InvalidArgumentError
        If a question has several labels, or if a table is given for several questions.
    ElizaError, OSError
        If the file belongs to another question, another process writes it, or it cannot be written.
    """

    def __init__(self, model: Model, settings: ServeSettings, name: str) -> None:
        known = settings.sets[name]
        self._model = model
        self.questions: list[Any] = list(known.questions)
        self.options: dict[str, Sequence[str]] = {}
        for i, question in enumerate(known.questions):
            if isinstance(question, MultiLabel):
                raise InvalidArgumentError(
                    f"the set {name!r} cannot learn: expected questions with one answer (choices, "
                    f"scores or predicates), got labels"
                )
            self.options[name_of(question.name, i)] = option_names(question)
        self._changed = threading.Condition()
        self._stops = self._is_paused = False
        calibration = known.decide_options.get("calibration") or _uncalibrated(model, known)
        self._versions = [Version(0, known, calibration, ({},) * len(known.questions))]
        self._losses: dict[tuple[int, str, str], float] = {}  # of answers of the version in use
        self._scores = ScoreCache(calibration)
        self._answered: dict[str, str | None] = {}
        self._seen: dict[int, Sequence[_Labelled]] = {}  # the labels of the last fits
        self.refits: Counter[str] = Counter()
        labels = settings.labels[name]
        (first, *more) = self.options
        others = {each: self.options[each] for each in more}
        self.rows = labels.rows
        if self.rows is not None and others:
            raise InvalidArgumentError(
                f"--table needs a set with one question, {name!r} has {len(self.options)}"
            )
        self.file = LabelFile(
            labels.path, labels.column, first, self.options[first], labels.rows, others
        )
        self.table = None if labels.rows is None else TableLabels(model, self, labels.rows)
        self._is_new = bool(self.file.labels)
        self._thread = threading.Thread(target=self._run, name="eliza-ffi-learner", daemon=True)

    @property
    def version(self) -> Version:
        """The version in use."""
        return self._versions[-1]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stops = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        if self.table is not None:
            self.table.stop()
        self.file.close()

    def stored(self, question: int, answer: Any) -> str:
        """Return an answer as the file has it; raise if it is not possible. None = none fits."""
        if answer is None:
            return ""
        right = right_answer(self.questions[question], answer)
        if right is None:  # an empty cell of a table has no answer
            raise InvalidArgumentError(f"expected an option, or null if none fits, got {answer!r}")
        return text_of(right)

    def add(self, label: Label, question: int = 0) -> bool:
        """Store the answer of a label to a question, and return whether the input had a label."""
        with self._changed:
            answers: list[str | None] = [None] * (question + 1)
            known = label.input if label.row is None else label.row
            for each in self.file.labels:
                if known in (each.row, each.input):
                    answers = [*each.answers, *answers[len(each.answers) :]]
            answers[question] = label.answer
            label = label._replace(answer=answers[0], others=tuple(answers[1:]))
            replaces = self.file.add(label)
            stored = self.file.labels[-1]
            self._note()
        if self.table is not None:
            self.table.note(stored)
        return replaces

    def take_back(self, row: int) -> bool:
        """Remove the last label if it belongs to this row, and return whether it did."""
        with self._changed:
            if not self.file.labels or self.file.labels[-1].row != row:
                return False
            self.file.take_back()
            earlier = [each for each in self.file.labels if each.row == row]
            self._note()
        if self.table is not None:
            self.table.take_back(row)
            for each in earlier[-1:]:
                self.table.note(each)
        return True

    def _note(self) -> None:
        self._is_new = True
        self._changed.notify_all()

    def go_back(self) -> int:
        """Return to the previous version, and stop learning. Return the version's number."""
        with self._changed:
            if len(self._versions) == 1:
                raise InvalidArgumentError("there is no earlier version to go back to")
            self._is_paused = True
            self._versions.pop()
            self._losses.clear()
            return self.version.number

    def remember(self, id: str, text: str) -> None:
        """Remember the input of an answer, so that a label needs only the answer's id."""
        # A client may send an id twice. It then names no input.
        is_same = self._answered.pop(id, text) == text
        self._answered[id] = text if is_same else None
        n = sum(len(each or "") for each in self._answered.values())
        while len(self._answered) > MAX_ANSWERS or n > MAX_CHARACTERS:
            first = next(iter(self._answered))
            n -= len(self._answered.pop(first) or "")

    def input_of(self, id: str) -> str | None:
        return self._answered.get(id)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stops or (self._is_new and not self._is_paused)
                )
                if self._stops:
                    return
                self._is_new = False
                labels = list(self.file.labels)
            for question in range(len(self.questions)):
                try:
                    result = self._refit(question, _usable(labels, question))
                except _StoppedError:
                    return
                except Exception as error:
                    trace = None if isinstance(error, ElizaError) else error
                    logger.warning("a set did not learn from labels: %s", error, exc_info=trace)
                    result = "failed"
                if result:
                    self.refits[result] += 1

    def _refit(self, question: int, labels: Sequence[_Labelled]) -> str | None:
        """Fit a question again, and use the fit if it is better. Return what became of it."""
        in_use, asked = self.version, self.questions[question]
        if self._seen.get(question) == labels:
            return None
        before = in_use.calibration.questions[question]
        certified = before.threshold
        random = [i for i, each in enumerate(labels) if each.kind == "random"]
        options: dict[str, Any] = {}
        if certified is not None:  # labels that people choose to send cannot certify
            each_option = certified.frequencies is not None
            options = {"risk": certified.risk, "confidence": certified.confidence}
            options |= {"each_option": each_option, "random": random}
            if certified.option_risks is not None:
                options["option_risks"] = dict(
                    zip(before.values, certified.option_risks, strict=True)
                )
            if certified.target != "accuracy":
                options |= {"target": certified.target, "option": certified.option}
                options["at"] = 1 - options.pop("risk")
        n_fitted = len(labels) - len(options and random)
        if n_fitted < MIN_EXAMPLES or (options and len(random) < MIN_EXAMPLES):
            return None
        self._seen[question] = labels
        left_out: list[int] = []
        fitted = calibrate(
            self._model,
            asked,
            [(each.input, right_answer(asked, each.answer)) for each in labels],
            scoring=in_use.calibration.scoring,
            progress=self._check,
            on_skip=lambda index, _: left_out.append(index),
            on_warning=logger.info,
            score_cache=self._scores,
            costs=before.costs,
            **options,
        )
        for scores in self._scores.found.values():
            for text in [*scores][:-MAX_LABELS]:
                del scores[text]
        without = {*left_out, *(options and random)}
        used = {each.input: each.answer for i, each in enumerate(labels) if i not in without}
        (after,) = fitted.questions
        loses = certified is not None and certified.threshold is not None
        loses = loses and after.threshold is not None and after.threshold.threshold is None
        is_better = not loses and after.nll[after.method] < self._loss(question, used)
        with self._changed:
            if self._is_paused or in_use is not self.version:
                return None
            if not is_better:
                return "rejected"
            parts, seen = list(in_use.calibration.questions), list(in_use.fitted_on)
            parts[question], seen[question] = after, used
            calibration = replace(in_use.calibration, questions=tuple(parts))
            served = in_use.served.calibrated(calibration)
            self._versions.append(Version(in_use.number + 1, served, calibration, tuple(seen)))
            del self._versions[:-MAX_VERSIONS]
            self._losses.clear()
        return "accepted"

    def _loss(self, question: int, labels: Mapping[str, str]) -> float:
        """Return the mean of -log p of the right options by the version in use.

        No answer is one that the version has learned from the same label.
        """
        version, options = self.version, [*self.options.values()][question]
        part, seen_by = version.calibration.questions[question], version.fitted_on[question]
        new = {text: each for text, each in labels.items() if seen_by.get(text) != each}
        asked = [text for text, each in new.items() if (question, text, each) not in self._losses]
        decisions = self._model.decide_many(
            asked,
            self.questions[question],
            calibration=replace(version.calibration, questions=(part,), labels=()),
            return_exceptions=True,
            progress=self._check,
        )
        for text, decision in zip(asked, decisions, strict=True):
            if isinstance(decision, Exception):
                raise decision
            p = decision[0].distribution[options.index(new[text])]
            self._losses[question, text, new[text]] = -float(np.log(max(p, MIN_P)))
        n_seen = len(labels) - len(new)
        seen = n_seen * part.nll[part.method] if n_seen else 0.0
        losses = (self._losses[question, text, each] for text, each in new.items())
        return (seen + sum(losses)) / len(labels)

    def _check(self, *_: Any) -> None:
        if self._stops:
            raise _StoppedError


class TableLabels:
    """The rows of a table that are offered for labels, as ``eliza-ffi label`` offers them."""

    def __init__(self, model: Model, learner: SetLearner, rows: Mapping[int, str]) -> None:
        (self._options,) = learner.options.values()
        self._rows = rows
        self._lock = threading.Lock()
        (question,) = learner.questions
        is_score = isinstance(question, Score)
        self._labelling = Labelling(len(self._options), is_score=is_score)
        self._places: dict[int, int] = {}  # by the number of the row, in the order of reading
        # The rows that have a label come first.
        self._known = {each.row: each for each in learner.file.labels if each.row is not None}
        self._order = list(dict.fromkeys([*self._known, *rows]))
        self._readings: Readings | None = None
        version = learner.version.calibration
        prompts = dict(version.prompt_arguments()) if model.session.kind == "decoder" else {}
        texts = [rows[number] for number in self._order]
        self._read = read_rows(model, question, texts, prompts, version.scoring)

    def next(self) -> dict[str, Any]:
        """Return the next row and the counts of the labels; its number is None at the end."""
        with self._lock:
            if self._readings is None:  # nobody has asked before
                self._readings = Readings(self._read)
                self._take(max(len(self._known), min(MIN_READ, len(self._rows))))
            found = self._labelling.next()
            while found is None and self._take(self._labelling.n_rows + 1):
                found = self._labelling.next()
            counts = self._labelling.counts()
            row: dict[str, Any] = {"row": None, "progress": status(counts)}
            if found is not None:
                number = [*self._places][found.row]
                p = np.exp(self._labelling.log_probabilities()[found.row])
                row |= {"row": number, "kind": found.kind, "input": self._rows[number]}
                row["probabilities"] = p.tolist()
            return row

    def note(self, label: Label) -> None:
        with self._lock:
            if label.row is not None:
                self._known[label.row] = label
                self._show(label.row)

    def take_back(self, row: int) -> None:
        with self._lock:
            self._known.pop(row, None)
            if row in self._places:
                self._labelling.take_back(self._places[row])

    def stop(self) -> None:
        if self._readings is not None:
            self._readings.stop()

    def _take(self, wanted: int) -> int:
        """Add the rows that have been read; wait until there are `wanted`. Return how many."""
        assert self._readings is not None
        found = self._readings.after(self._labelling.n_rows, wanted)
        for each in found:
            number = self._order[each.place]
            self._places[number] = self._labelling.n_rows
            self._labelling.add_row(each.state, each.own)
            self._show(number)
        return len(found)

    def _show(self, row: int) -> None:
        """Show the label of a row to the selection, if it has a label and has been read."""
        label = self._known.get(row)
        if label is None or row not in self._places:
            return
        if label.answer is None:
            self._labelling.skip(self._places[row])
            return
        option = self._options.index(label.answer) if label.answer else NO_OPTION
        kind: Kind = "random" if label.kind == "random" else "chosen"
        self._labelling.label(self._places[row], option, kind)


class _Labelled(NamedTuple):
    """An input with the right answer to one question."""

    input: str
    answer: str
    kind: str


def _usable(labels: Sequence[Label], question: int) -> list[_Labelled]:
    """Return the last labels of rows and inputs for a question, if an option fits."""
    last = {each.input if each.row is None else each.row: each for each in labels}
    answered = [
        _Labelled(each.input, each.answers[question] or "", each.kind)
        for each in last.values()
        if len(each.answers) > question
    ]
    return [each for each in answered if each.answer][-MAX_LABELS:]


def _uncalibrated(model: Model, known: QuestionSet) -> Calibration:
    """Return a calibration with the settings of a set that changes no probability."""
    settings = settings_of_prompts(model.session, known.questions, known.decide_options)
    unchanged = [
        QuestionCalibration(question=question_to(each), method="none", n_examples=0, nll={})
        for each in known.questions
    ]
    return Calibration(
        model=fingerprint_of(model),
        scoring=known.decide_options.get("scoring") or "constrained",
        questions=tuple(unchanged),
        wording=wording_hash(settings.prompt),
        **settings.described(),
    )


@contextmanager
def learning(model: Model, settings: ServeSettings) -> Iterator[dict[str, SetLearner]]:
    """Yield the learners of a server's sets by name, and stop them at the end."""
    with ExitStack() as stack:
        learners = {}
        for name in settings.labels:
            learners[name] = SetLearner(model, settings, name)
            stack.callback(learners[name].stop)
        for each in learners.values():
            each.start()
        yield learners
