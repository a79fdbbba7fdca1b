"""What opening and closing a model again and again must not take with it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import ROOT
from held import Held, growth

from eliza_ffi.library.loading import Library

SCRIPT = ROOT / "scripts" / "check_cycles.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def test_models_that_were_used_leave_nothing_behind(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--cycles", "100", "--use"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after 100 cycles: " in done.stdout


def test_what_grew_is_named() -> None:
    now = Held.now()
    assert growth(now, now) == ""
    assert growth(now, replace(now, mib=now.mib - 50)) == ""
    later = replace(now, mib=now.mib + 10, files=now.files + 1, threads=now.threads + 2)
    assert growth(now, later) == "MiB by 10.00, files by 1.00, threads by 2.00"
    assert growth(now, replace(now, objects=now.objects + 5000)) == "objects by 5000.00"
