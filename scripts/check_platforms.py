#!/usr/bin/env python3
"""Compile the native sources for macOS and Windows, without linking.

    $ make check-platforms
    x86_64-windows-gnu: 88 files compile
    aarch64-macos: 88 files compile

The Python package ``ziglang`` contains clang and the headers of these systems. The check finds
calls to functions that a system lacks. It does not show that the library works there. llama.cpp's
sources are left out, because llama.cpp's own CI builds them on these systems.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("x86_64-windows-gnu", "aarch64-macos")
POSIX_ONLY = ("rpc_connections.cpp",)
"""The RPC client needs POSIX. Other systems compile ``rpc_connections_absent.cpp`` instead."""


def sources(build: Path) -> list[list[str]]:
    """Return the compiler arguments for each of our own sources: the flags, then the file.

    Raises
    ------
    FileNotFoundError
        If CMake has not configured the folder.
    """
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    ours = []
    for each in commands:
        file = Path(each["file"])
        if not file.is_relative_to(ROOT / "native") or file.is_relative_to(ROOT / "native/tests"):
            continue
        if file.name in POSIX_ONLY or file.suffix != ".cpp":
            continue
        ours.append([*_kept(each["command"].split()), str(file)])
    return ours


def _kept(words: Sequence[str]) -> list[str]:
    """Return the arguments for include paths, macros and the language standard."""
    kept = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(("-I", "-D", "-std=")):
            kept.append(word.replace('\\"', '"'))
        elif word == "-isystem":
            kept += [word, following]
    return kept


def problem_of(command: Sequence[str], target: str) -> str:
    """Compile a source for the target; return the compiler's errors, or an empty string."""
    # zig does not support -fsyntax-only: it expects an output file.
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target, "-c", "-o", os.devnull]
    run = subprocess.run([*compiler, *command], capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile the native sources for other systems.")
    parser.add_argument("--build", type=Path, default=ROOT / "build/cpu", metavar="FOLDER")
    parser.add_argument("--target", action="append", default=[], choices=TARGETS)
    options = parser.parse_args(arguments)
    try:
        commands = sources(options.build)
    except FileNotFoundError as error:
        print(f"check_platforms: {error.filename} is missing: run 'make cpu'", file=sys.stderr)
        return 2
    failed = False
    for target in options.target or TARGETS:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            problems = list(pool.map(lambda each: problem_of(each, target), commands))  # noqa: B023
        said = [problem for problem in problems if problem]
        print(
            f"{target}: {len(problems) - len(said)} files compile"
            + ("" if not said else f", {len(said)} do not")
        )
        print("".join(said), end="")
        failed |= bool(said)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
