"""Shared by the commands for decisions: the options for questions, prompts and tables."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..decisions.answers import by_name
from ..decisions.layout import PROMPT_FORMATS, PROMPT_ORDERS
from ..decisions.questions import Choice, Predicate, Question, Score
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError, NotSupportedError
from ..evidence.auto_prompts import PRIORS
from ..evidence.calibration import Calibration, scoring_of
from ..evidence.cascade import Cascade, CascadeCalibration, ModelSource
from ..evidence.scoring import SCORING_RULES
from ..tables import InputTable, open_table
from ..tables.file_formats import FORMATS
from ..tables.labels import LabelledRows
from ..tables.rows import check_column, other_delimiter
from .console import UsageError, add_options, given, open_model, with_model
from .files import check_utf8, read_bytes, read_text

_FOLLOWING = {"predicate": ("name",), "ask": ("option", "name"), "score": ("level", "name")}
"""The options that begin a question, with the options that may follow them."""


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "questions", "in a file, or on the command line, each followed by its own options"
    )
    add_options(
        group,
        {
            "--questions FILE": "read the questions from FILE (JSON or TOML), a list or an object "
            "with names as keys"
        },
    )
    for option, text in (
        ("predicate", "a statement about the input, which is true or false"),
        ("ask", "a question; the --option values that follow are its answers"),
        ("option", "a possible answer; repeat for each"),
        ("score", "a question; the --level values that follow are its scale"),
        ("level", "a level of the preceding --score, lowest first; repeat for each"),
        ("name", "the name of the preceding question"),
    ):
        # All append to one list, which keeps the order of the command line.
        part: dict[str, Any] = {"dest": "question_parts", "type": partial(_part, option)}
        group.add_argument(f"--{option}", action="append", metavar="TEXT", help=text, **part)


def _part(option: str, text: str) -> tuple[str, str]:
    return option, text


def add_asking_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_argument_group("prompts"),
        {
            "--answer-style text|letters": "let the model answer with the text of an option, or "
            "with a letter (default: text)",
            "--orders N": "average over N orders of the options (default: 1)",
            f"--scoring {'|'.join(SCORING_RULES)}": "the rule that scores the options (default: "
            "constrained)",
            f"--prompt-order auto|{'|'.join(PROMPT_ORDERS)}": "what comes first in the prompt "
            "(default: auto, which depends on the model, the prompt format and the number of "
            "questions)",
            f"--prompt-format auto|{'|'.join(PROMPT_FORMATS)}": "write the prompt as turns of a "
            "chat, or as plain text (default: auto, chat if this suits the model)",
            "--n-slots N": "slots: how many inputs the model can hold at the same time (default: "
            "8; 1 with --batching off)",
        },
    )


PROMPT_OPTIONS = ("answer_style", "orders", "prompt_order", "prompt_format")
"""Options for prompts, which are also keyword arguments of `decide`."""


def add_deciding_arguments(group: argparse._ActionsContainer) -> None:
    add_options(
        group,
        {
            "--min-probability P": "abstain if the most probable answer has a probability below P "
            "(default: 0)",
            "--abstain risk": "abstain if an answer is not certified; requires a calibration with "
            "a --risk",
            "--think N": "let the model first write up to N tokens of reasoning about the input "
            "and the questions (default: 0)",
        },
    )
    group.set_defaults(min_probability=0.0, think=0)


def add_cascade_arguments(group: argparse._ActionsContainer, *, decides: bool = True) -> None:
    below = {
        "--then-below P": "with --then, without a calibration: ask the next model if an answer "
        "has a probability below P (default: 1)"
    }
    add_options(
        group,
        {
            "--then MODEL ...": "ask this model, too, if the answer may still change; repeat for "
            "more; with --think, only the last model thinks",
            **(below if decides else {}),
        },
    )


def below_of(arguments: argparse.Namespace) -> float:
    """Return the value of ``--then-below``."""
    if getattr(arguments, "then_below", None) is None:
        return 1.0
    if not arguments.then:
        raise UsageError("--then-below requires --then")
    below: float = arguments.then_below
    return below


def _source(arguments: argparse.Namespace, settings: Mapping[str, Any], name: str) -> ModelSource:
    return ModelSource(partial(open_model, arguments, arguments.n_slots), settings, name)


def read_cascade(
    arguments: argparse.Namespace,
    settings: Mapping[str, Any],
    source: Callable[[argparse.Namespace, Mapping[str, Any], str], ModelSource] = _source,
) -> Cascade:
    """Return the models of the command line, which are opened when they are asked.

    `source` makes a source of the command line with the path of its model.
    """
    if arguments.encoder is not None:
        raise UsageError("--then cannot be combined with --encoder: give it as --model")
    paths = [arguments.model, *arguments.then]
    sources = []
    for place, path in enumerate(paths, 1):
        own = dict(settings) if place == len(paths) else {**settings, "think": 0}
        of_model = with_model(arguments, path)
        sources.append(source(of_model, own, path or "the embedded model"))
    return Cascade(sources, below=below_of(arguments))


def add_example_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_argument_group("examples and prior"),
        {
            "--examples FILE": "show the rows of this table in the prompts, before the input: a "
            ".csv, .tsv, .jsonl or .parquet file that has a column with the name of each question",
            "--examples-column NAME": "the column of --examples with the inputs (default: the "
            "name in --column, or input)",
            "--prior PRIOR": "divide the probabilities by a prior: options, inputs (the rows of "
            "the table) or none (default: auto)",
        },
    )


def read_examples_file(
    arguments: argparse.Namespace, questions: Sequence[Question]
) -> list[tuple[Any, dict[str, Any]]] | None:
    """Return the examples of ``--examples``; None without the option."""
    if arguments.examples is None:
        if arguments.examples_column is not None:
            raise UsageError("--examples-column requires --examples")
        return None
    table = open_table(Path(arguments.examples), None)
    columns = table.all_columns()
    names = by_name(questions)
    for name in names:
        if name not in columns:
            if (delimiter := other_delimiter(table, name)) is not None:
                raise InvalidArgumentError(
                    f"{arguments.examples} has no column {name!r}: {delimiter!r} seems to separate "
                    f"its fields; separate them by commas, or by tabs in a .tsv file"
                )
            raise InvalidArgumentError(
                f"{arguments.examples} has no column {name!r} with right answers: give the "
                f"question the name of its column (--name); its columns are "
                f"{', '.join(map(repr, columns))}"
            )
    column = arguments.examples_column or arguments.column or "input"
    rows = LabelledRows(table, column, tuple(questions), {name: name for name in names})
    examples = list(rows)
    if rows.left_out:
        raise InvalidArgumentError(f"an example cannot be used: {rows.left_out[0]}")
    for place, (_, answers) in zip(rows.places, examples, strict=True):
        if not answers:
            raise InvalidArgumentError(f"{place}: the example answers none of the questions")
    return examples


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_argument_group("table"),
        {
            "--column NAME": "the column with the inputs",
            "--delimiter CHARACTER": "the character between the fields of a CSV file; \\t is a "
            "tab (default: a comma)",
            "--limit N": "read only the first N rows",
        },
    )


def read_questions(arguments: argparse.Namespace) -> tuple[Question, ...]:
    parts = arguments.question_parts
    if arguments.questions is None:
        if parts:
            return _from_options(parts)
        if calibration := getattr(arguments, "calibration", None):
            if getattr(arguments, "then", None):
                return CascadeCalibration.load(calibration).asked
            return read_calibration(calibration).asked
        raise UsageError("no questions: give --questions, --predicate, --ask or --score")
    if parts:
        raise UsageError(f"--{parts[0][0]} cannot be combined with --questions")
    return read_question_file(Path(arguments.questions))


def read_question_file(path: Path) -> tuple[Question, ...]:
    try:
        return as_questions(_unwrapped(read_json_file(path)))
    except NotSupportedError:
        raise
    except (InvalidArgumentError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


def read_calibration(path: str | Path) -> Calibration:
    check_utf8(read_bytes(str(path)), str(path))
    return Calibration.load(path)


def read_asking(arguments: argparse.Namespace, path: str | None = None) -> dict[str, Any]:
    """Return the keyword arguments of `decide` for prompts and scoring; None = not given. `path` is
    the file of a calibration."""
    calibration = None if path is None else read_calibration(path)
    scoring_of(calibration, arguments.scoring)
    return {**given(arguments, *PROMPT_OPTIONS, "scoring"), "calibration": calibration}


def checked_prior(prior: str | None, *, has_inputs: bool = False) -> str | None:
    """Check ``--prior``. `has_inputs` says that a prior can be fitted on the rows of a table."""
    if prior == "inputs" and not has_inputs:
        raise UsageError(
            "--prior inputs is not supported here: write the prior with eliza-ffi decide TABLE "
            "--prior inputs --save-prior FILE, and pass --calibration FILE"
        )
    known = (*PRIORS, "inputs") if has_inputs else PRIORS
    if prior is not None and prior not in known:
        hint = "" if not Path(prior).exists() else "; pass a file as --calibration"
        raise UsageError(f"--prior must be one of {', '.join(known)}, got {prior!r}{hint}")
    return prior


def read_table(arguments: argparse.Namespace) -> InputTable:
    """Open the table of the command line, which has the column of the inputs."""
    if arguments.column is None:
        if hasattr(arguments, "input") and not Path(arguments.table).exists():
            raise UsageError(f"there is no table {arguments.table!r}: give a text with --input")
        raise UsageError("a table needs a --column: the column with the inputs")
    table = open_table(Path(arguments.table), _delimiter(arguments))
    check_column(table, arguments.column)
    return table


def read_targets(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the columns of ``--target`` by question."""
    named: dict[str, str] = {}
    for text in arguments.target:
        name, found, column = text.partition("=")
        if not found:
            raise UsageError(f"--target must be QUESTION=COLUMN, got {text!r}")
        if name in named:
            raise UsageError(f"--target {name!r} is given twice: {named[name]!r} and {column!r}")
        named[name] = column
    return named


