"""Letting calls fail: they do, the right ones, and what becomes of it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from faults.loop import Ended, judge

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "check_faults.py"

SOUND = {"before": {"a": "1"}, "after": {"a": "2"}, "result": 7, "answers": ["RESPOND"]}

needs_preloading = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None,
    reason="needs Linux and a C compiler",
)


def told(**more: Any) -> dict[str, Any]:
    return {**SOUND, **more}


@needs_preloading
@pytest.mark.parametrize("kind", ["write", "sync", "rename"])
def test_a_prompt_is_saved_whole_or_not_at_all_whatever_fails(library: Library, kind: str) -> None:
    run = [sys.executable, str(SCRIPT), "--only", "save", "--kind", kind]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"save, {kind}: " in done.stderr
    assert "refused" in done.stderr


@needs_preloading
def test_a_library_that_is_not_loaded_is_not_watched(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from faults.preloaded import FaultError, Preloaded\n"
        "assert Preloaded.is_there()\n"
        "try:\n"
        "    Preloaded(Path('/nowhere/at-all.so'))\n"
        "except FaultError as error:\n"
        "    print(error)\n"
    )
    code = (
        "import sys; from pathlib import Path; from faults.preloaded import run_preloaded; "
        f"sys.exit(run_preloaded({str(program)!r}, [], Path({str(tmp_path)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "/nowhere/at-all.so is not loaded\n"), done.stderr


@pytest.mark.parametrize(
    ("kind", "found", "ended"),
    [
        ("write", told(), Ended.WORKED),
        ("write", {**told(after={"a": "1"}, error="no room"), "is_memory": False}, Ended.REFUSED),
        ("allocation", {**told(error="no memory"), "is_memory": True}, Ended.REFUSED),
        ("allocation", {**told(error="no model"), "is_memory": False}, Ended.OTHER_ERROR),
        ("write", told(error="X", stranger="KeyError: 'X'"), Ended.OTHER_ERROR),
        ("write", told(result=8), Ended.WRONG),
        ("write", told(after={"a": "1"}), Ended.WRONG),
        ("write", told(after={"a": "2", "a.part": "3"}), Ended.SPOILT),
        ("write", told(after={}, error="no room", is_memory=False), Ended.SPOILT),
        ("read", told(answers=["IGNORE"]), Ended.SPOILT),
    ],
)
def test_what_is_neither_before_nor_after_is_a_failure(
    kind: str, found: dict[str, Any], ended: Ended
) -> None:
    assert judge(kind, found, SOUND)[0] is ended
