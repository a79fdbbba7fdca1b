#!/usr/bin/env python3
"""Check that a backend makes the same choices as the CPU, with every decoding strategy.

    $ python scripts/check_backend.py cpu
    $ python scripts/check_backend.py vulkan --quick

The reference is the CPU library, which chooses token by token, with all logits. The library in
``build/BACKEND`` then chooses with every layer on the backend, with all strategies, with and
without the restricted head. docs/guides/gpus.md says what is compared.

Exit codes: 0 = all results equal the reference or are near-ties, 1 = some differ, 2 = cannot check.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from backend_suite.cases import ANSWERS, PROMPTS, VOCABULARIES, models
from backend_suite.choosing import WAYS, choose
from backend_suite.comparing import (
    WITHOUT_FLASH,
    Comparison,
    Subject,
    ask_all,
    details,
    measure_noise,
    table,
)
from backend_suite.rpc_servers import rpc_servers
from fetch_llama_cpp import FetchError
from make_test_models import ModelError

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import library_file_name

BUILD = Path(__file__).resolve().parent.parent / "build"
# Backends without a device to offload layers to: they run on the CPU, with or without BLAS.
ON_CPU = ("cpu", "blas")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare a backend's choices with the CPU's.")
    parser.add_argument("backend", help="folder in build/ with the library to check")
    parser.add_argument("--quick", action="store_true", help="two models, two prompts")
    parser.add_argument("--vocabulary", choices=VOCABULARIES, help="only models of this size")
    parser.add_argument("--device", help="devices to use, by their names in 'eliza-ffi doctor'")
    options = parser.parse_args(arguments)
    folder = BUILD / options.backend
    begin = time.monotonic()
    try:
        with ExitStack() as opened:
            more = [] if options.device is None else [("device", options.device)]
            if options.backend == "rpc":
                servers = opened.enter_context(rpc_servers(folder / "rpc-server", 2))
                more.append(("rpc", ",".join(server.endpoint for server in servers)))
            n_gpu_layers = 0 if options.backend in ON_CPU else -1
            subject = Subject(folder / library_file_name(), n_gpu_layers, tuple(more))
            reference = Subject(BUILD / "cpu" / library_file_name(), n_gpu_layers=0)
            compared = run(reference, subject, quick=options.quick, size=options.vocabulary)
    except (ElizaError, FetchError, ModelError, OSError, RuntimeError) as error:
        print(f"check_backend: {error}", file=sys.stderr)
        return 2
    print(table(compared), *details(compared), sep="\n")
    failed = sum(each.verdict.is_failure for each in compared)
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(compared) - failed} of {len(compared)} choices pass, in {minutes:.1f} minutes")
    return 1 if failed else 0


def run(
    reference: Subject, subject: Subject, *, quick: bool, size: str | None = None
) -> list[Comparison]:
    prompts = dict(list(PROMPTS.items())[: 2 if quick else None])
    answers = dict(list(ANSWERS.items())[: 2 if quick else None])
    compared: list[Comparison] = []
    for name, path in models(quick=quick, size=size).items():
        questions = ask_all(name, path, reference, prompts, answers)
        noise = measure_noise(path, reference, questions, WITHOUT_FLASH)
        with subject.open(path) as model:
            placement = model.describe()["model"].get("placement", [])
            places = [f"{place['layers']} layers on {place['device']}" for place in placement]
            print(f"{name}: {', '.join(places) or 'layers unknown'}", file=sys.stderr)
            for way, question in itertools.product(WAYS, questions):
                outcome = choose(model, question.prompt, question.payload, way)
                compared.append(question.compared(outcome, way, noise))
    return compared


if __name__ == "__main__":
    sys.exit(main())
