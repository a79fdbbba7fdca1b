"""Some cases of `make hostile`: bad input is rejected quickly, and the model stays usable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library

SCRIPT = ROOT / "scripts" / "check_hostile.py"


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None,
    reason="needs Linux and a C compiler",
)
def test_hostile_input_is_rejected_in_time(library: Library) -> None:
    patterns = ("grammar: left recursion", "slot file: a link", "template: doubling", "a raw NUL")
    run = [sys.executable, str(SCRIPT), *(f"--only={each}" for each in patterns)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
