"""The check of all architectures: what it takes for exact, and that no model takes it along."""

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
from backend_suite.cases import ModelCase
from backend_suite.comparing import Comparison, Subject
from backend_suite.every_use import FASTEST, STRATEGIES, Findings, use_in_every_way
from backend_suite.judging import Verdict
from check_architectures import Report, check, report_of

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

LIMITS = {"seconds": 60.0, "mebibytes": 4096}


def findings(*verdicts: Verdict) -> Findings:
    compared = (Comparison("m", "long", "3 apart", FASTEST, each, 0.01) for each in verdicts)
    return Findings(noise=0.01, compared=tuple(compared))


def writer_that(folder: Path, does: str) -> Path:
    """A program in place of write_architectures; `name` and `file` are what it shall write."""
    program = folder / "writer"
    lines = (
        f"#!{sys.executable}",
        "import shutil, sys",
        "if sys.argv[1] == '--list':",
        "    sys.exit(print('llama\\nmamba'))",
        "name, file = sys.argv[3], f'{sys.argv[2]}/{sys.argv[3]}.gguf'",
        does,
    )
    program.write_text("\n".join(lines), encoding="utf-8")
    program.chmod(0o700)
    return program


def test_a_process_apart_gives_its_result() -> None:
    assert run_apart(math.sqrt, 9.0, **LIMITS) == 3.0


def test_a_process_that_raises_dies_or_hangs_is_an_error_that_says_so() -> None:
    with pytest.raises(DiedError, match="ValueError: math domain error"):
        run_apart(math.sqrt, -1.0, **LIMITS)
    with pytest.raises(DiedError, match="exit 3"):
        run_apart(os._exit, 3, **LIMITS)
    with pytest.raises(DiedError, match=r"^killed after 1 s$"):
        run_apart(time.sleep, 60, seconds=1.0, mebibytes=4096)


def test_a_process_apart_has_so_much_memory_and_no_more() -> None:
    with pytest.raises(DiedError, match="MemoryError"):
        run_apart(bytes, 8 << 30, **LIMITS)


def test_choices_that_are_the_same_make_an_architecture_exact() -> None:
    report = report_of("llama", findings(Verdict("same", 0.001), Verdict("same", 0.002)), "")
    assert report == Report("llama", "exact", "", 2, 0.002, 0.01)


def test_near_ties_are_told_and_are_no_fault() -> None:
    report = report_of("m", findings(Verdict("same", 0.0), Verdict("near-tie", 0.01, 0.02)), "")
    assert report.verdict == "near-ties"
    assert report.why.startswith("1 of 2 choices are near-ties: prompt 'long', answers '3 apart'")


def test_one_choice_that_is_not_the_same_is_a_fault() -> None:
    report = report_of("m", findings(Verdict("same", 0.0), Verdict("too far", 0.5)), "")
    assert report.verdict == "fault"
    assert "1 of 2 choices are not the same" in report.why
    assert "difference 0.5000, noise 0.0100" in report.why


def test_a_fault_besides_counts_where_all_choices_are_the_same() -> None:
    report = report_of("m", findings(Verdict("same", 0.0)), "prompts in pieces: ended by signal 6")
    assert (report.verdict, report.why) == ("fault", "prompts in pieces: ended by signal 6")
    assert report_of("m", None, "killed after 300 s").verdict == "fault"


def test_only_what_generates_no_text_may_be_refused() -> None:
    encoder = Findings(refusal="cannot open a stream: the model keeps no KV cache: it cannot go on")
    assert report_of("bert", encoder, "").verdict == "refused"
    assert report_of("m", Findings(refusal="cannot load the model"), "").verdict == "fault"


def test_an_architecture_that_cannot_be_made_is_a_line_with_the_reason(tmp_path: Path) -> None:
    writer = writer_that(tmp_path, "print(f'{name}: cannot be made: no such shape')")
    subject = Subject(tmp_path / "unused", 0)
    report = check("mamba", writer, tmp_path, subject)
    assert report == Report("mamba", "cannot be made", "no such shape")


def test_a_model_is_used_in_every_way(
    library: Library, random_model_path: Callable[..., Path], tmp_path: Path
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    shutil.copy(path, tmp_path / "model.gguf")
    writer = writer_that(
        tmp_path, f"print(name, shutil.copy('{tmp_path}/model.gguf', file), sep=': ')"
    )
    subject = Subject(library.path, 0, check_architectures.OPTIONS)
    report = check("llama", writer, tmp_path, subject)
    assert (report.verdict, report.why) == ("exact", "")
    # Five questions in all strategies, in four rounds together in two ways, as endings, and by
    # masks in two ways; three prompts restored.
    assert report.n_choices == 5 * len(STRATEGIES) + 4 * 2 * 5 + 3 + 5 + 2 * 5


def test_prompts_that_change_nothing_are_noticed(
    library: Library,
    random_model_path: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = dict.fromkeys(("short", "sentence", "long"), "Next: ")
    monkeypatch.setattr("backend_suite.every_use.PROMPTS", same)
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with pytest.raises(RuntimeError, match="the same behind the prompts 'short' and 'long'"):
        use_in_every_way(ModelCase("m", path), Subject(library.path, 0), {}, 0.001)
