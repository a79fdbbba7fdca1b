#!/usr/bin/env python3
"""Check that every architecture llama.cpp knows chooses the same in every way.

    $ python scripts/check_architectures.py                     # all of them, a quarter of an hour
    $ python scripts/check_architectures.py --quick             # one for each kind of cache
    $ python scripts/check_architectures.py qwen35 mamba2

For each architecture `native/tests/architectures` writes a small model with random weights around a
real vocabulary. The library then chooses with all strategies, with and without the restricted head,
behind prompts that were restored from a file, and in streams that share passes. Each must be the
choice made token by token, with all logits, in a pass of its own: the same leaf, and probabilities
within the model's noise, as `backend_suite/judging.py` has it. Every model is written, and used, in
processes of their own: one that dies or hangs is one line of the table.

Exit codes: 0 = the same but for near-ties, 1 = some architecture is not, 2 = could not be checked.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend_suite.apart import DiedError, run_apart
from backend_suite.cases import ModelCase
from backend_suite.comparing import HALF_PRECISION, Comparison, Subject
from backend_suite.every_use import Findings, use_in_every_way
from backend_suite.reporting import details
from fetch_llama_cpp import FetchError
from make_test_models import ModelError, vocabulary_file
from page_tables import markdown_table

from bench.parts.machine import machine_facts, machine_line
from bench.parts.pages import fill_sections
from eliza_ffi.library.loading import library_file_name

BUILD = Path(__file__).resolve().parent.parent / "build" / "cpu"
VOCABULARY = "llama-spm"  # the smallest

QUICK = ("llama", "gemma2", "deepseek2", "qwen3moe", "mamba2", "rwkv7", "jamba", "qwen35")
"""One for each kind of cache: plain, windows, latent, experts, recurrent twice, hybrid twice."""

OPTIONS = (("n_ctx", "2048"), ("n_threads", "1"))

ROUNDINGS = {"half precision": HALF_PRECISION, "prompts in pieces": ("n_batch", "7")}
"""Options that sum otherwise: attention, and a prompt of which seven tokens are read at a time."""

LEAST_NOISE = 1e-3
"""In nats: what half precision does to a logit, in which the head and the cache are kept."""

SECONDS, MEBIBYTES = 300.0, 4096
"""What one architecture may take."""

NO_GENERATOR = (
    "keeps no KV cache",
    "not a decoder alone",
    "computes embeddings",
    "no finite logit",
)
"""What the library says of models that do not go on with a text: encoders, diffusion, speech."""

VERDICTS = ("exact", "near-ties", "fault", "refused", "cannot be made")


@dataclass(frozen=True)
class Report:
    """What became of one architecture.

    Attributes
    ----------
    name : str
    verdict : str
        One of `VERDICTS`. ``"refused"``: the library says that such a model generates no text.
    why : str
        For all but the first.
    n_choices : int
    difference : float
        The largest of a leaf's log-probability from the reference's, in nats.
    noise : float
        What rounding does to it, in nats.
    n_shared : int
        Streams that had passes with others.
    """

    name: str
    verdict: str
    why: str = ""
    n_choices: int = 0
    difference: float = 0.0
    noise: float = 0.0
    n_shared: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check that every architecture chooses the same.")
    parser.add_argument("names", nargs="*", metavar="ARCHITECTURE", help="without, all")
    parser.add_argument("--quick", action="store_true", help=f"these: {', '.join(QUICK)}")
    parser.add_argument("--library", type=Path, default=BUILD / library_file_name())
    parser.add_argument("--writer", type=Path, default=BUILD / "tests" / "write_architectures")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the table between markers")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        vocabulary = vocabulary_file(VOCABULARY)
        known = _listed(options.writer)
        names = options.names or (QUICK if options.quick else known)
        if unknown := set(names) - set(known):
            raise ValueError(f"llama.cpp knows no architecture {', '.join(sorted(unknown))}")
        subject = Subject(options.library.resolve(strict=True), 0, OPTIONS)
        reports = []
        for name in names:
            reports.append(check(name, options.writer, vocabulary, subject))
            print(_line(reports[-1]), file=sys.stderr)
    except (FetchError, ModelError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"check_architectures: {error}", file=sys.stderr)
        return 2
    print(table(reports))
    print(
        f"{sum(report.n_choices for report in reports):,} choices, in"
        f" {sum(report.n_shared for report in reports):,} of which streams shared passes"
    )
    print(f"{counts(reports)}, in {(time.monotonic() - begin) / 60:.1f} minutes")
    if options.docs is not None:
        line = machine_line(machine_facts(options.library))
        fill_sections(options.docs, {"architectures": f"{line}\n\n{section(reports)}"})
    return 1 if any(report.verdict == "fault" for report in reports) else 0


def check(name: str, writer: Path, vocabulary: Path, subject: Subject) -> Report:
    """Write a model of an architecture, use it in every way, and delete it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(writer), str(vocabulary), folder, name]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        case = ModelCase(name, Path(folder) / f"{name}.gguf")
        said = made.stdout.strip().removeprefix(f"{name}: ")
        if said != str(case.path):
            why = _without_folders(said.removeprefix("cannot be made: "))
            return Report(name, "cannot be made", why)
        return report_of(name, *_used(case, subject))


