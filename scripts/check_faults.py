#!/usr/bin/env python3
"""Make single system calls of the library fail, one per run, and check what the library does.

    $ make check CHECK=faults  # about 50 calls of each kind, some minutes
    $ make check CHECK=faults CHECK_ARGS='--sample 0'  # every call (hours)
    $ make check CHECK=faults CHECK_ARGS='--only save --details'

A child process runs each operation of a model many times. In each run, one allocation, open, read,
write, sync, rename, mapping or thread creation fails. The operation must succeed with the usual
result, or raise an error; after a failed allocation, the error must be a MemoryError. Later calls
must succeed, and the model must answer as before. A file that was being saved must have its old or
its new content, with no other file left in its folder. If the child dies, the output says whose
code it died in. Deaths in llama.cpp's code, which ends the process after some failed allocations,
are only counted. Any other deviation gives exit code 1. Needs Linux, glibc, a C compiler, and a
library that was not stripped.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from faults.loop import Ended, Fault, Loop
from faults.operations import OPERATIONS
from faults.preloaded import KINDS, FaultError, Preloaded, run_preloaded

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

WHICH = re.compile(r"/\S+|\"[^\"]*\"|'[^']*'|\d+")
"""The parts in which two error messages of the same kind differ: paths, quoted text, numbers."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make single system calls of the library fail.")
    add = parser.add_argument
    add("--only", default="", metavar="TEXT", help="only operations whose names contain TEXT")
    add("--sample", type=int, default=50, metavar="N", help="calls of each kind (50); 0 = all")
    add("--lasting", action="store_true", help="also fail all later calls of the kind")
    add("--details", action="store_true", help="also list the stacks")
    options = parser.parse_args(arguments)
    try:
        if not Preloaded.is_there():
            with tempfile.TemporaryDirectory() as folder:
                return run_preloaded(__file__, sys.argv[1:], Path(folder))
        library = Library()
        loop = Loop(library, Preloaded(Path(library.path)), lasting=options.lasting)
    except (ElizaError, FaultError) as error:
        print(f"check_faults: {error}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    faults = run(loop, options.only, options.sample)
    for line in listing(faults, details=options.details):
        print(line)
    ended = Counter(fault.ended.value for fault in faults)
    print(", ".join(f"{count} {name}" for name, count in ended.most_common()))
    failed = sum(fault.ended.is_failure for fault in faults)
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(faults) - failed} of {len(faults)} faults are handled, in {minutes:.1f} minutes")
    return 1 if failed else 0


def run(loop: Loop, only: str, sample: int) -> list[Fault]:
    """Run all operations, and print progress to standard error."""
    faults: list[Fault] = []
    operations = [each for each in OPERATIONS if only in each.name]
    for operation, kind in itertools.product(operations, KINDS):
        found = [*loop.faults(operation, kind, sample)]
        ended = Counter(fault.ended.value for fault in found)
        counts = ", ".join(f"{count} {name}" for name, count in ended.most_common())
        print(f"{operation.name}, {kind}: {counts or 'no call'}", file=sys.stderr, flush=True)
        faults += found
    return faults


def listing(faults: Sequence[Fault], *, details: bool) -> list[str]:
    """Return lines about the outcomes that are neither a result nor the right error.

    Outcomes of the same place or with the same message share a line, which gives their number and
    the first of them.
    """
    places: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        if fault.ended not in (Ended.WORKED, Ended.REFUSED):
            # Errors are grouped by their message, all other outcomes by the place of the call.
            is_error = fault.ended is Ended.OTHER_ERROR
            what = WHICH.sub("_", fault.said) if is_error else fault.place
            places.setdefault((fault.ended.value, what), []).append(fault)
    lines = []
    for (ended, _), group in sorted(places.items(), key=lambda item: item[0]):
        first = group[0]
        where = f"{first.operation}, {first.kind} {first.n}"
        lines.append(
            f"{ended}: {first.place or 'unknown place'}, {len(group)} times; {where}: {first.said}"
        )
        if details:
            lines += [f"    died {name}" for name in first.died_at[:16]]
            lines += [f"    failed {name}" for name in first.failed_at[:16]]
    return lines


if __name__ == "__main__":
    sys.exit(main())
