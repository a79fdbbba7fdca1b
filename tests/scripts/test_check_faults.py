"""The library survives failing system calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "check_faults.py"


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None,
    reason="needs Linux and a C compiler",
)
def test_a_failing_call_leaves_the_old_or_the_new_slot_file(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--only", "save", "--sample", "5"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("allocation", "write", "sync", "rename"):
        assert re.search(rf"^save, {kind}: .*\d refused", done.stderr, re.MULTILINE)
