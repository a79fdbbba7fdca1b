#!/usr/bin/env python3
"""Load a new build of the library and print its devices: the last step of ``make cpu`` and the
other build targets.

    $ python scripts/check_load.py build/cpu cpu
    build/cpu/libelizainference.so: ABI 12, backend cpu; devices: CPU (...)

A missing device is not an error: a library can be built on one machine and used on another.
"""

from __future__ import annotations

import sys
from pathlib import Path

from eliza_ffi.cli.doctor import missing_gpu
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import ABI_VERSION, Library, library_file_name


def main(folder: str, backend: str) -> None:
    path = Path(folder, library_file_name())
    try:
        library = Library(path)
        facts = CffiBinding(library).describe()
    except ElizaError as error:
        sys.exit(f"check_load: {error}")
    found, expected = (library.abi_version, facts["backend"]), (str(ABI_VERSION), backend)
    if found != expected:
        said = "expected ABI {} and backend {}, got ABI {} and backend {}"
        sys.exit(f"check_load: {path}: {said.format(*expected, *found)}")
    devices = [f"{device['name']} ({device['description']})" for device in facts["devices"]]
    line = f"{path}: ABI {found[0]}, backend {backend}; devices: {', '.join(devices)}"
    print("; ".join(filter(None, (line, missing_gpu(facts)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
