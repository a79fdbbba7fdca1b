#!/usr/bin/env python3
"""Try malicious and malformed input: the library must reject or answer it quickly, and stay usable.

    $ make check CHECK=hostile  # all cases (some minutes)
    $ make check CHECK=hostile CHECK_ARGS='--only grammar'  # cases whose names contain "grammar"
    $ make check CHECK=hostile CHECK_ARGS=--list

The cases cover ambiguous and huge grammars, regular expressions, slot files, model files, JSON,
options, and little memory. Each case runs in a child process with limits of time and memory, and
states what must come out: an error that names the problem, or an answer. In some cases, another
stream of the same model makes choices meanwhile; each must take less than a second. Afterwards the
model must answer as before. The time limit counts CPU time, so a busy machine does not fail a case.

Exit codes: 0 = all cases pass, 1 = some fail, 2 = cannot check.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from faults.preloaded import FaultError, Preloaded, build
from hostile import ALL_CASES
from hostile.case import Case
from hostile.mutated import cases as mutated_models
from hostile.trial import Outcome, Trials, verdict
from page_tables import markdown_table

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

SHOWN = 180
FINE = ("ok", "known")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Try malicious and malformed input.")
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="only cases whose names contain PATTERN, with the wildcards * and ?; repeatable",
    )
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument(
        "--mutations", type=int, default=300, metavar="N", help="mutated models (of 12,000; 300)"
    )
    options = parser.parse_args(arguments)
    all_cases = (*ALL_CASES, *mutated_models(options.mutations))
    cases = chosen(all_cases, options.only or [""])
    if options.list:
        for case in cases:
            print(f"{case.name}: {case.must.value} in {case.seconds:g} s, {case.mib:g} MiB")
        return 0
    if not cases:
        only = " or ".join(options.only)
        print(f"check_hostile: no case's name contains {only}", file=sys.stderr)
        return 2
    os.environ["GGML_NO_BACKTRACE"] = "1"  # otherwise llama.cpp starts a debugger when it aborts
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = Library()
            watcher = Preloaded(Path(library.path), build(Path(folder)))
            done = run(Trials(library, watcher), cases)
    except (ElizaError, FaultError) as error:
        print(f"check_hostile: {error}", file=sys.stderr)
        return 2
    print(table(done))
    counts = Counter(verdict(*each) if verdict(*each) in FINE else "failed" for each in done)
    summary = ", ".join(f"{counts[name]} {name}" for name in (*FINE, "failed") if counts[name])
    print(f"{len(done)} cases: {summary}")
    return 1 if counts["failed"] else 0


def chosen(cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """Return the cases whose names contain one of the patterns."""
    return [
        case
        for case in cases
        if any(fnmatch.fnmatchcase(case.name, f"*{pattern}*") for pattern in patterns)
    ]


def run(trials: Trials, cases: Sequence[Case]) -> list[tuple[Case, Outcome]]:
    """Run all cases, and print each verdict to standard error."""
    done = []
    for case in cases:
        outcome = trials.run(case)
        done.append((case, outcome))
        print(f"{case.name}: {verdict(case, outcome)}", file=sys.stderr, flush=True)
    return done


def table(done: Sequence[tuple[Case, Outcome]]) -> str:
    """Return a Markdown table with a row for each case."""
    rows = []
    for case, outcome in done:
        said = " ".join((outcome.after or outcome.said).replace("|", "\\|").split())
        if len(said) > SHOWN:
            said = f"{said[: SHOWN // 3]} ... {said[-SHOWN * 2 // 3 :]}"
        waited = "" if outcome.waited is None else f"{outcome.waited:.2f}"
        rows.append(
            [
                case.name,
                f"{outcome.came}: {said}",
                verdict(case, outcome),
                f"{outcome.seconds:.2f}",
                f"{outcome.mib:.0f}",
                waited,
            ]
        )
    head = ["case", "result", "verdict", "CPU s", "MiB", "others waited (s)"]
    return markdown_table(head, rows, left=3)


if __name__ == "__main__":
    sys.exit(main())
