#!/usr/bin/env python3
"""Give the library what strangers may give it: it says what is wrong, soon, and goes on.

    $ make hostile                               # all cases (some minutes)
    $ make hostile CHECK_ARGS='--only grammar'   # those with it in their name
    $ make hostile CHECK_ARGS=--list

Each case runs in a child process, under limits of time and memory: ambiguous and enormous grammars,
regular expressions, chat templates, files of saved prompts and models, JSON and options, little
memory, signals. What must come out is said by the case: an error that names what is wrong, or an
answer. Where a case is about blocking, another stream of the same model chooses all the while and
may not wait for a second. Afterwards the model must answer as before. The time that counts is the
processor's, so that a busy machine does not fail a case.

Exit codes: 0 = all as they must be, 1 = not so, 2 = could not be checked.
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
from hostile.trial import Outcome, Trials, verdict
from page_tables import markdown_table

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

SHOWN = 180
FINE = ("ok", "known")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Give the library what strangers may give it.")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="cases with it in their name; * and ? count"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and leave")
    options = parser.parse_args(arguments)
    cases = chosen(ALL_CASES, options.only)
    if options.list:
        for case in cases:
            print(f"{case.name}: {case.must.value} in {case.seconds:g} s, {case.mib:g} MiB")
        return 0
    if not cases:
        print(f"check_hostile: no case has {options.only!r} in its name", file=sys.stderr)
        return 2
    os.environ["GGML_NO_BACKTRACE"] = "1"  # llama.cpp would start a debugger where it aborts
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
    said = ", ".join(f"{counts[name]} {name}" for name in (*FINE, "failed") if counts[name])
    print(f"{len(done)} cases: {said}")
    return 1 if counts["failed"] else 0


def chosen(cases: Sequence[Case], pattern: str) -> list[Case]:
    """Return the cases whose names have a pattern in them."""
    return [case for case in cases if fnmatch.fnmatchcase(case.name, f"*{pattern}*")]


def run(trials: Trials, cases: Sequence[Case]) -> list[tuple[Case, Outcome]]:
    """Run cases, saying on standard error how far it is."""
    done = []
    for case in cases:
        outcome = trials.run(case)
        done.append((case, outcome))
        print(f"{case.name}: {verdict(case, outcome)}", file=sys.stderr, flush=True)
    return done


def table(done: Sequence[tuple[Case, Outcome]]) -> str:
    """Return a table in Markdown: a row for each case."""
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
    head = ["case", "what came out", "verdict", "CPU s", "MiB", "others waited"]
    return markdown_table(head, rows, left=3)


if __name__ == "__main__":
    sys.exit(main())
