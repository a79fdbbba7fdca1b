"""The programs in examples/ run with the embedded model."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

EXAMPLES = ROOT / "examples"
PRINTED = {
    "tool_loop.py": r"(call: \w+\(\{.*\}\) -> \{.*\}\n)+(answer: .*|no answer after 4 turns)\n",
    "required_call.py": r"open_ticket +[01]\.\d\d\nclose_ticket +[01]\.\d\d\n\w+_ticket\(.+\n",
    "parallel_calls.py": r"Is it warm .*get_\w+ of .*\nWhat time .*get_\w+ of .*\n",
}


def test_every_example_has_a_test() -> None:
    elsewhere = {"xgrammar_masks.py"}  # tests/structured/test_xgrammar.py
    assert {path.name for path in EXAMPLES.glob("*.py")} == PRINTED.keys() | elsewhere


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(library: Library, name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        env={**os.environ, LIBRARY_VARIABLE: str(library.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(PRINTED[name], done.stdout, re.DOTALL), done.stdout
