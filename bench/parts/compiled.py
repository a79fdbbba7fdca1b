"""C sources compiled on the spot, for what Python is too slow to time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import cffi

__all__ = ["address", "compiled"]


def compiled(declarations: str, source: str) -> tuple[Any, Any]:
    """Return cffi's view of a C source, compiled by ``$CC`` or ``cc``.

    Parameters
    ----------
    declarations
        What of the source is called, in C.
    source
    """
    ffi: Any = cffi.FFI()
    ffi.cdef(declarations)
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "source.c", Path(folder) / "compiled.so"
        file.write_text(source, encoding="utf-8")
        command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, "-o", out, file], check=True)
        return ffi, ffi.dlopen(str(out))


def address(ffi: Any, pointer: Any) -> Any:
    """Return a pointer of any cffi instance as a ``void *`` of this one."""
    return ffi.cast("void *", int(cffi.FFI().cast("intptr_t", pointer)))