def read_for_each(
    texts: Sequence[str] | None, option: str, questions: Sequence[Question]
) -> float | dict[str, float] | None:
    """Return the numbers of a repeated option: ``NUMBER`` for all, ``QUESTION=NUMBER`` for one."""
    found: dict[str | None, float] = {}
    for text in texts or ():
        name, is_named, number = text.rpartition("=")
        key = name if is_named else None
        if key in found:
            raise UsageError(f"{option} is given twice{f' for {name!r}' if is_named else ''}")
        try:
            found[key] = float(number)
        except ValueError:
            expected = "expected a number or QUESTION=NUMBER"
            raise UsageError(f"{option}: {expected}, got {text!r}") from None
    of_all = found.pop(None, None)
    if not found:
        return of_all
    every = {} if of_all is None else dict.fromkeys(by_name(questions), of_all)
    return {**every, **{str(name): number for name, number in found.items()}}


def _delimiter(arguments: argparse.Namespace) -> str | None:
    value: str | None = arguments.delimiter
    if value is None:
        return None
    delimiter = "\t" if value == r"\t" else value  # shells pass it as two characters
    if len(delimiter) != 1:
        raise UsageError(f"--delimiter must be one character, got {value!r}")
    if delimiter in '"\r\n':
        raise UsageError(
            f"--delimiter cannot be {value!r}: quotes and line ends have a fixed meaning in CSV"
        )
    if FORMATS.get(Path(arguments.table).suffix.lower()) not in ("csv", "tsv"):
        raise UsageError(f"--delimiter requires a .csv or .tsv table, got {arguments.table}")
    return delimiter


