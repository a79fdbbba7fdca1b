"""What the commands about decisions share: questions, how they are asked, and of which table."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..decisions.calibration import Calibration, how_asked
from ..decisions.prompts import LabelStyle
from ..decisions.questions import Choice, Predicate, Question, Score
from ..decisions.scoring import RULES, Rule
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError, NotSupportedError
from ..tables import InputTable, open_table
from ..tables.file_formats import FORMATS
from .console import UsageError, whole_number
from .files import check_utf8, read_bytes, read_text

__all__ = [
    "HowAsked",
    "add_asking_arguments",
    "add_question_arguments",
    "add_table_arguments",
    "read_asking",
    "read_questions",
    "read_table",
]


_FOLLOWING = {
    "predicate": ("name",),
    "ask": ("choice", "name"),
    "score": ("level", "name"),
}
"""The options that begin a question, and those that belong to it and follow."""


class _Told(argparse.Action):
    """Keeps the options that make up questions in the order in which they come."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        told = getattr(namespace, "told", None) or []
        namespace.told = [*told, (self.dest, str(values))]


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the ways to ask: a file, or questions on the line."""
    group = parser.add_argument_group(
        "questions", "a file, or on the line, where a question's options follow it"
    )
    group.add_argument(
        "--questions", metavar="FILE", help="questions as JSON or TOML, by name or as a list"
    )
    for option, text in (
        ("predicate", "is this true of the input? Repeated for several"),
        ("ask", "which of the --choice that follow?"),
        ("choice", "an answer; repeated"),
        ("score", "how much, on the scale of the --level that follow?"),
        ("level", "a level of the --score before it, the lowest first; repeated"),
        ("name", "what to call the question before it"),
    ):
        group.add_argument(f"--{option}", action=_Told, metavar="TEXT", help=text)


def add_asking_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how questions are put to the model, and what is done to its probabilities."""
    group = parser.add_argument_group("asking")
    group.add_argument(
        "--labels",
        choices=("text", "letters"),
        help="what the model answers with: the options' texts, or letters (text)",
    )
    group.add_argument(
        "--orders", type=int, metavar="N", help="average over N orders of the options (1)"
    )
    group.add_argument("--scoring", choices=RULES, help="how options are scored (legal)")
    group.add_argument(
        "--n-slots",
        type=whole_number,
        metavar="N",
        help="inputs that are asked about at once (8; 1 with --batching off)",
    )


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is read of a table."""
    group = parser.add_argument_group("table")
    group.add_argument("--column", metavar="NAME", help="the column with the inputs")
    group.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        help="between the fields of a CSV table; \\t is a tab (a comma)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="only the first N: rows of the table")


def read_questions(arguments: argparse.Namespace) -> tuple[Question, ...]:
    """Return the questions of the file, or those on the line."""
    told = getattr(arguments, "told", None) or []
    if arguments.questions is None:
        if not told:
            raise UsageError("no questions: give --questions, --predicate, --ask or --score")
        return _on_the_line(told)
    if told:
        raise UsageError(f"--questions holds all that is asked: give no --{told[0][0]}")
    path = Path(arguments.questions)
    try:
        return as_questions(_unwrapped(_read_file(path)))
    except NotSupportedError:
        raise
    except (InvalidArgumentError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


@dataclass(frozen=True)
class HowAsked:
    """How questions are put.

    Attributes
    ----------
    labels : str
    orders : int
    scoring : str
    calibration : Calibration or None
    """

    labels: LabelStyle
    orders: int
    scoring: Rule
    calibration: Calibration | None = None


def read_asking(arguments: argparse.Namespace) -> HowAsked:
    """Return how to ask: as the options say, or else as the calibration was fitted for."""
    path = getattr(arguments, "calibration", None)
    if arguments.orders is not None and arguments.orders < 1:
        raise UsageError(f"--orders must be 1 or more, not {arguments.orders}")
    if arguments.n_slots == 0:
        raise UsageError("--n-slots must be 1 or more, not 0")
    if path is not None:
        check_utf8(read_bytes(path), path)
    calibration = None if path is None else Calibration.load(path)
    how, rule = how_asked(
        calibration,
        labels=arguments.labels,
        orders=arguments.orders,
        rule=arguments.scoring,
    )
    return HowAsked(how.labels, how.orders, rule, calibration)


def read_table(arguments: argparse.Namespace) -> InputTable:
    """Return the table of the command line."""
    if arguments.column is None:
        raise UsageError("a table needs a --column: the one with the inputs")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit must be 1 or more, not {arguments.limit}")
    return open_table(Path(arguments.table), _delimiter(arguments))


def _delimiter(arguments: argparse.Namespace) -> str | None:
    given: str | None = arguments.delimiter
    if given is None:
        return None
    delimiter = "\t" if given == r"\t" else given  # as shells hand it on
    if len(delimiter) != 1:
        raise UsageError(f"--delimiter must be one character, not {given!r}")
    if delimiter in '"\r\n':
        raise UsageError(f"--delimiter cannot be {given!r}: it has a meaning in every CSV file")
    if FORMATS.get(Path(arguments.table).suffix.lower()) not in ("csv", "tsv"):
        raise UsageError(f"--delimiter goes with CSV, and {arguments.table} is none")
    return delimiter


def _on_the_line(told: Sequence[tuple[str, str]]) -> tuple[Question, ...]:
    asked: list[tuple[str, str, dict[str, list[str]]]] = []
    for kind, text in told:
        if kind in _FOLLOWING:
            asked.append((kind, text, {part: [] for part in _FOLLOWING[kind]}))
        elif not asked or kind not in asked[-1][2]:
            of = {"choice": "--ask", "level": "--score", "name": "a question"}[kind]
            raise UsageError(f"--{kind} {text!r} must follow {of}")
        else:
            asked[-1][2][kind].append(text)
    try:
        return as_questions([_question(kind, text, parts) for kind, text, parts in asked])
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from error


def _question(kind: str, text: str, parts: Mapping[str, list[str]]) -> Question:
    names = parts["name"]
    if len(names) > 1:
        raise UsageError(f"--name {names[1]!r}: the question has the name {names[0]!r}")
    name = names[0] if names else None
    if kind == "predicate":
        return Predicate(text, name)
    if kind == "ask":
        return Choice(text, parts["choice"], name)
    return Score(text, parts["level"], name)


def _unwrapped(read: Any) -> Any:
    """Return what is under the key ``questions``, if that is all there is."""
    if isinstance(read, Mapping) and set(read) == {"questions"}:
        inner = read["questions"]
        if not (isinstance(inner, Mapping) and isinstance(inner.get("type"), str)):
            return inner
    return read


def _read_file(path: Path) -> Any:
    text = read_text(str(path))
    if path.suffix.lower() != ".toml":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"expected JSON, or TOML in a file whose name ends in .toml: {error}"
            ) from error
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:
        raise NotSupportedError(f"{path}: TOML needs Python 3.11 or newer; JSON does not") from None
    return tomllib.loads(text)
