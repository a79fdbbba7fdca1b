#!/usr/bin/env python3
"""Check that every way to choose gives the same result on every architecture of llama.cpp.

    $ python scripts/check_architectures.py            # all architectures, a quarter of an hour
    $ python scripts/check_architectures.py --quick    # one architecture for each kind of cache
    $ python scripts/check_architectures.py qwen35 mamba2

For each architecture, `native/tests/architectures` writes a small model with random weights around
a real vocabulary, which then chooses in every way of `backend_suite/every_use.py`. Each model is
used in a child process, so a crash or a hang costs one line.

Exit codes: 0 = all results equal the reference or are near-ties, 1 = some differ, 2 = cannot check.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backend_suite.comparing import Subject, details
from backend_suite.every_use import Findings, use_in_every_way
from fetch_llama_cpp import FetchError
from forked import run_forked
from make_test_models import vocabulary_file

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

WRITER = Path(__file__).resolve().parent.parent / "build/cpu/tests/write_architectures"
VOCABULARY = "llama-spm"  # the smallest

QUICK = ("llama", "gemma2", "deepseek2", "qwen3moe", "mamba2", "rwkv7", "jamba", "qwen35")
"""One for each kind of cache: plain, sliding windows, latent, mixture of experts, two recurrent
ones, two hybrids."""

OPTIONS = (("n_ctx", "2048"), ("n_threads", "1"))

SECONDS, MEBIBYTES = 300.0, 4096
"""Limits of time and memory for one architecture."""

NO_GENERATOR = ("keeps no KV cache", "not decoder-only", "computes embeddings", "no finite logit")
"""Parts of the errors for models that cannot generate text: encoders, diffusion, speech."""


@dataclass(frozen=True)
class Report:
    # ``"exact"``, ``"near-ties"``, ``"fault"``, ``"refused"`` (the model cannot generate text) or
    # ``"cannot be made"``
    verdict: str
    why: str = ""  # the reason; empty if the verdict is ``"exact"``
    n_choices: int = 0
    n_shared: int = 0  # number of choices in which streams shared passes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare all ways to choose, by architecture.")
    parser.add_argument("names", nargs="*", metavar="ARCHITECTURE", help="default: all")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        vocabulary = vocabulary_file(VOCABULARY)
        known = _run(WRITER, "--list").split()
        names = options.names or (QUICK if options.quick else known)
        if unknown := set(names) - set(known):
            raise ValueError(f"unknown architecture: {', '.join(sorted(unknown))}")
        subject = Subject(Library().path, 0, OPTIONS)
        reports = []
        for name in names:
            reports.append(check(name, vocabulary, subject))
            print(": ".join(filter(None, (name, reports[-1].verdict, reports[-1].why))), flush=True)
    except (ElizaError, FetchError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"check_architectures: {error}", file=sys.stderr)
        return 2
    n_choices, n_shared = (
        sum(getattr(report, name) for report in reports) for name in ("n_choices", "n_shared")
    )
    print(f"{n_choices:,} choices; streams shared passes in {n_shared:,} of them")
    found = Counter(report.verdict for report in reports)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.most_common())
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(reports)} architectures: {counts}, in {minutes:.1f} minutes")
    return 1 if found["fault"] else 0


def check(name: str, vocabulary: Path, subject: Subject) -> Report:
    """Write a model of an architecture, choose with it in every way, and delete it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.gguf"
        output = _run(WRITER, vocabulary, folder, name).strip().removeprefix(f"{name}: ")
        if output != str(path):
            why = _without_folders(output.removeprefix("cannot be made: "))
            return Report("cannot be made", why)
        child = run_forked(partial(use_in_every_way, name, path, subject), SECONDS, MEBIBYTES)
    if child.report is not None:
        return report_of(child.report)
    how = f"not done in {SECONDS:.0f} s" if child.is_late else child.how
    return Report("fault", _without_folders(f"{child.stages}: {how}: {child.last_words}"))


def report_of(findings: Findings) -> Report:
    """Return the report of a model."""
    if findings.refusal:
        is_right = any(text in findings.refusal for text in NO_GENERATOR)
        return Report("refused" if is_right else "fault", findings.refusal)
    compared = findings.compared
    failed = [each for each in compared if each.verdict.is_failure]
    near = [each for each in compared if each.verdict.kind == "near-tie"]
    verdict = "fault" if failed else "near-ties" if near else "exact"
    reasons = []
    for kind, group in (("are not the same", failed), ("are near-ties", near)):
        if group:
            (first,) = details(group[:1])
            reasons.append(f"{len(group)} of {len(compared)} choices {kind}: {first}")
    return Report(verdict, "; ".join(reasons), len(compared), findings.n_shared)


def _run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _without_folders(text: str) -> str:
    """Strip the folders from the paths of llama.cpp's source files."""
    return re.sub(r"/\S*/(?=[\w.-]+:\d)", "", text)


if __name__ == "__main__":
    sys.exit(main())
