"""Run a function in a forked child process, which may crash, hang or use too much memory."""

from __future__ import annotations

import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABORT_LIMIT_S = 5.0
STAGE = "stage: "

REASONS = (r"\S+?([\w-]+\.\w+:\d+): (.*)", r"(terminate called.*)\n\s*(what.*)")
"""What llama.cpp and the C++ runtime print before they end a process."""


@dataclass(frozen=True)
class Child:
    """How a child process ended."""

    report: Any  # what the function returned; None if it did not return
    code: int  # the exit code; the negative number of the signal that ended the process
    is_late: bool  # whether it exceeded its time
    stderr: str  # what it wrote to standard error

    @property
    def how(self) -> str:
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"

    @property
    def stages(self) -> list[str]:
        return re.findall(f"^{STAGE}(.*)$", self.stderr, re.MULTILINE)

    @property
    def last_words(self) -> str:
        """The reason that it printed for its end, or the end of its other output, as one line."""
        said = re.sub(f"{STAGE}.*\n", "", self.stderr)
        for pattern in REASONS:
            if found := re.search(pattern, said):
                return " ".join(found.groups())
        return said.strip().replace("\n", " ")[-300:]


def say_stage(stage: str) -> None:
    os.write(2, f"{STAGE}{stage}\n".encode())


@contextmanager
def little_memory(mebibytes: int) -> Iterator[None]:
    """Limit this process to some MiB of address space more than it has now."""
    soft, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space(mebibytes), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, most))


def _address_space(more_mebibytes: int) -> int:
    """The bytes of address space that this process has now, and some MiB more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize() + (more_mebibytes << 20)


def run_forked(
    # Returns a value that can be pickled. An exception ends the child with exit code 1.
    work: Callable[[], Any],
    seconds: float,  # after this time, the child gets SIGABRT, whose handler may record the stack
    mebibytes: int | None = None,  # how much more address space than this process it may use
) -> Child:
    """Run a function in a child, and end the child and its own children afterwards."""
    with tempfile.TemporaryFile() as reported, tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _work(work, mebibytes, reported.fileno(), errors.fileno(), writing)
        os.close(writing)
        is_over, _, _ = select.select([reading], [], [], seconds)
        os.close(reading)
        if not is_over:
            _abort(child)
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        reported.seek(0)
        errors.seek(0)
        raw, stderr = reported.read(), errors.read().decode("utf-8", "replace")
    report = pickle.loads(raw) if raw else None
    return Child(report, os.waitstatus_to_exitcode(status), not is_over, stderr)


def _work(
    work: Callable[[], Any], mebibytes: int | None, reported: int, errors: int, writing: int
) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(errors, 2)
        os.environ["GGML_NO_BACKTRACE"] = "1"  # otherwise llama.cpp runs gdb, which takes seconds
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if mebibytes is not None:
            limit = _address_space(mebibytes)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        report = pickle.dumps(work())
        with os.fdopen(reported, "wb", closefd=False) as file:
            file.write(report)
        os.write(writing, b".")  # the child's own children may keep the pipe open
        sys.stderr.flush()
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _abort(child: int) -> None:
    os.kill(child, signal.SIGABRT)
    end = time.monotonic() + ABORT_LIMIT_S
    while time.monotonic() < end:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
