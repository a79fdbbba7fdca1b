"""``eliza-ffi label``: label rows of a table with one key each."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from ..decisions.answers import name_of
from ..decisions.examples import option_names
from ..decisions.prompts import AskedQuestion
from ..decisions.questions import MultiLabel
from ..evidence.scoring import ScoringRule
from ..learning.labelling import NO_OPTION, LabelCounts, Labelling, ReadRow, read_rows
from ..tables.label_file import Label, LabelFile, draw_rows
from ..terminal import counted, printable, terminal_width, wrap
from .console import UsageError, add_model_arguments, add_options, open_model
from .files import check_output
from .labelled import CONFIDENCE, RISK
from .questions import (
    PROMPT_OPTIONS,
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_questions,
    read_table,
)

MIN_READ = 20
"""How many rows are read before the first one is offered, if there are so many."""

MIN_RANDOM = 10
"""How many random rows are labelled before the screen says how much can be automated."""

MAX_KEYS = 9
"""With more options, an answer is a number and Enter."""

KEYS = "n none fits   s skip   u undo   q quit"


def add_labelling_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Label rows of a table with one key each. Half of the rows are those that teach the model "
        "most. The others are random: with them, the command measures the accuracy, and how many "
        "answers could be automated with 5 % errors (or --risk). You can stop and continue at any "
        "time."
    )
    parser.add_argument("table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file")
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="write to FILE: the labels, as CSV"
    )
    add_question_arguments(parser)
    add_options(
        parser,
        {
            "--risk R": RISK,
            "--confidence C": CONFIDENCE,
        },
    )
    parser.set_defaults(risk=0.05, confidence=0.9)
    add_asking_arguments(parser)
    add_table_arguments(parser)
    add_model_arguments(parser, decides=True)


def run_label(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    (question, *others) = questions
    if others or isinstance(question, MultiLabel):
        raise UsageError("label needs one question with one answer: a choice, score or predicate")
    for name in ("risk", "confidence"):
        if not 0 < getattr(arguments, name) < 1:
            raise UsageError(f"--{name} must be above 0 and below 1")
    path = Path(arguments.output)
    check_output(arguments)
    rows = draw_rows(read_table(arguments), arguments.column)
    name, options = name_of(question.name, 0), option_names(question)
    asked = read_asking(arguments)
    with (
        closing(LabelFile(path, arguments.column, name, options, rows)) as file,
        open_model(arguments, arguments.n_slots) as model,
    ):
        # The rows that have a label come first. Inputs that a server was sent have no row.
        labelled = [each.row for each in file.labels if each.row is not None]
        order = list(dict.fromkeys([*labelled, *rows]))
        prompts = {name: asked[name] for name in PROMPT_OPTIONS}
        scoring: ScoringRule = asked["scoring"] or "constrained"
        texts = [rows[number] for number in order]
        readings = Readings(read_rows(model, question, texts, prompts, scoring))
        try:
            loop = _Loop(file, readings, order, rows, question, arguments)
            with single_keys(len(options) <= MAX_KEYS) as keys:
                loop.run(keys)
        finally:
            readings.stop()
    print(_end(file, arguments))
    return 0


class Readings(threading.Thread):
    """Reads rows in the background."""

    def __init__(self, rows: Iterator[ReadRow]) -> None:
        super().__init__(name="eliza-ffi-label", daemon=True)
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


class _Loop:
    """Offers rows, and stores the labels."""

    def __init__(
        self,
        file: LabelFile,
        readings: Readings,
        order: Sequence[int],
        rows: Mapping[int, str],
        question: AskedQuestion,
        arguments: argparse.Namespace,
    ) -> None:
        self._file, self._readings = file, readings
        self._order, self._rows = order, rows  # the numbers of the rows as they are read
        self._instructions = question.instructions
        self._options = option_names(question)
        self._labelling = Labelling(len(self._options), arguments.risk, arguments.confidence)
        self._risk = arguments.risk
        self._numbers: list[int] = []

    def run(self, keys: Iterator[str]) -> None:
        n_labelled = len({each.row for each in self._file.labels} - {None})
        n_first = max(n_labelled, min(MIN_READ, len(self._rows)))
        print(f"Reading {counted(n_first, 'row')}; the others follow while you label.", flush=True)
        self._take(n_first)
        places = {number: place for place, number in enumerate(self._numbers)}
        for label in self._file.labels:
            if label.row is not None and label.row in places:
                self._note(places[label.row], label)
        while True:
            self._take(0)
            row = self._labelling.next()
            if row is None:
                n = len(self._numbers)
                if self._take(n + 1) == 0:
                    print("Every row that was drawn is labelled.")
                    return
                continue
            print(self._screen(row.row, row.kind), flush=True)
            key = next(keys, "q").strip().lower()
            if key == "q":
                return
            if key == "u":
                self._take_back()
            elif key in ("n", "s") or (key.isdecimal() and 1 <= int(key) <= len(self._options)):
                answer = None if key == "s" else ""
                if key.isdecimal():
                    answer = self._options[int(key) - 1]
                label = Label(self._numbers[row.row], answer, row.kind)
                self._file.add(label)
                self._note(row.row, label)
            else:
                print(f"{printable(repr(key))} is no answer: 1 to {len(self._options)}, {KEYS}")

    def _take(self, wanted: int) -> int:
        """Add the rows that have been read; wait until there are `wanted`. Return how many."""
        found = self._readings.after(len(self._numbers), wanted)
        for row in found:
            self._numbers.append(self._order[row.place])
            self._labelling.add_row(row.state, row.own)
        return len(found)

    def _note(self, place: int, label: Label) -> None:
        if label.answer is None:
            self._labelling.skip(place)
            return
        option = self._options.index(label.answer) if label.answer else NO_OPTION
        self._labelling.label(place, option, "random" if label.kind == "random" else "chosen")

    def _take_back(self) -> None:
        if not self._file.labels or self._file.labels[-1].row is None:
            print("There is nothing to undo.")
            return
        number = self._file.take_back().row
        assert number is not None
        self._labelling.take_back(self._numbers.index(number))

    def _screen(self, place: int, kind: str) -> str:
        width = terminal_width()
        number = self._numbers[place]
        p = np.exp(self._labelling.log_probabilities()[place])
        best = int(p.argmax())
        options = "   ".join(f"{i} {each}" for i, each in enumerate(self._options, 1))
        guess = f"the model: {best + 1} {self._options[best]} ({p[best]:.2f})"
        lines = [
            "",
            status(self._labelling.counts(), self._risk),
            f"Row {number:,} ({kind}): {self._rows[number]}",
            self._instructions,
            options,
            guess,
            KEYS,
        ]
        return "\n".join(wrap(printable(each), width) if each else "" for each in lines)


def status(counts: LabelCounts, risk: float) -> str:
    """Return what the labels say, in one line."""
    text = counted(counts.n_chosen + counts.n_random, "label")
    if not counts.n_random:
        return text
    text += (
        f", accuracy {counts.accuracy:.2f} ({counts.low:.2f} to {counts.high:.2f}, "
        f"{counted(counts.n_random, 'random row')})"
    )
    found = counts.certificate
    if counts.n_random < MIN_RANDOM:
        return text
    if found.threshold is not None:
        return f"{text}, at {risk:.3g} error automated: about {found.coverage:.0%}"
    if found.needed is None:
        return f"{text}, too many errors to automate at {risk:.3g}"
    more = found.needed - counts.n_random
    return f"{text}, a certificate for {risk:.3g} error needs about {more:,} more random rows"


@contextmanager
def single_keys(without_enter: bool) -> Iterator[Iterator[str]]:
    """Yield an iterator over the keys that are pressed; over lines if stdin is no terminal."""
    if not without_enter or not sys.stdin.isatty():
        yield iter(sys.stdin.readline, "")
        return
    if sys.platform == "win32":
        import msvcrt

        yield iter(msvcrt.getwch, "\x03")
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield iter(lambda: sys.stdin.read(1), "")
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _end(file: LabelFile, arguments: argparse.Namespace) -> str:
    labels = [each for each in file.labels if each.answer]
    asked = f"--questions {arguments.questions}" if arguments.questions else "..."
    return (
        f"{file.path}: {counted(len(labels), 'label')}. To fit the model to them:\n"
        f"eliza-ffi calibrate {file.path} {asked} --column {arguments.column} "
        f"--output calibration.json"
    )
