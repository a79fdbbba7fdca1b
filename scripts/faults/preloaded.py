"""The preloaded library that makes calls fail: built, preloaded, and called."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

__all__ = ["KINDS", "FaultError", "Preloaded", "build", "run_preloaded"]

SOURCE = Path(__file__).resolve().parents[2] / "native" / "tests" / "hooks" / "failing_calls.c"
VARIABLE = "LD_PRELOAD"

KINDS = (
    "allocation",
    "open",
    "read",
    "write",
    "sync",
    "rename",
    "close",
    "seek",
    "status",
    "map",
    "thread",
)
"""What can fail, in the order of the C enum, whose first is 1."""

MOST_FRAMES = 64


class FaultError(RuntimeError):
    """The check cannot be made here; the message is one line for the user."""


class Report(ctypes.Structure):
    """As ``failing_calls.c`` writes it."""

    _fields_: ClassVar = [
        ("n_calls", ctypes.c_int32),
        ("n_failed", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("n_failed_frames", ctypes.c_int32),
        ("n_died_frames", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("failed_at", ctypes.c_void_p * MOST_FRAMES),
        ("died_at", ctypes.c_void_p * MOST_FRAMES),
    ]


def build(folder: Path) -> Path:
    """Build the library in a folder; returns its file."""
    built = folder / "libeliza_failing_calls.so"
    # No builtins: the compiler may take malloc's meaning for granted.
    flags = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fno-builtin", "-Wall", "-Wextra"]
    command = [os.environ.get("CC", "cc"), *flags, "-o", str(built), str(SOURCE), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FaultError(f"there is no C compiler: {error}") from None
    if done.returncode != 0:
        raise FaultError(f"{SOURCE.name} does not compile: {done.stderr.strip()}")
    return built


def run_preloaded(program: str, arguments: list[str], folder: Path) -> int:
    """Build the library in a folder and run a Python program with it; returns its exit code."""
    # llama.cpp would start a debugger where it aborts.
    more = {VARIABLE: str(build(folder)), "GGML_NO_BACKTRACE": "1"}
    return subprocess.run(
        [sys.executable, program, *arguments], env={**os.environ, **more}, check=False
    ).returncode


class Preloaded:
    """The library that was preloaded into this process.

    Parameters
    ----------
    watched
        The file of the library whose calls fail; it must be loaded already.
    built
        The file of this one, where it was not preloaded: no call fails then, and where a process
        died is told all the same.

    Attributes
    ----------
    base : int
        The address that it was loaded to.
    """

    def __init__(self, watched: Path, built: Path | None = None) -> None:
        self._calls = ctypes.CDLL(str(built or os.environ.get(VARIABLE, "")))
        self._calls.eliza_faults_watch.restype = ctypes.c_void_p
        # Shared with the children that are forked: what they write there outlives them.
        self._memory = mmap.mmap(-1, ctypes.sizeof(Report))
        self._report = Report.from_buffer(self._memory)
        base = self._calls.eliza_faults_watch(os.fsencode(watched), ctypes.byref(self._report))
        if not base:
            raise FaultError(f"{watched} is not loaded")
        self.base = int(base)

    @staticmethod
    def is_there() -> bool:
        """Return whether this process runs with the library preloaded."""
        return "failing_calls" in os.environ.get(VARIABLE, "")

    def arm(self, kind: str, n: int, *, lasting: bool = False) -> None:
        """Have the `n`-th call of a kind fail from now on; 0 only counts them.

        Parameters
        ----------
        kind
            One of `KINDS`.
        n
        lasting
            All that follow it fail, too.
        """
        self._calls.eliza_faults_arm(KINDS.index(kind) + 1, n, int(lasting))

    def disarm(self) -> None:
        """Have no call fail any more."""
        self._calls.eliza_faults_disarm()

    def forget(self) -> None:
        """Forget what was told, before the next child."""
        ctypes.memset(ctypes.byref(self._report), 0, ctypes.sizeof(Report))

    @property
    def n_calls(self) -> int:
        """How many calls were counted."""
        return int(self._report.n_calls)

    @property
    def n_failed(self) -> int:
        """How many of them failed."""
        return int(self._report.n_failed)

    @property
    def failed_at(self) -> list[int]:
        """Return who made the call that failed: addresses, innermost first."""
        return [*filter(None, self._report.failed_at[: self._report.n_failed_frames])]

    @property
    def died_at(self) -> list[int]:
        """Return where the process died, if a signal ended it."""
        return [*filter(None, self._report.died_at[: self._report.n_died_frames])]
