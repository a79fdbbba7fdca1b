#!/usr/bin/env python3
"""Check that a backend chooses as the CPU does, in every way to decode.

    $ python scripts/check_backend.py cpu
    $ python scripts/check_backend.py vulkan --quick

Models, prompts and answers are those of ``backend_suite/cases.py``. The reference is the CPU
library, token by token, with all logits. The library of
``build/BACKEND`` then chooses with every layer on the backend in all strategies, with and without
backend sampling and the restricted head. Compared are the leaf, what the stats say (how many tokens
were legal at every step, forced, decided) and the probabilities of all leaves. Rounding moves
these by the model's noise, which the CPU measures by itself: attention in half precision against
single. Probabilities further apart than twice that are a fault. Where another leaf comes out, the
reference's margin at the decision where they part tells a near-tie from a fault; both are listed.

Exit codes: 0 = the same but for near-ties, 1 = not the same, 2 = could not be checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from backend_suite.cases import ANSWERS, PROMPTS, WAYS, Way, model_cases
from backend_suite.comparing import Comparison, Subject, compare
from backend_suite.reporting import details, table
from backend_suite.rpc_servers import rpc_servers
from fetch_llama_cpp import FetchError
from make_test_models import ModelError

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import library_file_name

BUILD = Path(__file__).resolve().parent.parent / "build"
# Not devices that layers are offloaded to: the CPU runs them, with or without a BLAS library.
ON_CPU = ("cpu", "blas")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check that a backend chooses as the CPU does.")
    parser.add_argument("backend", help="folder of build/ that holds the library to check")
    parser.add_argument("--quick", action="store_true", help="two models, two prompts")
    parser.add_argument("--device", help="devices to use, as 'eliza-ffi doctor' names them")
    parser.add_argument(
        "--backend-sampling",
        choices=("on", "off", "both"),
        default="both",
        help="check only the ways with it, or without (both)",
    )
    options = parser.parse_args(arguments)
    ways = [way for way in WAYS if options.backend_sampling in ("both", way.backend_sampling)]
    folder = BUILD / options.backend
    begin = time.monotonic()
    try:
        with _subject(options.backend, folder, options.device) as subject:
            reference = Subject(BUILD / "cpu" / library_file_name(), n_gpu_layers=0)
            compared = run(reference, subject, ways, quick=options.quick)
    except (ElizaError, FetchError, ModelError, OSError, RuntimeError) as error:
        print(f"check_backend: {error}", file=sys.stderr)
        return 2
    print(table(compared))
    for line in details(compared):
        print(line)
    failed = sum(each.verdict.is_failure for each in compared)
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(compared) - failed} of {len(compared)} choices hold, in {minutes:.1f} minutes")
    return 1 if failed else 0


def run(
    reference: Subject, subject: Subject, ways: Sequence[Way], *, quick: bool
) -> list[Comparison]:
    """Compare on all models, saying on standard error how far it is."""
    prompts = dict(list(PROMPTS.items())[:2]) if quick else PROMPTS
    answers = dict(list(ANSWERS.items())[:2]) if quick else ANSWERS
    compared: list[Comparison] = []
    with_sampling = any(way.backend_sampling == "on" for way in ways)
    for case in model_cases(quick=quick):
        compared += compare(
            case,
            reference,
            subject,
            prompts=prompts,
            answers=answers,
            ways=ways,
            on_devices=partial(_say_where, case.name, with_sampling=with_sampling),
        )
    return compared


@contextmanager
def _subject(backend: str, folder: Path, device: str | None) -> Iterator[Subject]:
    library = folder / library_file_name()
    options = [] if device is None else [("device", device)]
    n_gpu_layers = 0 if backend in ON_CPU else -1
    if backend != "rpc":
        yield Subject(library, n_gpu_layers, tuple(options))
        return
    with rpc_servers(folder / "rpc-server", 2) as servers:
        endpoints = ",".join(server.endpoint for server in servers)
        yield Subject(library, n_gpu_layers, (*options, ("rpc", endpoints)))


def _say_where(name: str, placement: list[dict[str, Any]], *, with_sampling: bool) -> None:
    places = [f"{place['layers']} layers on {place['device']}" for place in placement]
    print(f"{name}: {', '.join(places) or 'layers unknown'}", file=sys.stderr)
    if with_sampling and any("llvmpipe" in place["description"] for place in placement):
        print(
            "note: Mesa 22.3's llvmpipe ends the process when logits are gathered on it, Mesa"
            " 25.0's does not; --backend-sampling off leaves those ways out",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
