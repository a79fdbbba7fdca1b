"""Some cases of `make hostile`: bad input is rejected quickly, and the model stays usable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from checkout import ROOT
from hostile.case import Case, Must
from hostile.trial import Outcome, verdict

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


def test_an_outcome_beyond_a_limit_fails_the_check() -> None:
    case = Case("a case", lambda _: None, Must.FAIL, says="widget", seconds=1, mib=10)
    assert verdict(case, Outcome("error", "a widget")) == "ok"
    for outcome in (
        Outcome("answer", "a widget"),
        Outcome("error", "a gadget"),
        Outcome("error", "a widget", seconds=2),
        Outcome("error", "a widget", mib=11),
        Outcome("error", "a widget", waited=3),
        Outcome("error", "a widget", after="other answers"),
        Outcome("died", "a widget", whose="llama.cpp"),
    ):
        assert verdict(case, outcome) != "ok"
