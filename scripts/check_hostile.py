#!/usr/bin/env python3
"""Try malicious and malformed input: the library must reject or answer it quickly, and stay usable.

    $ make check CHECK=hostile  # all cases (some minutes)
    $ make check CHECK=hostile CHECK_ARGS='--only grammar'  # cases whose names contain "grammar"

The cases cover ambiguous and huge grammars, regular expressions, slot files, model files, JSON, and
options. Each case runs in a child process with limits of time and memory, and states what must come
out: an error that names the problem, or an answer. In some cases, another stream of the same model
makes choices meanwhile; each must take less than a second. Afterwards the model must answer as
before. The time limit counts CPU time, so a busy machine does not fail a case.

Exit codes: 0 = all cases pass, 1 = some fail, 2 = cannot check.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import little_memory, run_forked
from hostile import ALL_CASES
from hostile.case import Broken, Case, Must, neighbour
from hostile.mutated import cases as mutated_models
from stage import Stage

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

LONGEST_WAIT_S = 1.0
MAX_DIFFERENCE = 0.005
"""Tolerance for a probability: rounding depends on how much of the prompt was in the cache."""

MIN_WALL_S = 20.0
WALL_TO_CPU = 5
"""The wall time limit is this many times the CPU time limit, because the machine may be busy."""

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
        figures = f"{outcome.seconds:.2f} s, {outcome.mib:.0f} MiB, waited {outcome.waited:.2f} s"
        print(f"{case.name}: {found}: {figures}: {outcome.came}: {said}", flush=True)
    print(f"{len(cases)} cases: {n_ok} ok, {len(cases) - n_ok} failed")
    return int(n_ok < len(cases))


@dataclass(frozen=True)
class Outcome:
    came: str  # ``"answer"``, ``"error"``, ``"broken"``, ``"died"`` or ``"hung"``
    said: str  # the error message, the beginning of the answer, or the last words of the process
    seconds: float = 0.0  # CPU time
    mib: float = 0.0  # peak of the additional memory
    waited: float = 0.0  # duration of the other stream's slowest choice, in seconds
    after: str = ""  # what changed in the model's answers afterwards; empty if nothing did


def verdict(case: Case, outcome: Outcome) -> str:
    """Return ``"ok"``, or a description of the problems."""
    if outcome.came in ("died", "hung", "broken"):
        return outcome.came
    required = {Must.FAIL: "error", Must.ANSWER: "answer", Must.END: outcome.came}[case.must]
    problems = {
        f"no {required}": outcome.came != required,
        f"does not say {case.says}": outcome.came == "error"
        and not re.search(case.says, outcome.said),
        f"over {case.seconds:g} s": outcome.seconds > case.seconds,
        f"over {case.mib:g} MiB": outcome.mib > case.mib,
        f"another stream waited {outcome.waited} s": outcome.waited > LONGEST_WAIT_S,
        "answers changed afterwards": bool(outcome.after),
    }
    return "; ".join(problem for problem, is_true in problems.items() if is_true) or "ok"


def try_case(case: Case, library: Library) -> Outcome:
    wall = max(MIN_WALL_S, WALL_TO_CPU * case.seconds)
    with tempfile.TemporaryDirectory() as folder:
        child = run_forked(lambda: _perform(case, Stage(library, Path(folder))), wall)
    if child.report is not None:
        return Outcome(**child.report)
    came, how = ("hung", f"after {wall:g} s") if child.is_late else ("died", child.how)
    return Outcome(came, f"{how} {child.last_words}".strip())


def _perform(case: Case, stage: Stage) -> dict[str, Any]:
    if case.prepare is not None:
        case.prepare(stage)
    before = stage.answers() if stage.was_used else None
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the memory
    held, cpu = _peak_mib(), time.process_time()
    report: dict[str, Any] = {}
    with little_memory(case.address_mib):
        try:
            with neighbour(stage.model) if case.neighbour else nullcontext([0.0]) as waited:
                report |= _attempt(case, stage)
        except BaseException as error:
            report["after"] = f"the other stream failed: {error!r}"
    report |= {"seconds": time.process_time() - cpu, "mib": _peak_mib() - held}
    report["waited"] = max(waited, default=0.0)
    if before is not None and "after" not in report:
        report["after"] = _changes(stage, before)
    report["said"] = report["said"].replace(str(stage.folder), "FOLDER")
    return report


def _attempt(case: Case, stage: Stage) -> dict[str, Any]:
    try:
        return {"came": "answer", "said": repr(case.run(stage))[:200]}
    except ElizaError as error:
        return {"came": "error", "said": f"{type(error).__name__}: {error}"}
    except Broken as error:
        return {"came": "broken", "said": str(error)}
    except BaseException as error:
        last = " ".join(traceback.format_tb(error.__traceback__)[-3:])
        return {"came": "broken", "said": f"{type(error).__name__}: {error} ({last})"}


def _changes(stage: Stage, before: list[Any]) -> str:
    """Return how the answers differ from those before the case; empty = they are the same."""
    try:
        answers = stage.answers()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    is_same = all(
        value == old_value and abs(probability - old) < MAX_DIFFERENCE
        for (value, probability), (old_value, old) in zip(answers, before, strict=True)
    )
    return "" if is_same else f"expected {before}, got {answers}"


def _peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
