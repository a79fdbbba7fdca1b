#!/usr/bin/env python3
"""Load a freshly built library and name its devices: the last step of ``make cpu`` and its like.

    $ python scripts/check_load.py build/cpu cpu
    build/cpu/libelizainference.so: ABI 12, backend cpu; devices: CPU (...)

Exit code 1, with one line that says why, where the library does not load, states another ABI
version, or was built for another backend. No device of the backend is no failure: a library may be
built on one machine and used on another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import ABI_VERSION, Library, library_file_name


def summary(path: Path, backend: str) -> str:
    """Return what the library says of itself.

    Raises
    ------
    ElizaError
        If it does not load.
    ValueError
        If it is not the library that was to be built.
    """
    if path.is_dir():
        path = path / library_file_name()
    library = Library(path)
    if library.abi_version != str(ABI_VERSION):
        raise ValueError(f"{path} states ABI {library.abi_version}, not {ABI_VERSION}")
    facts = CffiBinding(library).describe()
    if facts["backend"] != backend:
        raise ValueError(f"{path} was built for {facts['backend']}, not {backend}")
    devices = [f"{device['name']} ({device['description']})" for device in facts["devices"]]
    hint = ""
    if not facts["gpu_offload"] and backend not in ("cpu", "blas"):
        hint = f"; no {backend} device here: models run on the CPU"
    return (
        f"{path}: ABI {library.abi_version}, backend {backend}; devices: {', '.join(devices)}{hint}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Load a built library and name its devices.")
    parser.add_argument("library", type=Path, help="the file, or the folder it was built in")
    parser.add_argument("backend", help="what it was built for")
    options = parser.parse_args(arguments)
    try:
        print(summary(options.library, options.backend))
    except (ElizaError, ValueError) as error:
        print(f"check_load: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
