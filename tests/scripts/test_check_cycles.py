"""Opening and closing a model many times leaks neither memory nor files nor threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library

SCRIPT = ROOT / "scripts" / "check_cycles.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def test_opening_and_closing_models_leaks_nothing(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--cycles", "100", "--use"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after 100 cycles: " in done.stdout
