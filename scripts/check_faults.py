#!/usr/bin/env python3
"""Let every single call fail that the library makes: the state before or after, never between.

    $ make faults                                  # 50 of each kind of call, some minutes
    $ make faults CHECK_ARGS='--sample 0'          # every single one (hours)
    $ make faults CHECK_ARGS='--only save --details'

Whatever a model can be asked for is asked in a child process, once for each allocation, open, read,
write, sync, rename, mapping and thread of it, and this one call fails. It must come out as it would
have, or as an error: of kind MemoryError where an allocation failed. Then nothing fails any more,
and the model answers as before; a file that was being saved is the old one or the new, and nothing
is beside it. Children that die are listed by whose code it was. Those of llama.cpp, which ends a
process where it cannot allocate in some places, are only counted. Exit code 1 where anything else
was not as it should be. Needs Linux, glibc, a C compiler and a library that was not stripped.
"""

from __future__ import annotations

import argparse
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
from page_tables import markdown_table

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

WHICH = re.compile(r"/\S+|\"[^\"]*\"|'[^']*'|\d+")
"""What tells one error's text from another of the same kind: paths, what is quoted, numbers."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Let every call fail that the library makes.")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="operations with it in their name"
    )
    parser.add_argument("--kind", choices=KINDS, help="what fails; default: everything")
    parser.add_argument(
        "--sample",
        type=int,
        default=50,
        metavar="N",
        help="about N calls of each kind (50); 0 = all",
    )
    parser.add_argument("--lasting", action="store_true", help="from then on all calls fail")
    parser.add_argument("--details", action="store_true", help="list the stacks, too")
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
    kinds = KINDS if options.kind is None else (options.kind,)
    faults = run(loop, options.only, kinds, options.sample)
    print(table(faults))
    for line in listing(faults, details=options.details):
        print(line)
    failed = sum(fault.ended.is_failure for fault in faults)
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(faults) - failed} of {len(faults)} faults end well, in {minutes:.1f} minutes")
    return 1 if failed else 0


def run(loop: Loop, only: str, kinds: Sequence[str], sample: int) -> list[Fault]:
    """Let calls fail, saying on standard error how far it is."""
    faults: list[Fault] = []
    for operation in OPERATIONS:
        if only not in operation.name:
            continue
        for kind in kinds:
            found = [*loop.faults(operation, kind, sample)]
            if found:
                ended = Counter(fault.ended.value for fault in found)
                said = ", ".join(f"{count} {name}" for name, count in ended.most_common())
                print(f"{operation.name}, {kind}: {said}", file=sys.stderr, flush=True)
            faults += found
    return faults


def table(faults: Sequence[Fault]) -> str:
    """Return a table in Markdown: a row for each operation and kind, counts of how it ended."""
    keys = dict.fromkeys((fault.operation, fault.kind) for fault in faults)
    rows = []
    for key in keys:
        group = Counter(f.ended for f in faults if (f.operation, f.kind) == key)
        rows.append([*key, str(group.total()), *(str(group[ended]) for ended in Ended)])
    count = Counter(fault.ended for fault in faults)
    rows.append(["all", "all", str(count.total()), *(str(count[ended]) for ended in Ended)])
    head = ["operation", "what failed", "faults", *(ended.value for ended in Ended)]
    return markdown_table(head, rows, left=2)


def listing(faults: Sequence[Fault], *, details: bool) -> list[str]:
    """Return a line for each kind of end that is no answer and no right error.

    Those of one place, or with one text, are one line, which counts them and shows the first.
    """
    places: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        if fault.ended not in (Ended.WORKED, Ended.REFUSED):
            # An error is told by its words, wherever the call was made; the rest by the place.
            is_error = fault.ended is Ended.OTHER_ERROR
            what = WHICH.sub("_", fault.said) if is_error else fault.place
            places.setdefault((fault.ended.value, what), []).append(fault)
    lines = []
    for (ended, _), group in sorted(places.items(), key=lambda item: item[0]):
        first = group[0]
        where = f"{first.operation}, {first.kind} {first.n}"
        lines.append(
            f"{ended}: {first.place or 'somewhere'}, {len(group)} times; {where}: {first.said}"
        )
        if details:
            lines += [f"    died {name}" for name in first.died_at[:16]]
            lines += [f"    failed {name}" for name in first.failed_at[:16]]
    return lines


if __name__ == "__main__":
    sys.exit(main())
