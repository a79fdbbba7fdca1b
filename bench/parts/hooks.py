"""Find the library of test hooks, which gives benchmarks access to library internals."""

from __future__ import annotations

from pathlib import Path

from eliza_ffi.library.loading import Library


def find_hooks() -> Path:
    """Return the path of the test hooks, which are in the same folder as the library.

    Raises
    ------
    SystemExit
        If they have not been built.
    """
    library = Library().path
    hooks = library.with_name(library.name.replace("libelizainference", "libeliza_test_hooks"))
    if not hooks.is_file():
        raise SystemExit(f"{hooks} is missing: run 'make cpu-with-tests'")
    return hooks
