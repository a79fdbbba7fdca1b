"""Short runs of the checks that push the library to its limits."""

from __future__ import annotations

import subprocess
import sys

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_hostile_input_is_rejected_in_time(library: Library) -> None:
    cases = ("grammar: left recursion", "slot file: a link", "a raw NUL")
    run("check_hostile.py", *(f"--only={each}" for each in cases))


def test_a_process_that_uses_a_model_in_every_way_does_not_grow(library: Library) -> None:
    report = run("check_soak.py", "--choices", "400", "--loads", "20").stdout
    assert "interrupts" in report
    assert "loads: after a tenth" in report
