"""Where the library of test hooks is, by which a benchmark looks behind the C ABI."""

from __future__ import annotations

from pathlib import Path

from eliza_ffi.library.loading import Library

__all__ = ["find_hooks"]


def find_hooks() -> Path:
    """Return the one beside the library; ends the program if it has not been built."""
    library = Library().path
    hooks = library.with_name(library.name.replace("libelizainference", "libeliza_test_hooks"))
    if not hooks.is_file():
        raise SystemExit(f"{hooks} is missing: run 'make cpu-with-tests'")
    return hooks
