"""Log lines of the library go to `logging` if the program has set up logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOAD = "from eliza_ffi import Model\nwith Model() as model:\n    model.generate('x', 2)\n"
SET_UP = "import logging, sys\nlogging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )


def test_a_program_with_logging_gets_the_log_lines_of_the_library() -> None:
    done = run(SET_UP + LOAD)
    lines = done.stdout.splitlines()
    assert any("DEBUG:eliza_ffi.native:llama_model_loader" in line for line in lines)
    assert all(line.startswith(("DEBUG:", "WARNING:")) for line in lines), "whole lines"
    assert not done.stderr


@pytest.mark.parametrize(
    "script",
    [
        f"from eliza_ffi import Model\nmodel = Model()\n{SET_UP}model.generate('x', 2)",
        f"from eliza_ffi import Model\nmodel = Model()\n{SET_UP}model.choose('x', ['a', 'b'])",
        "from eliza_ffi import Model\nfrom eliza_ffi.library import Library\nlibrary = Library()\n"
        f"{SET_UP}Model(library=library)",
    ],
    ids=["before text", "before a choice", "before the model"],
)
def test_logging_may_be_set_up_after_the_library_was_loaded(script: str) -> None:
    assert "DEBUG:eliza_ffi.native:llama_" in run(script).stdout


@pytest.mark.parametrize("before", ["", *(SET_UP.replace("DEBUG", at) for at in ("INFO", "ERROR"))])
def test_a_program_gets_no_lines_of_the_loader_unless_it_asks_for_debugging(before: str) -> None:
    done = run(before + LOAD)
    assert not done.stdout and not done.stderr


@pytest.mark.slow
def test_an_interrupt_in_a_log_handler_is_raised_after_the_native_call() -> None:
    script = SET_UP + (
        "import signal\n"
        "class Interrupt(logging.Handler):\n"
        "    done = False\n"
        "    def emit(self, record):\n"
        "        if not self.done:\n"
        "            self.done = True\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "logging.getLogger('eliza_ffi.native').addHandler(Interrupt())\n"
        "from eliza_ffi import Model\n"
        "try:\n"
        "    Model()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "with Model() as model:\n"
        "    print(model.generate('x', 1).finish_reason)\n"
    )
    done = run(script)
    assert "interrupted\n" in done.stdout and "length\n" in done.stdout
    assert "Traceback" not in done.stderr
