#!/usr/bin/env python3
"""Pack a built library for C: headers, libraries, CMake and pkg-config files, an example, a model.

    $ python scripts/c_archive.py build/c/linux-x86_64 linux-x86_64 dist
    dist/eliza-ffi-c-0.3.0-linux-x86_64.tar.gz

The first argument is the build folder, the second the name of the system. For Linux, the archive
also has a static library. It contains every object file that the shared library was linked from,
with llama.cpp and, if zig is the compiler, the C++ runtime.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cache_entry(build: Path, name: str) -> str:
    """Return a variable of the build folder's CMakeCache.txt, or an empty string."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
    return found[1] if found else ""


def linked_files(build: Path) -> list[Path]:
    """Return the object files and static libraries of the shared library, in the linker's order."""
    ninja = ["ninja", "-C", str(build), "-t", "commands", "libelizainference.so"]
    command = subprocess.run(ninja, check=True, capture_output=True, text=True).stdout.splitlines()
    with tempfile.NamedTemporaryFile() as output:
        # -v prints the linker's own command, which also names the C++ runtime of zig.
        again = command[-1].replace("-o libelizainference.so", f"-v -o {shlex.quote(output.name)}")
        linked = subprocess.run(
            again, shell=True, check=True, cwd=build, capture_output=True, text=True
        )
    words = dict.fromkeys(word for line in linked.stderr.splitlines() for word in line.split())
    files = [build / word for word in words if word.endswith((".o", ".a"))]
    return [path for path in files if path.is_file() and not path.name.startswith("crt")]


def write_static_library(build: Path, library: Path) -> None:
    """Merge the files that the shared library was linked from into one static library."""
    zig = cache_entry(build, "ELIZA_ZIG")
    ar = [zig, "ar"] if zig else ["ar"]
    script = [f"create {library}"]
    for path in linked_files(build):
        script.append(f"{'addlib' if path.suffix == '.a' else 'addmod'} {path.resolve()}")
    script += ["save", "end", ""]
    subprocess.run([*ar, "-M"], check=True, input="\n".join(script), text=True)


def pack(build: Path, system: str, folder: Path) -> Path:
    """Write the archive and return its path."""
    name = f"eliza-ffi-c-{cache_entry(build, 'CMAKE_PROJECT_VERSION')}-{system}"
    with tempfile.TemporaryDirectory() as scratch:
        prefix = Path(scratch) / name
        install = ["cmake", "--install", str(build), "--prefix", str(prefix)]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        if system.startswith("linux"):
            write_static_library(build, prefix / "lib" / "libelizainference.a")
        shutil.copytree(ROOT / "native" / "examples", prefix / "share" / "examples")
        shutil.copy(ROOT / "models" / "eliza-tiny.gguf", prefix / "share")
        shutil.copy(ROOT / "LICENSE", prefix)
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(prefix, name)
    return archive


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack a built library for C.")
    parser.add_argument("build", type=Path, help="build folder of CMake and Ninja")
    parser.add_argument("system", help="name of the system, such as linux-x86_64")
    parser.add_argument("folder", type=Path, help="folder of the archive")
    options = parser.parse_args()
    print(pack(options.build, options.system, options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
