"""Compile C sources at run time, for code that Python is too slow to time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import cffi


def compiled(declarations: str, source: str) -> tuple[Any, Any]:
    """Compile a C source with ``$CC`` or ``cc`` and open it with cffi.

    Parameters
    ----------
    declarations
        The C declarations of the functions to call.

    Returns
    -------
    tuple
        The cffi instance, and the loaded library.
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
    """Convert a pointer of any cffi instance to a ``void *`` of `ffi`."""
    return ffi.cast("void *", int(cffi.FFI().cast("intptr_t", pointer)))
