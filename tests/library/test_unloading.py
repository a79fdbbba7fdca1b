"""A process can unload the library, load it again, and exit without an error."""

from __future__ import annotations

import subprocess
import sys

from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import Library

PROGRAM = """
import _ctypes, ctypes, sys

for _ in range(3):
    library = ctypes.CDLL(sys.argv[1])
    library.eliza_inference_create.restype = ctypes.c_void_p
    acquire = library.eliza_inference_mmap_acquire
    acquire.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.eliza_inference_destroy.argtypes = [ctypes.c_void_p]
    model = library.eliza_inference_create(sys.argv[2].encode(), None)
    assert model
    assert acquire(model, b"text", None) == 0
    library.eliza_inference_destroy(model)
    _ctypes.dlclose(library._handle)
"""


def test_a_closed_library_can_be_opened_again(library: Library) -> None:
    command = [sys.executable, "-c", PROGRAM, str(library.path), str(default_model_path())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
