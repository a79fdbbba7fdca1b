#!/usr/bin/env python3
"""Check the exports and load commands of a library for macOS, without running it: ``make macos``.

    $ python scripts/check_macos.py build/macos-aarch64/libelizainference.dylib
    build/macos-aarch64/libelizainference.dylib: arm64, macOS 11.0, exports the headers' 109
      functions, needs only /usr/lib/libSystem.B.dylib; linked and checked, not run

``--exports`` also lists the exported functions.

The library must export exactly the functions of the C headers, and need only the system library.
For arm64 it must be signed, because these Macs load no unsigned code. The signature is ad hoc, as
for any local build. zig's C++ runtime also exports the operators new and delete, which Apple's
linker would hide.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eliza_ffi.library.loading import declared_functions

ROOT = Path(__file__).resolve().parents[1]
PROCESSORS = {0x0100000C: "arm64", 0x01000007: "x86_64"}
CPP_OPERATORS = ("_Znw", "_Zna", "_Zdl", "_Zda")
"""How the names of the operators new and delete begin."""
SYSTEM_LIBRARIES = {"/usr/lib/libSystem.B.dylib"}

# From Apple's mach-o/loader.h.
MAGIC_64 = 0xFEEDFACF
DYNAMIC_LIBRARY = 6
LOAD_DYLIB, ID_DYLIB, CODE_SIGNATURE = 0xC, 0xD, 0x1D
WEAK_DYLIB, REEXPORT_DYLIB = 0x80000018, 0x8000001F
DYLD_INFO_ONLY, EXPORTS_TRIE, BUILD_VERSION = 0x80000022, 0x80000033, 0x32


@dataclass
class Library:
    """The load commands and exports of a Mach-O file.

    Attributes
    ----------
    kind
        The number of the file type; 6 = dynamic library.
    name
        The name under which programs load the library.
    needed
        The libraries that it needs.
    oldest_macos
        The oldest supported version, such as ``"11.0"``.
    exports
        Without the underscore with which C functions begin.
    """

    processor: str
    kind: int
    name: str = ""
    needed: list[str] = field(default_factory=list)
    oldest_macos: str = ""
    is_signed: bool = False
    exports: set[str] = field(default_factory=set)


def read_library(data: bytes) -> Library:
    """Read the load commands and the exports of a 64-bit Mach-O file.

    Raises
    ------
    ValueError
        If the data is not such a file.
    """
    if len(data) < 32 or struct.unpack_from("<I", data)[0] != MAGIC_64:
        raise ValueError("expected a 64-bit Mach-O file")
    _, processor, _, kind, n_commands = struct.unpack_from("<5I", data)
    library = Library(PROCESSORS.get(processor, hex(processor)), kind)
    at = 32
    for _ in range(n_commands):
        command, size = struct.unpack_from("<2I", data, at)
        words = struct.unpack_from(f"<{size // 4}I", data, at)
        if command == ID_DYLIB:
            library.name = _text(data, at + words[2])
        elif command in (LOAD_DYLIB, WEAK_DYLIB, REEXPORT_DYLIB):
            library.needed.append(_text(data, at + words[2]))
        elif command == BUILD_VERSION:
            library.oldest_macos = f"{words[3] >> 16}.{words[3] >> 8 & 0xFF}"
        elif command == CODE_SIGNATURE:
            library.is_signed = True
        elif command == EXPORTS_TRIE:
            library.exports = set(_exports(data[words[2] : words[2] + words[3]]))
        elif command == DYLD_INFO_ONLY:
            library.exports = set(_exports(data[words[10] : words[10] + words[11]]))
        at += size
    return library


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()


def _exports(trie: bytes) -> Iterator[str]:
    """Yield the names in a trie of exports."""
    waiting = [(0, b"")]
    while waiting and trie:
        at, prefix = waiting.pop()
        n_terminal, at = _uleb128(trie, at)
        if n_terminal:
            yield prefix.decode().removeprefix("_")
        at += n_terminal
        n_children = trie[at]
        at += 1
        for _ in range(n_children):
            end = trie.index(b"\0", at)
            child, after = _uleb128(trie, end + 1)
            waiting.append((child, prefix + trie[at:end]))
            at = after


def _uleb128(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def exported_functions(library: Library) -> list[str]:
    """Return the names of the exported functions, without the operators new and delete."""
    return sorted(name for name in library.exports if not name.startswith(CPP_OPERATORS))


def problems_of(library: Library) -> list[str]:
    """Return the problems of the library, one line each."""
    headers = (ROOT / "native" / "include" / "eliza").glob("*.h")
    texts = [header.read_text(encoding="utf-8") for header in headers]
    expected = {name for text in texts for name in declared_functions(text)}
    exports = set(exported_functions(library))
    problems = []
    if library.kind != DYNAMIC_LIBRARY:
        problems.append(f"expected file type {DYNAMIC_LIBRARY}, a library; got {library.kind}")
    if not library.name.startswith("@rpath/"):
        problems.append(f"expected a name that begins with @rpath/, got {library.name!r}")
    if others := set(library.needed) - SYSTEM_LIBRARIES:
        problems.append(f"needs {', '.join(sorted(others))}")
    if library.processor == "arm64" and not library.is_signed:
        problems.append("has no signature")
    if missing := expected - exports:
        problems.append(f"does not export {', '.join(sorted(missing))}")
    if others := exports - expected:
        problems.append(f"exports other names: {', '.join(sorted(others))}")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check libraries for macOS without running them.")
    parser.add_argument("libraries", type=Path, nargs="+", metavar="LIBRARY")
    parser.add_argument("--exports", action="store_true", help="list the exported functions")
    chosen = parser.parse_args(arguments)
    failed = False
    for path in chosen.libraries:
        try:
            library = read_library(path.read_bytes())
            problems = problems_of(library)
        except (OSError, ValueError) as error:
            problems = [str(error)]
        failed |= bool(problems)
        if problems:
            print("\n".join(f"{path}: {problem}" for problem in problems), file=sys.stderr)
        else:
            print(
                f"{path}: {library.processor}, macOS {library.oldest_macos}, "
                f"exports the headers' {len(exported_functions(library))}\n"
                f"  functions, needs only {', '.join(library.needed)}; linked and checked, not run"
            )
            if chosen.exports:
                print("\n".join(f"    {name}" for name in exported_functions(library)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
