"""The check of all architectures finds faults, and survives processes that die or hang."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import check_architectures
import pytest
from backend_suite.apart import DiedError, run_apart
from backend_suite.comparing import Comparison, Subject
from backend_suite.every_use import FASTEST, WAYS, Findings
from backend_suite.judging import Verdict
from check_architectures import check, report_of

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

LIMITS = {"seconds": 60.0, "mebibytes": 4096}


def test_a_process_that_raises_dies_or_hangs_raises_an_error() -> None:
    assert run_apart(math.sqrt, 9.0, **LIMITS) == 3.0
    with pytest.raises(DiedError, match="ValueError: math domain error"):
        run_apart(math.sqrt, -1.0, **LIMITS)
    with pytest.raises(DiedError, match="exit 3"):
        run_apart(os._exit, 3, **LIMITS)
    with pytest.raises(DiedError, match=r"^killed after 1 s$"):
        run_apart(time.sleep, 60, seconds=1.0, mebibytes=4096)
    with pytest.raises(DiedError, match="MemoryError"):
        run_apart(bytes, 8 << 30, **LIMITS)


@pytest.mark.parametrize(
    ("kind", "problem", "expected"),
    [
        ("same", "", "exact"),
        ("near-tie", "", "near-ties"),
        ("too far", "", "fault"),
        ("same", "prompts in pieces: ended by signal 6", "fault"),
    ],
)
def test_the_worst_choice_determines_the_verdict(kind: str, problem: str, expected: str) -> None:
    verdicts = (Verdict("same", 0.0), Verdict(kind, 0.01, 0.02))
    compared = (Comparison("m", "long", "3 apart", FASTEST, each, 0.01) for each in verdicts)
    report = report_of("m", Findings(noise=0.01, compared=tuple(compared)), problem)
    assert report.verdict == expected


def test_only_models_that_generate_no_text_may_be_refused() -> None:
    encoder = Findings(refusal="cannot open a stream: the model computes embeddings")
    assert report_of("bert", encoder, "").verdict == "refused"
    assert report_of("m", Findings(refusal="cannot load the model"), "").verdict == "fault"


def test_one_architecture_is_checked_in_every_way(
    library: Library, random_model_path: Callable[..., Path], tmp_path: Path
) -> None:
    model = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    shutil.copy(model, tmp_path / "model.gguf")
    writer = tmp_path / "writer"  # takes the place of write_architectures
    writer.write_text(
        f"#!{sys.executable}\nimport shutil, sys\n"
        "name, file = sys.argv[3], f'{sys.argv[2]}/{sys.argv[3]}.gguf'\n"
        f"print(name, shutil.copy('{tmp_path}/model.gguf', file), sep=': ')\n",
        encoding="utf-8",
    )
    writer.chmod(0o700)
    subject = Subject(library.path, 0, check_architectures.OPTIONS)
    report = check("llama", writer, tmp_path, subject)
    assert (report.verdict, report.why) == ("exact", "")
    # Five questions in all strategies; in four rounds together, in two ways; as endings; with
    # masks, in two ways. Three prompts are restored.
    assert report.n_choices == 5 * len(WAYS) + 4 * 2 * 5 + 3 + 5 + 2 * 5
