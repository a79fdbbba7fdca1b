"""The library survives failing system calls, and the check notices if it does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from checkout import ROOT
from faults.loop import Ended, judge

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "check_faults.py"

EXPECTED = {"before": {"a": "1"}, "after": {"a": "2"}, "result": 7, "answers": ["RESPOND"]}


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


@pytest.mark.parametrize(
    ("kind", "changes", "ended"),
    [
        ("write", {}, Ended.WORKED),
        ("write", {"after": {"a": "1"}, "error": "no room"}, Ended.REFUSED),
        ("allocation", {"error": "no memory", "is_memory": True}, Ended.REFUSED),
        ("allocation", {"error": "no model"}, Ended.OTHER_ERROR),
        ("write", {"error": "X", "unexpected": "KeyError: 'X'"}, Ended.OTHER_ERROR),
        ("write", {"result": 8}, Ended.WRONG),
        ("write", {"after": {"a": "1"}}, Ended.WRONG),
        ("write", {"after": {"a": "2", "a.part": "3"}}, Ended.SPOILT),
        ("write", {"after": {}, "error": "no room"}, Ended.SPOILT),
        ("read", {"answers": ["IGNORE"]}, Ended.SPOILT),
    ],
)
def test_an_outcome_other_than_success_or_a_clean_error_is_a_failure(
    kind: str, changes: dict[str, Any], ended: Ended
) -> None:
    report = {**EXPECTED, "is_memory": False, **changes}
    assert judge(kind, report, EXPECTED)[0] is ended
