"""Store labels in a CSV file, one line for each label."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from ..decisions.prompts import input_text
from ..errors import InvalidArgumentError
from .decider import input_of
from .rows import InputTable
from .store import lock
from .text_tables import csv_reader

MAX_ROWS = 1000
"""The maximum number of rows to label, drawn at random from a table."""

ROW, KIND = "row", "kind"

KINDS = ("chosen", "random")


class Label(NamedTuple):
    """A labelled row: its number, its answer, and its kind, ``chosen`` or ``random``.

    The answer is empty if every option is wrong, and None if the question was skipped. An input
    that is in no table has the number None. `others` has the answers to further questions, as far
    as they were asked.
    """

    row: int | None
    answer: str | None
    kind: str
    input: str = ""  # the table's input if the row has a number
    others: tuple[str | None, ...] = ()

    @property
    def answers(self) -> tuple[str | None, ...]:
        return (self.answer, *self.others)


class LabelFile:
    """The labels of a table's rows in a file that other programs can read.

    Its columns are the number of the row in the table, the input, the answers under the questions'
    names, and the kind: ``chosen`` or ``random``, with the suffix ``, none`` or ``, skipped`` for
    each missing answer in turn. A killed process loses no answer, because every line is written to
    the disk before the next question is asked. With several questions, each further answer repeats
    the line with one answer more. If a row is labelled again, the later label counts, but the row
    keeps its kind: a random row stays random.

    `column` and `question` name the columns of the inputs and of the answers. `answers` are the
    possible answers, and `others` those to further questions, by name. `inputs` has the texts of
    the rows by number; None if the table is not known.

    Raises
    ------
    InvalidArgumentError
        If the file has other columns or an impossible answer, or if the input of a row differs
        from the table.
    ElizaError
        If another process has opened the file, or it cannot be written.
    """

    def __init__(
        self,
        path: Path,
        column: str,
        question: str,
        answers: Sequence[str],
        inputs: Mapping[int, str] | None = None,
        others: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self._inputs = inputs
        self._answers = [answers, *others.values()]
        self._rows = {text: number for number, text in reversed([*(inputs or {}).items()])}
        self._file = path.open("a+b", buffering=0)
        try:
            lock(self._file, path)
            self._begin([ROW, column, question, *others, KIND])
        except BaseException as error:
            self._file.close()
            if isinstance(error, csv.Error):
                raise InvalidArgumentError(f"{path} is malformed: {error}") from None
            raise

    def close(self) -> None:
        self._file.close()

    def add(self, label: Label) -> bool:
        """Append a label, and wait until the disk has it. Return whether it replaces another."""
        row, answer, kind, text, others = label
        if row is None:
            row = self._rows.get(text)
        elif self._inputs is not None:
            text = self._inputs[row]
        key = _key(Label(row, answer, kind, text))
        replaces, kind = key in self._kinds, self._kinds.get(key, kind)
        given = [each or "" for each in label.answers]
        given += [""] * (len(self._answers) - len(given))
        reasons = ["skipped" if each is None else "none" for each in label.answers if not each]
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._write(["" if row is None else row, text, *given, ", ".join([kind, *reasons])])
        except BaseException:
            self._file.truncate(end)
            raise
        self._note(Label(row, answer, kind, text, others), end)
        return replaces

    def _note(self, label: Label, begin: int) -> None:
        self.labels.append(label)
        self._ends.append(begin)
        if label.row is not None:
            self._rows.setdefault(label.input, label.row)
        self._kinds.setdefault(_key(label), label.kind)

    def take_back(self) -> Label:
        """Remove the last label."""
        self._file.truncate(self._ends.pop())
        os.fsync(self._file.fileno())
        label = self.labels.pop()
        if _key(label) not in map(_key, self.labels):
            del self._kinds[_key(label)]
        return label

    def _begin(self, columns: list[str]) -> None:
        self.labels: list[Label] = []
        self._ends: list[int] = []
        self._kinds: dict[int | str, str] = {}
        self._file.seek(0)
        lines = self._file.readall().decode("utf-8", "surrogateescape").split("\n")
        lines = [f"{line}\n" for line in lines[:-1]]  # without the part of a line at the end
        reader = csv_reader(lines)
        begin = n_lines = 0
        for cells in reader:
            text = "".join(lines[n_lines : reader.line_num])
            if not begin:  # some programs write a byte order mark
                cells[:1] = [cell.removeprefix("\ufeff") for cell in cells[:1]]
            n_lines = reader.line_num
            if len(cells) != len(columns) and n_lines == len(lines) and begin:
                break  # the system stopped while the line was written
            if begin:
                self._note(self._read(cells), begin)
            elif cells != columns:
                raise InvalidArgumentError(
                    f"{self.path} has the columns {', '.join(cells)}, expected "
                    f"{', '.join(columns)}: give another file for the labels"
                )
            begin += len(text.encode("utf-8", "surrogateescape"))
        self._file.truncate(begin)
        if not begin:
            self._write(columns)

    def _read(self, cells: Sequence[str]) -> Label:
        place = f"{self.path}, label {len(self.labels) + 1}"
        n = len(self._answers)
        number, input, *given, kinds = cells if len(cells) == n + 3 else ("?", "", "")
        row = int(number) if number.isdecimal() else None
        expected: str | None = input
        if row is not None and self._inputs is not None:
            expected = self._inputs.get(row)
        if expected is None or (number and row is None):
            raise InvalidArgumentError(
                f"{place}: expected the number of a row of the table and {n + 2} more fields, got "
                f"{', '.join(cells)!r:.80}"
            )
        if expected != input:
            raise InvalidArgumentError(
                f"{place}: row {number} of the table has another input now: the table has changed "
                f"since it was labelled"
            )
        for answer, options in zip(given, self._answers, strict=True):
            if answer not in (*options, ""):
                raise InvalidArgumentError(
                    f"{place}: {answer!r} is none of the answers {', '.join(map(repr, options))}"
                )
        kind, answers = read_kinds(place, given, kinds)
        first, *others = answers or [""]
        return Label(row, first, kind, input, tuple(others))

    def _write(self, cells: Sequence[object]) -> None:
        line = io.StringIO(newline="")
        # Before Python 3.13, a cell with a carriage return is quoted only if lines end with one.
        csv.writer(line, lineterminator="\r\n").writerow(cells)
        data = f"{line.getvalue()[:-2]}\n".encode()
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        os.fsync(self._file.fileno())


def read_kinds(place: str, given: Sequence[str], kinds: object) -> tuple[str, list[str | None]]:
    """Return the kind of a line, and its answers as in :class:`Label`, without those not asked."""
    kind, *reasons = str(kinds).split(", ")
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"{place}, column {KIND!r}: expected {' or '.join(KINDS)}, as eliza-ffi label writes, "
            f"got {kind!r:.80}"
        )
    answers: list[str | None] = []
    for answer in given:
        if answer or reasons:
            answers.append(answer or {"none": ""}.get(reasons.pop(0)))
    return kind, answers


def _key(label: Label) -> int | str:
    return label.input if label.row is None else label.row


def draw_rows(table: InputTable, column: str) -> dict[int, str]:
    """Return the texts of up to :data:`MAX_ROWS` usable rows by number, in random order.

    The same table gives the same rows.
    """
    random = Random(0)
    drawn: list[tuple[int, str]] = []
    n = 0
    for row in table.rows(columns={column}):
        try:
            text = input_text(input_of(row, column))
        except InvalidArgumentError:
            continue
        n += 1
        place = random.randrange(n)
        if n <= MAX_ROWS:
            drawn.append((row.number, text))
            drawn[place], drawn[-1] = drawn[-1], drawn[place]
        elif place < MAX_ROWS:
            drawn[place] = (row.number, text)
    if not drawn:
        raise InvalidArgumentError(f"{table.path} has no row with a usable input")
    return dict(drawn)
