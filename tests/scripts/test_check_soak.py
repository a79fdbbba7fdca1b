"""A process that uses a model in every way at once does not grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library

SCRIPT = ROOT / "scripts" / "check_soak.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def test_a_short_soak_does_not_grow_the_process(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--choices", "400", "--loads", "20"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "interrupts" in done.stdout
    assert "after the last load: " in done.stdout
