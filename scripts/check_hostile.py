#!/usr/bin/env python3
"""Try malicious and malformed input: the library must reject or answer it quickly, and stay usable.

    $ make check CHECK=hostile  # all cases (some minutes)
    $ make check CHECK=hostile CHECK_ARGS='--only grammar'  # cases whose names contain "grammar"
    $ make check CHECK=hostile CHECK_ARGS=--list

The cases cover ambiguous and huge grammars, regular expressions, slot files, model files, JSON, and
options. Each case runs in a child process with limits of time and memory, and states what must come
out: an error that names the problem, or an answer. In some cases, another stream of the same model
makes choices meanwhile; each must take less than a second. Afterwards the model must answer as
before. The time limit counts CPU time, so a busy machine does not fail a case. ``check_faults.py``
tries little memory.

Exit codes: 0 = all cases pass, 1 = some fail, 2 = cannot check.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence

from hostile import ALL_CASES
from hostile.mutated import cases as mutated_models
from hostile.trial import try_case, verdict

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

SHOWN = 180


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Try malicious and malformed input.")
    add = parser.add_argument
    only = "only cases whose names contain PATTERN, with the wildcards * and ?; repeatable"
    add("--only", action="append", default=[], metavar="PATTERN", help=only)
    add("--list", action="store_true", help="list the cases and exit")
    add("--mutations", type=int, default=300, metavar="N", help="mutated models (of 12,000; 300)")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in (*ALL_CASES, *mutated_models(options.mutations))
        if any(fnmatch.fnmatchcase(case.name, f"*{only}*") for only in options.only or [""])
    ]
    if options.list:
        for case in cases:
            print(f"{case.name}: {case.must.value} in {case.seconds:g} s, {case.mib:g} MiB")
        return 0
    try:
        library = Library()
        if not cases:
            raise ElizaError(f"no case's name contains {' or '.join(options.only)}")
    except ElizaError as error:
        print(f"check_hostile: {error}", file=sys.stderr)
        return 2
    n_ok = 0
    for case in cases:
        outcome = try_case(case, library)
        found = verdict(case, outcome)
        n_ok += found == "ok"
        said = " ".join((outcome.after or outcome.said).split())
        if len(said) > SHOWN:
            said = f"{said[: SHOWN // 3]} ... {said[-SHOWN * 2 // 3 :]}"
        figures = f"{outcome.seconds:.2f} s, {outcome.mib:.0f} MiB"
        if outcome.waited is not None:
            figures += f", others waited {outcome.waited:.2f} s"
        print(f"{case.name}: {found}: {figures}: {outcome.came}: {said}", flush=True)
    print(f"{len(cases)} cases: {n_ok} ok, {len(cases) - n_ok} failed")
    return int(n_ok < len(cases))


if __name__ == "__main__":
    sys.exit(main())
