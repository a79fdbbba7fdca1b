"""The rows of the boards, in one form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.examples import level_of
from eliza_ffi.decisions.prompts import AskedQuestion
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, text_of
from eliza_ffi.decisions.wire import question_from
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.tables.parquet import load_pyarrow

JEVBENCH, TYPED_DECISIONS, DECISION_INDEX = "JevBench", "typed-decisions", "Decision Index"

ONLY = "answer"
"""The name of a question that has none."""


@dataclass(frozen=True)
class BoardRow:
    """A state, and questions about it.

    Attributes
    ----------
    board, benchmark : str
        The board, and the part of it that has figures of its own.
    place : str
        For messages, such as ``"easy.jsonl, line 7"``.
    state : JSON
    questions : dict
        The questions by name, in the format of ``/v1/systemone``.
    targets : dict of str to int
        The index of the right option of each question that counts, in the order of
        :meth:`asked`; true is 0.
    """

    board: str
    benchmark: str
    place: str
    state: Any
    questions: dict[str, dict[str, Any]]
    targets: dict[str, int]

    def asked(self, name: str) -> AskedQuestion:
        return _asked(name, self.questions[name])


def read_rows(kit: Path) -> Iterator[BoardRow]:
    """Yield the rows of a folder; the board is recognized by its files.

    Raise InvalidArgumentError if there are none, or if a row is not as its board describes it.
    """
    files = {
        board: sorted({file for pattern in patterns for file in kit.glob(pattern)})
        for board, (patterns, _) in _BOARDS.items()
    }
    found = {board: several for board, several in files.items() if several}
    if not found:
        listed = "; ".join(f"{name}: {', '.join(each)}" for name, (each, _) in _BOARDS.items())
        raise InvalidArgumentError(f"{kit} has no rows of a known board; expected {listed}")
    for board, several in found.items():
        read = _BOARDS[board][1]
        for file in several:
            for place, data in _objects(file):
                try:
                    yield read(file, place, data)
                except (InvalidArgumentError, KeyError, TypeError, AttributeError) as error:
                    reason = f"no {error}" if isinstance(error, KeyError) else error
                    raise InvalidArgumentError(f"{board}, {place}: {reason}") from error


def _objects(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file with their places."""
    if file.suffix == ".parquet":
        parquet = load_pyarrow().parquet.ParquetFile(file)
        row = 0
        for batch in parquet.iter_batches():
            for data in batch.to_pylist():
                row += 1
                yield f"{file.name}, row {row}", data
        return
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{file.name}, line {number}", _json(f"{file.name}, line {number}", line)


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{what} is not JSON: {error}") from None


def _of_jevbench(file: Path, place: str, data: Mapping[str, Any]) -> BoardRow:
    """One question for each row. A choice without descriptions has its options in `labels`."""
    question = {key: each for key, each in data["question"].items() if each is not None}
    if question["type"] == "choice" and "criteria" not in question:
        question["criteria"] = dict.fromkeys(data["labels"])
    expected = data.get("expected")
    targets = {} if expected is None else {ONLY: _target(_asked(ONLY, question), expected)}
    return BoardRow(JEVBENCH, file.stem, place, data["state"], {ONLY: question}, targets)


def _of_typed_decisions(file: Path, place: str, data: Mapping[str, Any]) -> BoardRow:
    """The columns with several values are JSON. The right option is the most probable one of three
    answers of a larger model, as in the data set's own label."""
    state, questions, gold = (_json(name, data[name]) for name in ("state", "questions", "gold"))
    targets = {
        name: _target(_asked(name, questions[name]), each["label"]) for name, each in gold.items()
    }
    return BoardRow(TYPED_DECISIONS, data["workflow"], place, state, questions, targets)


def _of_decision_index(file: Path, place: str, data: Mapping[str, Any]) -> BoardRow:
    """A right answer that is null does not count. A row with a scorer of its own, such as that of a
    ranking, counts if its right answer is an option."""
    questions, targets = data["questions"], {}
    for name, expected in data["expected"].items():
        if expected is None:
            continue
        try:
            targets[name] = _target(_asked(name, questions[name]), expected)
        except InvalidArgumentError:
            if not data.get("scoring"):
                raise
    dataset = data["_evaluation"]["dataset"]
    return BoardRow(DECISION_INDEX, dataset, place, data["state"], questions, targets)


_BOARDS: dict[str, tuple[tuple[str, ...], Callable[[Path, str, Any], BoardRow]]] = {
    JEVBENCH: (("datasets/public/*.jsonl",), _of_jevbench),
    TYPED_DECISIONS: (("all/test-*.parquet",), _of_typed_decisions),
    DECISION_INDEX: (("**/*-rows.jsonl", "**/*-rows.jsonl.gz"), _of_decision_index),
}
"""For each board the patterns of its files, and what reads a row."""


def _asked(name: str, question: Any) -> AskedQuestion:
    asked = question_from(question, name)
    if isinstance(asked, MultiLabel):
        raise InvalidArgumentError(f"the question {name!r}: expected a noul, a choice or a score")
    return asked


def _target(question: AskedQuestion, expected: Any) -> int:
    if isinstance(question, Predicate):
        text = str(expected).lower()
        if text in ("true", "yes", "1"):
            return 0
        if text in ("false", "no", "0"):
            return 1
        raise InvalidArgumentError(
            f"the question {question.name!r}: expected yes or no, got {expected!r}"
        )
    if isinstance(question, Choice):
        options = list(map(text_of, question.values))
        if expected not in options:
            raise InvalidArgumentError(
                f"the question {question.name!r}: expected one of {', '.join(map(repr, options))}, "
                f"got {expected!r}"
            )
        return options.index(expected)
    # The boards count levels from 0, also if the descriptions are numbers.
    level = int(expected) if isinstance(expected, str) and expected.isdecimal() else expected
    is_index = isinstance(level, int) and not isinstance(level, bool)
    if is_index and level in range(len(question.values)):
        return int(level)
    return level_of(question, expected)
