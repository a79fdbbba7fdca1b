#!/usr/bin/env python3
"""Load a new build of the library and print its devices: the last step of ``make cpu`` and the
other build targets.

    $ python scripts/check_load.py build/cpu cpu
    build/cpu/libelizainference.so: ABI 12, backend cpu; devices: CPU (...)

Exit code 1 and one line with the reason if the library does not load, has another ABI version, or
was built for another backend. A missing device is not an error, because a library can be built on
one machine and used on another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eliza_ffi.cli.doctor import missing_gpu
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import ABI_VERSION, Library, library_file_name


def summary(path: Path, backend: str) -> str:
    """Return the library's ABI version, backend and devices as one line.

    Raises
    ------
    ElizaError
        If the library does not load.
    ValueError
        If it has another ABI version, or was built for another backend.
    """
    if path.is_dir():
        path = path / library_file_name()
    library = Library(path)
    if library.abi_version != str(ABI_VERSION):
        raise ValueError(f"{path}: expected ABI {ABI_VERSION}, got {library.abi_version}")
    facts = CffiBinding(library).describe()
    if facts["backend"] != backend:
        raise ValueError(f"{path}: expected the backend {backend}, got {facts['backend']}")
    devices = [f"{device['name']} ({device['description']})" for device in facts["devices"]]
    summary = f"{path}: ABI {library.abi_version}, backend {backend}; devices: {', '.join(devices)}"
    missing = missing_gpu(facts)
    return summary if missing is None else f"{summary}; {missing}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Load a built library and print its devices.")
    parser.add_argument("library", type=Path, help="library file, or its build folder")
    parser.add_argument("backend", help="expected backend")
    options = parser.parse_args(arguments)
    try:
        print(summary(options.library, options.backend))
    except (ElizaError, ValueError) as error:
        print(f"check_load: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