def _from_options(parts: Sequence[tuple[str, str]]) -> tuple[Question, ...]:
    asked: list[tuple[str, str, dict[str, list[str]]]] = []
    for kind, text in parts:
        if kind in _FOLLOWING:
            asked.append((kind, text, {part: [] for part in _FOLLOWING[kind]}))
        elif not asked or kind not in asked[-1][2]:
            before = {"option": "--ask", "level": "--score", "name": "a question"}[kind]
            raise UsageError(f"--{kind} {text!r} must follow {before}")
        else:
            asked[-1][2][kind].append(text)
    try:
        return as_questions([_question(kind, text, parts) for kind, text, parts in asked])
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from error


def _question(kind: str, text: str, parts: Mapping[str, list[str]]) -> Question:
    names = parts["name"]
    if len(names) > 1:
        raise UsageError(f"--name {names[1]!r}: the question is already named {names[0]!r}")
    name = names[0] if names else None
    for part in (text, *itertools.chain.from_iterable(parts.values())):
        check_utf8(part, f"--{kind} or one of its options")
    for option in parts.keys() - {"name"}:
        if (n := len(parts[option])) < 2:
            hint = f": repeat --{option} for each" if "," in "".join(parts[option]) else ""
            raise UsageError(f"--{kind} {text!r} needs 2 or more of --{option}, got {n}{hint}")
    if kind == "predicate":
        return Predicate(text, name)
    if kind == "ask":
        return Choice(text, parts["option"], name)
    return Score(text, parts["level"], name)


def _unwrapped(read: Any) -> Any:
    """Return the value of the key ``questions``, if there is no other key but the ``$schema`` of
    editors."""
    if isinstance(read, dict):
        read.pop("$schema", None)
    if isinstance(read, Mapping) and set(read) == {"questions"}:
        inner = read["questions"]
        if not (isinstance(inner, Mapping) and isinstance(inner.get("type"), str)):
            return inner
    return read


def read_json_file(path: Path) -> Any:
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
