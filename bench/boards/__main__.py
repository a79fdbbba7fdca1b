"""See :mod:`bench.boards`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.cli.console import UsageError, open_model
from eliza_ffi.cli.progress import RowProgress
from eliza_ffi.decisions.prompts import AskedQuestion
from eliza_ffi.decisions.wire import question_to
from eliza_ffi.learning.metrics import QuestionReport
from eliza_ffi.learning.report import overall_report, question_report
from eliza_ffi.terminal import printable, terminal_width, text_table

from ..parts.programs import run_program
from .asking import Ask, UnansweredError, in_process, over_http, probabilities
from .rows import BoardRow, read_rows

KEY = "BOARDS_API_KEY"
"""The variable of the environment with the key of the server."""

LEAST = np.finfo(float).tiny


@dataclass
class Part:
    """The answers of a benchmark.

    `answers` has, for each different question, the question, log-probabilities and right options.
    """

    board: str
    benchmark: str
    answers: dict[str, tuple[AskedQuestion, list[NDArray[np.float64]], list[int]]] = field(
        default_factory=dict
    )
    n_rows: int = 0
    n_questions: int = 0
    seconds: float = 0.0
    unanswered: list[str] = field(default_factory=list)

    def add(self, question: AskedQuestion, p: NDArray[np.float64], target: int) -> None:
        key = json.dumps(question_to(question), sort_keys=True)
        _, log_p, targets = self.answers.setdefault(key, (question, [], []))
        log_p.append(np.log(np.maximum(p, LEAST)))
        targets.append(target)

    def report(self) -> QuestionReport | None:
        """Return the report of all answers together; None if there are none."""
        reports = [
            question_report(str(question.name), question, np.array(log_p), np.array(targets))
            for question, log_p, targets in self.answers.values()
        ]
        return overall_report(reports) if reports else None

    def figures(self) -> dict[str, Any]:
        """Return what is reported of the benchmark. Without an answer, a question counts as wrong
        in the accuracy, and not at all in the other figures."""
        report = self.report()
        n_right = 0 if report is None else int(report.right.sum())
        return {
            "board": self.board,
            "benchmark": self.benchmark,
            "rows": self.n_rows,
            "questions": self.n_questions,
            "answered": 0 if report is None else report.n,
            "accuracy": n_right / self.n_questions if self.n_questions else None,
            "brier": None if report is None else report.brier,
            "ece": None if report is None else report.ece,
            "automated": None if report is None else report.automated.to_dict(),
            "seconds": round(self.seconds, 3),
            "unanswered": self.unanswered[:3],
        }


def measure(
    rows: Iterable[BoardRow],
    ask: Ask,
    limit: int | None = None,
    progress: Callable[[int, int | None], Any] = lambda n, total: None,
) -> list[Part]:
    """Ask about up to `limit` rows of each benchmark, one after another.

    `progress` is called after each row with the number of rows so far and None.
    """
    parts: dict[tuple[str, str], Part] = {}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        key = row.board, row.benchmark
        if not row.targets or (limit is not None and counts[key] >= limit):
            continue
        counts[key] += 1
        part = parts.setdefault(key, Part(*key))
        part.n_rows += 1
        part.n_questions += len(row.targets)
        begin = time.perf_counter()
        try:
            answers = ask(row.state, row.questions)
        except UnansweredError as error:
            part.unanswered.append(f"{row.place}: {error}")
            continue
        finally:
            part.seconds += time.perf_counter() - begin
            progress(sum(counts.values()), None)
        for name, target in row.targets.items():
            question = row.asked(name)
            part.add(question, probabilities(question, answers.get(name)), target)
    return list(parts.values())


def table(figures: Sequence[dict[str, Any]]) -> str:
    head = ["board", "benchmark", "questions", "answered", "accuracy", "Brier", "ECE"]
    lines = [[*head, "at 5 % error", "ms/row"]]
    for each in figures:
        automated = each["automated"]
        share = "-" if automated is None else f"{automated['share']:.0%}"
        accuracy = each["accuracy"]
        lines.append(
            [
                each["board"],
                each["benchmark"],
                f"{each['questions']:,}",
                f"{each['answered']:,}",
                "-" if accuracy is None else f"{accuracy:.1%}",
                *("-" if each[name] is None else f"{each[name]:.3f}" for name in ("brier", "ece")),
                share,
                f"{1e3 * each['seconds'] / each['rows']:.1f}",
            ]
        )
    return text_table(lines, left=2, width=terminal_width())


@contextmanager
def _asking(given: argparse.Namespace) -> Iterator[Ask]:
    if given.server is not None:
        if given.model is not None:
            raise UsageError("--model cannot be combined with --server: give --server-model")
        yield over_http(given.server, given.server_model, os.environ.get(KEY))
        return
    with open_model(given) as model:
        yield in_process(model)


def run(given: argparse.Namespace) -> int:
    progress = RowProgress()
    with _asking(given) as ask:
        try:
            parts = measure(read_rows(given.kit), ask, given.limit, progress.count)
        finally:
            progress.erase()
    figures = [part.figures() for part in parts]
    if not figures:
        raise UsageError(f"--kit {given.kit} has no row with a right answer")
    print(table(figures))
    for each in figures:
        if reasons := each["unanswered"]:
            n = each["questions"] - each["answered"]
            first = f"{each['benchmark']}: {n:,} questions without an answer, the first: "
            print(printable(first + reasons[0]), file=sys.stderr)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    purpose = "Measure a model on the rows of Decision Index, JevBench or typed-decisions."
    parser = argparse.ArgumentParser(prog="bench.boards", description=purpose)
    parser.add_argument("--kit", type=Path, required=True, help="the folder with the rows")
    parser.add_argument("--limit", type=int, help="ask about the first N rows of each benchmark")
    parser.add_argument("--server", metavar="URL", help="ask this server instead of a model")
    parser.add_argument("--server-model", metavar="NAME", help="the model that the server is asked")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return run_program(parser, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
