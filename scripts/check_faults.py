#!/usr/bin/env python3
"""Make single system calls of the library fail, one per run, and check what the library does.

    $ make check CHECK=faults  # about 50 calls of each kind, some minutes
    $ make check CHECK=faults CHECK_ARGS='--sample 0'  # every call (hours)
    $ make check CHECK=faults CHECK_ARGS='--only save'

A child process runs each operation of a model many times. In each run, one allocation, open, read,
write, sync, rename, mapping or thread creation fails. The operation must succeed with the usual
result, or raise an error; after a failed allocation, the error must be a MemoryError. Later calls
must succeed, and the model must answer as before. A file that was being saved must have its old or
its new content, with no other file left in its folder. Deaths in llama.cpp's code, which ends the
process after some failed allocations, are only counted. Needs Linux, glibc, a C compiler, and a
library that was not stripped.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.operations import N_SLOTS, OPERATIONS, Operation
from faults.preloaded import (
    KINDS,
    VARIABLE,
    Preloaded,
    Symbols,
    blamed,
    our_caller,
    run_preloaded,
)
from forked import Child, run_forked
from stage import CHAT, Stage

from eliza_ffi.errors import ElizaError, OutOfMemoryError
from eliza_ffi.library.loading import Library

TIME_LIMIT_S = 30.0
SETTINGS = {"n_ctx": 512, "n_slots": N_SLOTS, "options": {"slot_wait_ms": "0"}}

FINE = ("worked", "refused", "died in llama.cpp")
"""The good ends of an operation; deaths in llama.cpp's code are only counted."""

