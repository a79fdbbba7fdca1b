"""Run a call one instruction at a time, with ptrace. Linux on x86-64 only.

A forked copy of this process makes the call, so the library runs exactly as it was built. valgrind
could count instructions as well, but does not support AVX-512.
"""

from __future__ import annotations

import os
import platform
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cffi

TRACE_ME, SINGLE_STEP, GET_REGISTERS = 0, 9, 12
REGISTERS = struct.Struct("<27Q")
INSTRUCTION_POINTER, STACK_POINTER = 16, 19

Place = tuple[int, int]
"""The values of the instruction pointer and the stack pointer."""


def is_supported() -> bool:
    """Return whether this is Linux on x86-64 with ``/proc/self/maps``."""
    known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    return known and Path("/proc/self/maps").exists()


def steps_of(prepare: Callable[[], Callable[[], object]], begin: int) -> Iterator[Place]:
    """Yield the place before each instruction of a function, until the function returns.

    Parameters
    ----------
    prepare
        Runs in a forked copy of this process, at full speed. Returns the call to trace.
    begin
        The address of the function; tracing starts when the call reaches it.

    Raises
    ------
    RuntimeError
        If the function was not called, or if the system does not allow tracing.
    """
    ffi: Any = cffi.FFI()
    ffi.cdef("long ptrace(long, int, void *, void *);")
    ptrace: Any = ffi.dlopen(None).ptrace
    registers = ffi.new("char[]", REGISTERS.size)
    child = os.fork()
    if child == 0:
        try:
            call = prepare()
            ptrace(TRACE_ME, 0, ffi.NULL, ffi.NULL)
            os.kill(os.getpid(), signal.SIGSTOP)
            call()
        finally:
            os._exit(0)
    try:
        returned_at: int | None = None
        while True:
            _, status = os.waitpid(child, 0)
            if not os.WIFSTOPPED(status) or ptrace(GET_REGISTERS, child, ffi.NULL, registers) < 0:
                raise RuntimeError("the function was not called, or tracing is not allowed")
            values = REGISTERS.unpack(ffi.buffer(registers))
            instruction, stack = values[INSTRUCTION_POINTER], values[STACK_POINTER]
            if returned_at is None and instruction == begin:
                returned_at = stack
            if returned_at is not None:
                if stack > returned_at:
                    return
                yield instruction, stack
            ptrace(SINGLE_STEP, child, ffi.NULL, ffi.NULL)
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def address_of(function: Any) -> int:
    """Return the address of a library's function, given by any cffi instance."""
    return int(cffi.FFI().cast("intptr_t", function))
