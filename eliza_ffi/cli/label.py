"""``eliza-ffi label``: label rows of a table with one key each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np

from ..decisions.answers import name_of
from ..decisions.examples import for_each_question, option_names
from ..decisions.prompts import AskedQuestion
from ..decisions.questions import MultiLabel, Score
from ..evidence.scoring import ScoringRule
from ..learning.labelling import (
    MIN_READ,
    NO_OPTION,
    Kind,
    Labelling,
    Readings,
    read_rows,
    status,
)
from ..tables.label_file import Label, LabelFile, draw_rows
from ..terminal import counted, printable, terminal_width, wrap
from .console import UsageError, add_model_arguments, add_options, open_model
from .files import check_output
from .labelled import CONFIDENCE, RISK, RISKS
from .questions import (
    PROMPT_OPTIONS,
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_for_each,
    read_questions,
    read_table,
)

MAX_KEYS = 9
"""With more options, an answer is a number and Enter."""

KEYS = "n none fits   s skip   u undo   q quit"
SECOND_KEYS = "n none fits   k keep   q quit"

MAX_SECOND = 10
"""How many labels that may be wrong are shown again at the end."""


def add_labelling_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Label rows of a table with one key each. Half of the rows are chosen, because the model "
        "can learn most from them. The other rows are random: they measure the accuracy, and how "
        "many answers could be automated with 5 % errors (or --risk). You can stop and continue at "
        "any time."
    )
    parser.add_argument("table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file")
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="write to FILE: the labels, as CSV"
    )
    add_question_arguments(parser)
    add_options(
        parser,
        {
            RISKS: RISK,
            "--confidence C": CONFIDENCE,
        },
    )
    parser.set_defaults(confidence=0.9)
    add_asking_arguments(parser)
    add_table_arguments(parser)
    add_model_arguments(parser, decides=True)


def run_label(arguments: argparse.Namespace) -> int:
    every = read_questions(arguments)
    questions = [each for each in every if not isinstance(each, MultiLabel)]
    if len(questions) < len(every):
        raise UsageError("label needs questions with one answer: choices, scores or predicates")
    risk = read_for_each(arguments.risk, "--risk", questions)
    risks = for_each_question("--risk", 0.05 if risk is None else risk, questions)
    for name, values in (("risk", risks), ("confidence", [arguments.confidence])):
        if not all(0 < each < 1 for each in values):
            raise UsageError(f"--{name} must be above 0 and below 1")
    path = Path(arguments.output)
    check_output(arguments)
    if path.suffix.lower() != ".csv":  # other commands would read it in another format
        raise UsageError(f"--output must end in .csv, got {arguments.output!r}")
    rows = draw_rows(read_table(arguments), arguments.column)
    options = {
        name_of(question.name, i): option_names(question) for i, question in enumerate(questions)
    }
    (name, *more) = options
    others = {each: options[each] for each in more}
    asked = read_asking(arguments)
    with (
        closing(LabelFile(path, arguments.column, name, options[name], rows, others)) as file,
        open_model(arguments, arguments.n_slots) as model,
    ):
        # The rows that have a label come first. Inputs that a server was sent have no row.
        labelled = [each.row for each in file.labels if each.row is not None]
        order = list(dict.fromkeys([*labelled, *rows]))
        prompts = {name: asked[name] for name in PROMPT_OPTIONS}
        scoring: ScoringRule = asked["scoring"] or "constrained"
        texts = [rows[number] for number in order]
        first, *further = questions
        readings = Readings(read_rows(model, first, texts, prompts, scoring, further))
        try:
            labellings = [
                Labelling(len(each), risk, arguments.confidence, isinstance(question, Score))
                for each, question, risk in zip(options.values(), questions, risks, strict=True)
            ]
            loop = _Loop(file, readings, order, rows, options, questions, labellings)
            with single_keys(max(map(len, options.values())) <= MAX_KEYS) as keys:
                loop.run(keys)
                loop.look_again(keys)
        finally:
            readings.stop()
    print(_end(file, arguments))
    return 0


class _Row(NamedTuple):
    """The number of a row, its kind, and the answers to the questions asked so far."""

    number: int
    kind: str
    answers: tuple[str | None, ...]


def _label(row: _Row) -> Label:
    first, *others = row.answers
    return Label(row.number, first, row.kind, others=tuple(others))


class _Loop:
    """Offers rows, and stores the labels."""

    def __init__(
        self,
        file: LabelFile,
        readings: Readings,
        order: Sequence[int],
        rows: Mapping[int, str],
        options: Mapping[str, Sequence[str]],
        questions: Sequence[AskedQuestion],
        labellings: Sequence[Labelling],
    ) -> None:
        self._file, self._readings = file, readings
        self._order, self._rows = order, rows  # the numbers of the rows as they are read
        self._names, self._options = list(options), list(options.values())
        self._instructions = [question.instructions for question in questions]
        self._labellings = labellings
        self._numbers: list[int] = []

    def run(self, keys: Iterator[str]) -> None:
        labels = self._labels()
        n_first = max(len(labels), min(MIN_READ, len(self._rows)))
        print(f"Reading {counted(n_first, 'row')}; the others follow while you label.", flush=True)
        self._take(n_first)
        for number, label in labels.items():
            if number in self._numbers:
                self._note(label)
        while True:
            self._take(0)
            row = self._next()
            if row is None:
                n = len(self._numbers)
                if self._take(n + 1) == 0:
                    print("Every row that was drawn is labelled.")
                    return
                continue
            question = len(row.answers)
            print(self._screen(row), flush=True)
            key = next(keys, "q").strip().lower()
            if key == "q":
                return
            if key == "u":
                self._take_back()
            elif key == "s" or self._is_answer(key, question):
                answer = None if key == "s" else self._answer(key, question)
                label = _label(row._replace(answers=(*row.answers, answer)))
                self._file.add(label)
                self._note(label, question)
            else:
                print(self._no_answer(key, question, KEYS))

    def look_again(self, keys: Iterator[str]) -> None:
        """Show the labels that may be wrong once more, without the model's answer."""
        doubtful = [
            (self._numbers[place], question)
            for question, labelling in enumerate(self._labellings)
            for place in labelling.suspicious()[:MAX_SECOND]
        ]
        if doubtful:
            print(f"\n{counted(len(doubtful), 'answer')} may be wrong. Please look again:")
        for number, question in doubtful:
            label = self._labels()[number]
            answers = list(label.answers)
            lines = [*self._question(number, label.kind, question)]
            lines += [f"your answer: {answers[question]}", SECOND_KEYS]
            print(self._wrapped(["", *lines]), flush=True)
            while (key := next(keys, "q").strip().lower()) not in ("", "k"):
                if key == "q":
                    return
                if self._is_answer(key, question):
                    answers[question] = self._answer(key, question)
                    self._file.add(_label(_Row(number, label.kind, tuple(answers))))
                    break
                print(self._no_answer(key, question, SECOND_KEYS), flush=True)

    def _labels(self) -> dict[int, Label]:
        """Return the label of each row; the last one of a row counts."""
        return {each.row: each for each in self._file.labels if each.row is not None}

    def _next(self) -> _Row | None:
        """Return the row to ask about with its answers so far; the questions take turns."""
        n = len(self._options)
        labels = self._labels()
        for number, label in reversed(labels.items()):
            if len(label.answers) < n and number in self._numbers:
                return _Row(number, label.kind, label.answers)
        n_chosen = sum(label.kind == "chosen" for label in labels.values())
        found = self._labellings[n_chosen % n].next()
        return None if found is None else _Row(self._numbers[found.row], found.kind, ())

    def _take(self, wanted: int) -> int:
        """Add the rows that have been read; wait until there are `wanted`. Return how many."""
        found = self._readings.after(len(self._numbers), wanted)
        for row in found:
            self._numbers.append(self._order[row.place])
            read = ((row.state, row.own), *row.others)
            for labelling, (state, own) in zip(self._labellings, read, strict=True):
                labelling.add_row(state, own)
        return len(found)

    def _note(self, label: Label, first: int = 0) -> None:
        """Tell the selection the answers of a label, from the first given question on."""
        assert label.row is not None
        place = self._numbers.index(label.row)
        kind: Kind = "random" if label.kind == "random" else "chosen"
        for question, answer in enumerate(label.answers[first:], first):
            labelling, options = self._labellings[question], self._options[question]
            if answer is None:
                labelling.skip(place)
            else:
                labelling.label(place, options.index(answer) if answer else NO_OPTION, kind)

    def _take_back(self) -> None:
        if not self._file.labels or self._file.labels[-1].row is None:
            print("There is nothing to undo.")
            return
        number = self._file.take_back().row
        assert number is not None
        for labelling in self._labellings:
            labelling.take_back(self._numbers.index(number))
        if number in (labels := self._labels()):
            self._note(labels[number])

    def _is_answer(self, key: str, question: int) -> bool:
        is_number = key.isdecimal() and 1 <= int(key) <= len(self._options[question])
        return key == "n" or is_number

    def _answer(self, key: str, question: int) -> str:
        return "" if key == "n" else self._options[question][int(key) - 1]

    def _no_answer(self, key: str, question: int, keys: str) -> str:
        return f"{printable(repr(key))} is no answer: 1 to {len(self._options[question])}, {keys}"

    def _screen(self, row: _Row) -> str:
        question = len(row.answers)
        labelling, options = self._labellings[question], self._options[question]
        p = np.exp(labelling.log_probabilities()[self._numbers.index(row.number)])
        best = int(p.argmax())
        guess = f"the model: {best + 1} {options[best]} ({p[best]:.2f})"
        name = f"{self._names[question]}: " if len(self._options) > 1 else ""
        head = name + status(labelling.counts())
        asked = self._question(row.number, row.kind, question)
        return self._wrapped(["", head, *asked, guess, KEYS])

    def _question(self, number: int, kind: str, question: int) -> list[str]:
        options = (f"{i} {each}" for i, each in enumerate(self._options[question], 1))
        text = f"Row {number:,} ({kind}): {self._rows[number]}"
        return [text, self._instructions[question], "   ".join(options)]

    def _wrapped(self, lines: Sequence[str]) -> str:
        width = terminal_width()
        return "\n".join(wrap(printable(each), width) if each else "" for each in lines)


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
    last = {each.row or each.input: each for each in file.labels}
    labels = [answer for each in last.values() for answer in each.answers if answer]
    asked = f"--questions {quote(arguments.questions)}" if arguments.questions else "..."
    return (
        f"{file.path}: {counted(len(labels), 'labelled row')}. To calibrate with this file:\n"
        f"eliza-ffi calibrate {quote(str(file.path))} {asked} --column {quote(arguments.column)} "
        f"--output calibration.json"
    )
