"""Build, preload and control the library that makes calls fail; name the functions on a stack."""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

SOURCE = Path(__file__).resolve().parents[2] / "native" / "tests" / "hooks" / "failing_calls.c"
VARIABLE = "LD_PRELOAD"

KINDS = (
    *("allocation", "open", "read", "write", "sync", "rename"),
    *("close", "seek", "status", "map", "thread"),
)
"""The kinds of calls that can fail, in the order of the C enum, which begins with 1."""

MOST_FRAMES = 64


class Report(ctypes.Structure):
    """The struct that ``failing_calls.c`` fills."""

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

    def stack_of_failure(self) -> list[int]:
        """Return the addresses on the stack of the failing call, innermost first."""
        return [*filter(None, self.failed_at[: self.n_failed_frames])]

    def stack_of_death(self) -> list[int]:
        """Return the addresses on the stack on which a signal ended the process; may be empty."""
        return [*filter(None, self.died_at[: self.n_died_frames])]


def build(folder: Path) -> Path:
    built = folder / "libeliza_failing_calls.so"
    # With builtins, the compiler may optimize on the assumption that malloc is the standard one.
    flags = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fno-builtin", "-Wall", "-Wextra"]
    command = [os.environ.get("CC", "cc"), *flags, "-o", str(built), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return built


def run_preloaded(program: str, arguments: list[str], folder: Path) -> int:
    """Build the library, run a Python program with it preloaded, and return the exit code."""
    # GGML_NO_BACKTRACE keeps llama.cpp from starting a debugger when it aborts.
    more = {VARIABLE: str(build(folder)), "GGML_NO_BACKTRACE": "1"}
    return subprocess.run(
        [sys.executable, program, *arguments], env={**os.environ, **more}, check=False
    ).returncode


class Preloaded:
    """The library that was preloaded into this process."""

    def __init__(self, watched: Path) -> None:
        """`watched` is the file of the library whose calls fail. It must be loaded already."""
        self._calls = ctypes.CDLL(os.environ.get(VARIABLE, ""))
        self._calls.eliza_faults_watch.restype = ctypes.c_void_p
        # Shared memory, so that a forked child's report survives the child.
        self._memory = mmap.mmap(-1, ctypes.sizeof(Report))
        self.report = Report.from_buffer(self._memory)
        base = self._calls.eliza_faults_watch(os.fsencode(watched), ctypes.byref(self.report))
        if not base:
            raise OSError(f"{watched} is not loaded in this process")
        self.base = int(base)  # the load address of the watched library

    def arm(self, kind: str, n: int, *, lasting: bool = False) -> None:
        """Make the `n`-th call of one of `KINDS` fail, counted from now; 0 only counts calls.

        With `lasting`, all later calls of the kind fail, too.
        """
        self._calls.eliza_faults_arm(KINDS.index(kind) + 1, n, int(lasting))

    def disarm(self) -> None:
        self._calls.eliza_faults_disarm()

    def forget(self) -> None:
        ctypes.memset(ctypes.byref(self.report), 0, ctypes.sizeof(Report))


OURS = ("eliza::", "eliza_inference_", "eliza_test_")
# Code that is attributed to its caller. Code that is neither ours nor neutral is llama.cpp's.
NEUTRAL = (
    *("std::", "__gnu_cxx::", "__cxxabiv1::", "__cxa", "__gxx_personality", "_Unwind"),
    *("nlohmann::", "operator new", "operator delete", "ggml_abort"),
)


class Symbols:
    """The functions of a library that was not stripped."""

    def __init__(self, library: Path, base: int) -> None:
        self._base = base
        command = ["nm", "--numeric-sort", "--defined-only", "--print-size", str(library)]
        mangled = subprocess.run(command, capture_output=True, check=True).stdout
        plain = ["c++filt", "--no-params"]
        listed = subprocess.run(plain, input=mangled, capture_output=True, check=True).stdout
        found = re.findall(r"^(\w+) (\w+) [tTwWi] (.+)$", listed.decode(), flags=re.MULTILINE)
        self._begins = [int(begin, 16) for begin, _, _ in found]
        self._ends = [int(begin, 16) + int(size, 16) for begin, size, _ in found]
        self._names = [name for _, _, name in found]

    def names(self, addresses: Iterable[int]) -> list[str]:
        names = (self._name(address - self._base) for address in addresses)
        return [name for name in names if name]

    def _name(self, offset: int) -> str:
        # If the callee never returns, the return address may lie after the end of the caller.
        at = bisect.bisect_right(self._begins, offset - 1) - 1
        return self._names[at] if at >= 0 and offset - 1 < self._ends[at] else ""


def blamed(names: Sequence[str]) -> tuple[str, str]:
    """Return whose code a stack is in, and the innermost function of that owner.

    The names begin with the innermost function. The owner is ``"ours"``, ``"llama.cpp"`` or
    ``"nobody"``.
    """
    for name in names:
        if name.startswith(OURS):
            return "ours", name
        if not name.startswith(NEUTRAL):
            return "llama.cpp", name
    return "nobody", ""


def our_caller(names: Sequence[str]) -> str:
    """Return our innermost function in a stack, or an empty string."""
    return next((name for name in names if name.startswith(OURS)), "")
