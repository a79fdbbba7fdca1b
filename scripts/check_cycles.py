#!/usr/bin/env python3
"""Open and close a model thousands of times: memory, files and threads must not grow.

    $ make check-cycles                                  # 5,000 times, a minute
    $ make check-cycles CHECK_ARGS='--cycles 500 --use'  # also choose and generate each time

Measures the process after a tenth of the cycles, when everything that is allocated once exists, and
again after the last cycle. Exit code 1 if anything grew. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from held import Held, growth

from eliza_ffi.model import Model


def cycles(
    count: int, use: bool = False, path: str | None = None, seconds: float = float("inf")
) -> tuple[Held, Held]:
    """Open and close a model `count` times; return measurements after a tenth and at the end.

    Stops early when `seconds` have passed.
    """
    begin = time.monotonic()
    early: Held | None = None
    for done in range(1, count + 1):
        with Model(path) as model:
            if use:
                model.choose("message: hello\naction: ", ["RESPOND", "IGNORE"])
                model.generate("Once", 2)
        passed = time.monotonic() - begin
        if early is None and (done >= count // 10 or passed > seconds / 10):
            early = Held.now()
        if passed > seconds:
            break
    late = Held.now()
    return early or late, late


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Open and close a model thousands of times.")
    parser.add_argument("--cycles", type=int, default=5000, metavar="N", help="default: 5000")
    parser.add_argument("--use", action="store_true", help="also choose and generate in each cycle")
    parser.add_argument("--model", metavar="FILE", help="default: the embedded model")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    early, late = cycles(options.cycles, options.use, options.model)
    took = time.perf_counter() - begin
    print(f"after {max(options.cycles // 10, 1):,} cycles: {early}")
    print(f"after {options.cycles:,} cycles: {late}; {1000 * took / options.cycles:.1f} ms each")
    if grown := growth(early, late):
        print(f"check_cycles: the process grew: {grown}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
