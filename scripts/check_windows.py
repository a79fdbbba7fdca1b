#!/usr/bin/env python3
"""Run the Windows build's native tests and examples under wine: ``make check BACKEND=windows``.

    $ python scripts/check_windows.py
    load_library.exe: chose REPLY, chose REPLY, chose REPLY, chose REPLY
    choose.exe: chosen: STOP, in 0 forward passes after the prompt
    sampler_in_chain.exe: REPLY
    ...
    [  SKIPPED ] 9 tests, listed below:

wine is not Windows: it tests that the library's calls of Windows functions work together, not how
Windows itself behaves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "windows"
MODEL = ROOT / "models" / "eliza-tiny.gguf"

SETTINGS = {
    "WINEPREFIX": str(BUILD / "wine"),
    "WINEDEBUG": "-all",
    "WINEDLLOVERRIDES": "mscoree,mshtml=",  # do not offer to install .NET and a browser
    "WINEPATH": str(BUILD),  # with elizainference.dll
}


def works(wine: str, program: str, expected: str, *arguments: str | Path) -> bool:
    """Run a program and print its output; return whether it succeeded as expected."""
    done = subprocess.run(
        [wine, BUILD / program, *arguments],
        env={**os.environ, **SETTINGS},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    # Wine reports, for example, that it created its folder of settings.
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("wine: ")]
    print(f"{Path(program).name}: {', '.join(lines[:4])}")
    if done.returncode == 0 and expected in done.stdout:
        return True
    print(f"  failed: expected exit code 0 and {expected!r}, got exit code {done.returncode}")
    return False


def main() -> int:
    wine = shutil.which("wine")
    if wine is None:
        print("check_windows: wine is missing (Debian: apt install wine)", file=sys.stderr)
        return 1
    load = ("tests/load_library.exe", "chose ", BUILD / "elizainference.dll", MODEL)
    sample = ("examples/sampler_in_chain.exe", "REPLY", MODEL, "Next: ", "REPLY", "REPLY_NOW")
    programs = (load, ("examples/choose.exe", "chosen: ", MODEL), sample)
    passed = [works(wine, *map(str, program)) for program in programs]
    tests = [wine, str(BUILD / "tests/native_tests.exe"), "--gtest_brief=1", *sys.argv[1:]]
    code = subprocess.run(tests, env={**os.environ, **SETTINGS}, cwd=ROOT).returncode
    return code or int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