def _used(case: ModelCase, subject: Subject) -> tuple[Findings | None, str]:
    """Return what became of a model's use, and what went wrong besides.

    That llama.cpp lacks an architecture's attention in half precision is no fault: on the CPU it is
    used only where it is asked for. That it cannot read a prompt in pieces is one.
    """
    roundings = dict(ROUNDINGS)
    problems = []
    while True:
        try:
            findings = run_apart(
                use_in_every_way,
                case,
                subject,
                roundings,
                LEAST_NOISE,
                seconds=SECONDS,
                mebibytes=MEBIBYTES,
            )
        except DiedError as error:
            if roundings.pop(error.stage, None) != HALF_PRECISION:
                problems.append(_without_folders(str(error)))
            if error.stage not in ROUNDINGS:
                return None, "; ".join(problems)
        else:
            return findings, "; ".join(problems)


def report_of(name: str, findings: Findings | None, problem: str) -> Report:
    """Return what a model's findings come to.

    Parameters
    ----------
    name
    findings
        None where there are none.
    problem
        What went wrong besides; may be empty.
    """
    if findings is None:
        return Report(name, "fault", problem)
    if findings.refusal:
        is_right = any(text in findings.refusal for text in NO_GENERATOR)
        return Report(name, "refused" if is_right else "fault", findings.refusal)
    compared = findings.compared
    failed = [each for each in compared if each.verdict.is_failure]
    near = [each for each in compared if each.verdict.kind == "near-tie"]
    verdict = "fault" if failed or problem else "near-ties" if near else "exact"
    told = [problem] if problem else []
    for kind, group in (("are not the same", failed), ("are near-ties", near)):
        if group:
            told.append(f"{len(group)} of {len(compared)} choices {kind}: {_first(group)}")
    difference = max(each.verdict.difference for each in compared)
    return Report(
        name,
        verdict,
        "; ".join(told),
        len(compared),
        difference,
        findings.noise,
        findings.n_shared,
    )


def table(reports: Sequence[Report]) -> str:
    """Return a line for each architecture, and why for those that are not exact."""
    head = ["architecture", "verdict", "choices", "difference", "noise"]
    told = [_line(report) for report in reports if report.why]
    return "\n".join([markdown_table(head, map(_cells, reports), left=2), *told])


def counts(reports: Sequence[Report]) -> str:
    """Return how many architectures have which verdict."""
    names = _by_verdict(reports)
    parts = [f"{len(names[verdict])} {verdict}" for verdict in VERDICTS if names[verdict]]
    return f"{len(reports)} architectures: {', '.join(parts)}"


def section(reports: Sequence[Report]) -> str:
    """Return the same for a document: the exact ones by name, all others with the reason."""
    by_verdict = _by_verdict(reports)
    rows = [
        [verdict, str(len(group)), ", ".join(f"`{report.name}`" for report in group)]
        for verdict in VERDICTS
        if (group := by_verdict[verdict])
    ]
    others: dict[tuple[str, str], list[str]] = defaultdict(list)
    for verdict in VERDICTS[1:]:
        for report in by_verdict[verdict]:
            others[verdict, report.why.replace("|", "\\|")].append(f"`{report.name}`")
    exact = by_verdict["exact"]
    largest = max((report.difference / report.noise for report in exact), default=0.0)
    told = f"Of the exact ones, no probability was further off than {largest:.2f} of the noise."
    parts = [markdown_table(["verdict", "architectures", "names"], rows, left=3), told]
    if others:
        cells = [[", ".join(names), *how] for how, names in others.items()]
        parts.append(markdown_table(["architecture", "verdict", "why"], cells, left=3))
    return "\n\n".join(parts)


def _listed(writer: Path) -> list[str]:
    listed = subprocess.run([writer, "--list"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def _without_folders(text: str) -> str:
    """Leave the names of llama.cpp's files, not where this machine has them."""
    return re.sub(r"/\S*/(?=[\w.-]+:\d)", "", text)


def _by_verdict(reports: Sequence[Report]) -> dict[str, list[Report]]:
    groups: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        groups[report.verdict].append(report)
    return groups


def _first(group: Sequence[Comparison]) -> str:
    """Return one of them, without the model's name."""
    return details(group)[0].removeprefix(f"{group[0].verdict.kind}: {group[0].model}, ")


def _cells(report: Report) -> list[str]:
    figures = ["", "", ""]
    if report.n_choices:
        figures = [str(report.n_choices), f"{report.difference:.1e}", f"{report.noise:.1e}"]
    return [report.name, report.verdict, *figures]


def _line(report: Report) -> str:
    return ": ".join(filter(None, (report.name, report.verdict, report.why)))


if __name__ == "__main__":
    sys.exit(main())
