#!/usr/bin/env python3
"""Count how many of some JSON Schemas a skeleton says, and what keeps it from the others.

    scripts/schema_coverage.py FOLDER [--reasons N]

Every file ``*.json`` below the folder is a schema, and every line of a ``*.jsonl``; an object whose
field ``json_schema`` has a schema, as a text or as it is, is taken for that. Files are counted by
the folder they are in; ``less`` are those said of which something is left out that need not be
written. Nothing is downloaded, and nothing is written.
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

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.skeleton import Skeleton

_PLACE = re.compile(r"^JSON schema at #\S*: ")
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|#/\S*|\d+")


@dataclass
class Coverage:
    """What became of the schemas of one folder.

    Attributes
    ----------
    n_read : int
        Schemas, those that are no JSON not among them.
    n_said : int
        Schemas that a skeleton says.
    n_less : int
        Those of them of which it leaves out what need not be written.
    n_broken : int
        Files or lines that are no JSON.
    reasons : Counter of str
        Why the others were refused, without names, places and numbers.
    left_out : Counter of str
        Why something was left out, in how many schemas.
    seconds : list of float
        What each schema took.
    """

    n_read: int = 0
    n_said: int = 0
    n_less: int = 0
    n_broken: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Try a schema."""
        try:
            schema = schema_of(json.loads(text))
        except (ValueError, RecursionError):
            self.n_broken += 1
            return
        self.n_read += 1
        start = time.perf_counter()
        try:
            skeleton = Skeleton.from_json_schema(schema)
            self.n_said += 1
            self.n_less += bool(skeleton.left_out)
            self.left_out.update({_kind_of(reason) for reason in skeleton.left_out})
        except InvalidArgumentError as error:
            self.reasons[_kind_of(str(error))] += 1
        self.seconds.append(time.perf_counter() - start)

    def row(self, name: str) -> str:
        """Return a line of the table."""
        part = self.n_said / self.n_read if self.n_read else 0.0
        times = self.seconds or [0.0]
        return (
            f"{name[:32]:32} {self.n_read:7} {self.n_said:7} {part:6.1%} {self.n_less:7} "
            f"{self.n_broken:7} "
            f"{median(times) * 1e3:9.1f} {max(times) * 1e3:8.0f}"
        )


def _kind_of(reason: str) -> str:
    """Return a reason without names, places and numbers."""
    return _DETAIL.sub("…", _PLACE.sub("", reason))[:100]


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


def coverage(folder: Path) -> dict[str, Coverage]:
    """Return what became of the schemas below a folder, by the folder they are in."""
    found: dict[str, Coverage] = {}
    for file in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".jsonl")):
        name = str(file.parent.relative_to(folder))
        for text in texts_of(file):
            found.setdefault(name, Coverage()).add(text)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reasons", type=int, default=20, help="how many to tell (%(default)s)")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}")
    found = coverage(options.folder)
    total = Coverage()
    print(
        f"{'folder':32} {'schemas':>7} {'said':>7} {'part':>6} {'less':>7} {'no JSON':>7} "
        f"median ms   max ms"
    )
    for name, each in found.items():
        print(each.row(name))
        total.n_read += each.n_read
        total.n_said += each.n_said
        total.n_less += each.n_less
        total.n_broken += each.n_broken
        total.reasons += each.reasons
        total.left_out += each.left_out
        total.seconds += each.seconds
    print(total.row("all"))
    for title, reasons in (("refused", total.reasons), ("left out", total.left_out)):
        for reason, count in reasons.most_common(options.reasons):
            print(f"{title:8} {count:6}  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
