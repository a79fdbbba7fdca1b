#!/usr/bin/env python3
"""Count how many JSON Schemas compile, how many are relaxed, and why others are rejected.

    scripts/schema_coverage.py FOLDER [--answers N] [--reasons N]

Reads every ``*.json`` file below the folder, and every line of every ``*.jsonl`` file, as a schema.
If an object has a field ``json_schema`` (a schema, or its text), that is the schema. Results are
counted by folder. ``relaxed`` counts the compiled schemas that the token masks do not enforce
completely. With ``--answers N`` the embedded model writes N answers for each compiled schema,
sampled at a high temperature. ``failed`` counts answers that raised an error. ``invalid`` counts
answers that were returned but are not valid, which must be 0. Downloads and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import jsonschema

from eliza_ffi import Model
from eliza_ffi.errors import FillError, InvalidArgumentError
from eliza_ffi.structured.schema import schema_grammar

MOST_TOKENS = 100
TEMPERATURE = 1.5

_PLACE = re.compile(r"^(unsupported )?(JSON schema at )?#\S*: ")
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|#/\S*|\d+")


@dataclass
class Coverage:
    """The results for the schemas of one folder.

    Attributes
    ----------
    n_read : int
        Number of schemas, without files and lines that are not JSON.
    n_relaxed : int
        Number of compiled schemas that are not enforced completely.
    n_broken : int
        Number of files or lines that are not JSON.
    n_answers, n_failed, n_invalid : int
        Number of answers, of errors instead of an answer, and of invalid answers.
    rejected : Counter of str
        Reasons for rejections, without names, places and numbers.
    relaxed : Counter of str
        Constraints that are not enforced, with the number of schemas.
    seconds : list of float
        Compilation time of each schema.
    """

    n_read: int = 0
    n_compiled: int = 0
    n_relaxed: int = 0
    n_broken: int = 0
    n_answers: int = 0
    n_failed: int = 0
    n_invalid: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    relaxed: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def add(self, text: str, model: Model | None = None, n_answers: int = 0) -> None:
        """Compile a schema, and let the model, if any, write answers to it."""
        try:
            schema = schema_of(json.loads(text))
        except (ValueError, RecursionError):
            self.n_broken += 1
            return
        self.n_read += 1
        start = time.perf_counter()
        try:
            grammar = schema_grammar(schema)
        except InvalidArgumentError as error:
            self.rejected[_kind_of(str(error))] += 1
            return
        finally:
            self.seconds.append(time.perf_counter() - start)
        self.n_compiled += 1
        self.n_relaxed += bool(grammar.relaxed)
        self.relaxed.update({_kind_of(reason) for reason in grammar.relaxed})
        if model is not None and isinstance(schema, dict) and schema:
            for _ in range(n_answers):
                self._answer(model, schema)

    def _answer(self, model: Model, schema: dict[str, Any]) -> None:
        self.n_answers += 1
        try:
            value = model.fill(
                "JSON: ", schema, max_tokens=MOST_TOKENS, on_limit="close", temperature=TEMPERATURE
            ).value
        except (FillError, InvalidArgumentError):
            self.n_failed += 1
            return
        reader = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        self.n_invalid += not reader(schema).is_valid(value)

    def count(self, other: Coverage) -> None:
        """Add the results for other schemas."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def row(self, name: str) -> str:
        """Return a line of the table."""
        part = self.n_compiled / self.n_read if self.n_read else 0.0
        times = self.seconds or [0.0]
        return (
            f"{name[:32]:32} {self.n_read:7} {self.n_compiled:8} {part:6.1%} {self.n_relaxed:7} "
            f"{self.n_broken:7} {median(times) * 1e3:9.1f} {max(times) * 1e3:8.0f} "
            f"{self.n_answers:7} {self.n_failed:6} {self.n_invalid:7}"
        )


def _kind_of(reason: str) -> str:
    """Remove names, places and numbers from a reason."""
    return _DETAIL.sub("\u2026", _PLACE.sub("", reason))[:100]


def schema_of(data: Any) -> Any:
    """Return the schema in an entry of a data set, or the entry itself if it is a schema."""
    if isinstance(data, dict) and "json_schema" in data:
        inner = data["json_schema"]
        return json.loads(inner) if isinstance(inner, str) else inner
    return data


def texts_of(file: Path) -> Iterator[str]:
    """Yield the JSON texts of a file."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".jsonl":
        yield from (line for line in text.splitlines() if line.strip())
    else:
        yield text


def coverage(folder: Path, model: Model | None = None, n_answers: int = 0) -> dict[str, Coverage]:
    """Return the results for all schemas below a folder, by subfolder."""
    found: dict[str, Coverage] = {}
    for file in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".jsonl")):
        name = str(file.parent.relative_to(folder))
        for text in texts_of(file):
            found.setdefault(name, Coverage()).add(text, model, n_answers)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--answers", type=int, default=0, help="answers per schema (default: %(default)s)"
    )
    parser.add_argument(
        "--reasons", type=int, default=20, help="reasons to list (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"expected a folder, got {options.folder}")
    if options.answers:
        with Model() as model:
            found = coverage(options.folder, model, options.answers)
    else:
        found = coverage(options.folder)
    total = Coverage()
    print(
        f"{'folder':32} {'schemas':>7} {'compiled':>8} {'part':>6} {'relaxed':>7} {'broken':>7} "
        f"median ms   max ms answers failed invalid"
    )
    for name, each in found.items():
        print(each.row(name))
        total.count(each)
    print(total.row("all"))
    for title, reasons in (("rejected", total.rejected), ("relaxed", total.relaxed)):
        for reason, count in reasons.most_common(options.reasons):
            print(f"{title:8} {count:6}  {reason}")
    return 1 if total.n_invalid else 0


if __name__ == "__main__":
    sys.exit(main())
