#!/usr/bin/env python3
"""Count how many JSON Schemas compile, which are relaxed, and what rejects the others.

    scripts/schema_coverage.py FOLDER [--answers N] [--reasons N]

Every file ``*.json`` below the folder is a schema, and every line of a ``*.jsonl``; an object whose
field ``json_schema`` has a schema, as a text or as it is, is taken for that. Files are counted by
the folder they are in. ``relaxed`` are the compiled schemas of which the token masks do not enforce
everything. With ``--answers`` the embedded model writes so many answers for each compiled schema,
sampled at a high temperature: ``failed`` answers raised an error, and ``invalid`` is how many were
returned although they are not valid, which is always 0. Nothing is downloaded or written.
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
    """What became of the schemas of one folder.

    Attributes
    ----------
    n_read : int
        Schemas, those that are no JSON not among them.
    n_compiled : int
    n_relaxed : int
        Compiled schemas of which not everything is enforced.
    n_broken : int
        Files or lines that are no JSON.
    n_answers, n_failed, n_invalid : int
        Answers, those that raised an error, and those that were returned and are not valid.
    rejected : Counter of str
        Why schemas were rejected, without names, places and numbers.
    relaxed : Counter of str
        What is not enforced, in how many schemas.
    seconds : list of float
        What compiling each schema took.
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
        """Try a schema, with answers of a model if there is one."""
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
        """Add what became of other schemas."""
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
    """Return a reason without names, places and numbers."""
    return _DETAIL.sub("\u2026", _PLACE.sub("", reason))[:100]


def schema_of(data: Any) -> Any:
    """Return the schema of an entry of a data set, or the entry, if it is one itself."""
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
    """Return what became of the schemas below a folder, by the folder they are in."""
    found: dict[str, Coverage] = {}
    for file in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".jsonl")):
        name = str(file.parent.relative_to(folder))
        for text in texts_of(file):
            found.setdefault(name, Coverage()).add(text, model, n_answers)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--answers", type=int, default=0, help="for each schema (%(default)s)")
    parser.add_argument("--reasons", type=int, default=20, help="how many to tell (%(default)s)")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}")
    if options.answers:
        with Model() as model:
            found = coverage(options.folder, model, options.answers)
    else:
        found = coverage(options.folder)
    total = Coverage()
    print(
        f"{'folder':32} {'schemas':>7} {'compiled':>8} {'part':>6} {'relaxed':>7} {'no JSON':>7} "
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
