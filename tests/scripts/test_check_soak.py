"""A process that is used for long, in every way at once, holds what it held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from check_soak import PROMPTS, Soak
from checkout import ROOT

from eliza_ffi.library.loading import Library

SCRIPT = ROOT / "scripts" / "check_soak.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def test_a_short_soak_leaves_the_process_as_it_was(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--choices", "400", "--loads", "20"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "interrupts" in done.stdout
    assert "after the last load: " in done.stdout


def test_it_ends_when_its_time_is_over(library: Library) -> None:
    run = [
        sys.executable,
        str(SCRIPT),
        "--choices",
        "99999999",
        "--loads",
        "9999",
        "--seconds",
        "2",
    ]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert "after all: " in done.stdout, done.stdout + done.stderr


def test_an_answer_that_changed_ends_the_soak(library: Library, tmp_path: Path) -> None:
    soak = Soak(tmp_path, 1)
    expected = soak._expected
    soak._expected = dict.fromkeys(PROMPTS, expected[PROMPTS[1]])
    soak._round(1000, 60)
    soak.model.close()
    assert soak.problems
    assert "and then" in soak.problems[0]
    assert soak.done["choices"] < 1000