WHICH = re.compile(r"/\S+|\"[^\"]*\"|'[^']*'|\d+")
"""The parts in which two error messages of the same kind differ: paths, quoted text, numbers."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make single system calls of the library fail.")
    add = parser.add_argument
    add("--only", default="", metavar="TEXT", help="only operations whose names contain TEXT")
    add("--sample", type=int, default=50, metavar="N", help="calls of each kind (50); 0 = all")
    add("--lasting", action="store_true", help="also fail all later calls of the kind")
    options = parser.parse_args(arguments)
    try:
        if "failing_calls" not in os.environ.get(VARIABLE, ""):
            with tempfile.TemporaryDirectory() as folder:
                return run_preloaded(__file__, sys.argv[1:], Path(folder))
        library = Library()
        loop = Loop(library, Preloaded(Path(library.path)), lasting=options.lasting)
    except (ElizaError, OSError, subprocess.CalledProcessError) as error:
        print(f"check_faults: {error}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    faults = run(loop, options.only, options.sample)
    for line in listing(faults):
        print(line)
    ended = Counter(fault.ended for fault in faults)
    print(", ".join(f"{count} {name}" for name, count in ended.most_common()))
    failed = sum(fault.ended not in FINE for fault in faults)
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(faults) - failed} of {len(faults)} faults are handled, in {minutes:.1f} minutes")
    return 1 if failed else 0


def run(loop: Loop, only: str, sample: int) -> list[Fault]:
    """Run all operations, and print progress to standard error."""
    faults: list[Fault] = []
    operations = [each for each in OPERATIONS if only in each.name]
    for operation, kind in itertools.product(operations, KINDS):
        found = [*loop.faults(operation, kind, sample)]
        ended = Counter(fault.ended for fault in found)
        counts = ", ".join(f"{count} {name}" for name, count in ended.most_common())
        print(f"{operation.name}, {kind}: {counts or 'no call'}", file=sys.stderr, flush=True)
        faults += found
    return faults


def listing(faults: Sequence[Fault]) -> list[str]:
    """Return lines about the outcomes that are neither a result nor the right error.

    Outcomes of the same place or with the same message share a line, which gives their number and
    the first of them.
    """
    places: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        if fault.ended not in ("worked", "refused"):
            what = WHICH.sub("_", fault.said) if fault.ended == "other error" else fault.place
            places.setdefault((fault.ended, what), []).append(fault)
    return [
        f"{ended}: {group[0].place or 'unknown place'}, {len(group)} times; {group[0].operation}, "
        f"{group[0].kind} {group[0].n}: {group[0].said}"
        for (ended, _), group in sorted(places.items(), key=lambda item: item[0])
    ]


@dataclass(frozen=True)
class Fault:
    operation: str
    kind: str
    n: int  # number of the failing call, from 1
    ended: str
    said: str  # the error message, or a description of the deviation
    place: str  # the function where the process died, or the function that made the failing call


class Loop:
    def __init__(self, library: Library, preloaded: Preloaded, *, lasting: bool = False) -> None:
        self._library = library
        self._preloaded = preloaded
        self._symbols = Symbols(Path(library.path), preloaded.base)
        self._lasting = lasting

    def count(self, operation: Operation, kind: str) -> tuple[int, dict[str, Any]]:
        """Return the number of calls of a kind, and the child's report if none of them fails."""
        child = self._in_child(operation, kind, 0)
        problem = child.last_words if child.report is None else child.report.get("error")
        if problem is not None:
            raise RuntimeError(f"{operation.name} failed without a failing call: {problem}")
        return int(self._preloaded.report.n_calls), child.report

    def faults(self, operation: Operation, kind: str, sample: int = 0) -> Iterator[Fault]:
        """Yield the outcome for each failing call, or for about `sample` of them."""
        count, expected = self.count(operation, kind)
        step = max(1, count // sample) if sample else 1
        for n in range(1, count + 1, step):
            child = self._in_child(operation, kind, n)
            # With threads, the number of calls varies, so the n-th call may not have happened.
            if self._preloaded.report.n_failed:
                yield self._judged(operation, kind, n, child, expected)

    def _judged(
        self, operation: Operation, kind: str, n: int, child: Child, expected: Any
    ) -> Fault:
        stacks = self._preloaded.report
        stack = self._symbols.names(stacks.stack_of_failure())
        if child.report is None:
            died_at = self._symbols.names(stacks.stack_of_death())
            owner = "llama.cpp" if blamed(died_at)[0] == "llama.cpp" else "our code"
            stack = died_at or stack
            ended = "hung" if child.is_late else f"died in {owner}"
            said = f"{child.how}: {child.last_words}"
        else:
            ended, said = judge(kind, child.report, expected)
        function, ours = blamed(stack)[1], our_caller(stack)
        if ours not in ("", function):
            function += f", called by {ours}"
        return Fault(operation.name, kind, n, ended, said, function)

    def _in_child(self, operation: Operation, kind: str, n: int) -> Child:
        self._preloaded.forget()
        with tempfile.TemporaryDirectory() as folder:
            return run_forked(lambda: self._perform(operation, kind, n, Path(folder)), TIME_LIMIT_S)

    def _perform(self, operation: Operation, kind: str, n: int, folder: Path) -> dict[str, Any]:
        stage = Stage(self._library, folder, **SETTINGS)
        operation.prepare(stage)
        report: dict[str, Any] = {"old_files": stage.files()}
        self._preloaded.arm(kind, n, lasting=self._lasting)
        try:
            report["result"] = operation.run(stage)
        except ElizaError as error:
            report["error"] = str(error)
            report["is_memory"] = isinstance(error, OutOfMemoryError) or isinstance(
                error.__cause__, OutOfMemoryError
            )
        except BaseException as error:
            report["error"] = report["unexpected"] = f"{type(error).__name__}: {error}"
        finally:
            self._preloaded.disarm()
        report["files"] = stage.files()
        try:
            report["answers"] = [*stage.answers(), stage.model.generate(CHAT, 6).text]
            report["answers"].append(operation.run(stage))
        except BaseException as error:
            report["answers"] = f"{type(error).__name__}: {error}"
        return report


def judge(kind: str, report: dict[str, Any], expected: dict[str, Any]) -> tuple[str, str]:
    """Return how an operation ended, if the process survived a failing call.

    `expected` is the report of a child in which no call failed.
    """

    def wrong(part: str) -> str:
        return f"{part}: expected {expected[part]}, got {report[part]}"

    if report["answers"] != expected["answers"]:
        return "spoilt", wrong("answers")
    if report["files"] not in (report["old_files"], expected["files"]):
        return "spoilt", f"{wrong('files')}, before {report['old_files']}"
    if "unexpected" in report:
        return "other error", report["unexpected"]
    if "error" in report:
        is_right = kind != "allocation" or report["is_memory"]
        return "refused" if is_right else "other error", report["error"]
    for part in ("result", "files"):
        if report[part] != expected[part]:
            return "wrong", wrong(part)
    return "worked", ""


if __name__ == "__main__":
    sys.exit(main())
