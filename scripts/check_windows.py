#!/usr/bin/env python3
"""Run the Windows build's native tests and examples under wine: ``make check BACKEND=windows``.

wine is not Windows: it tests that the library's calls of Windows functions work together, not how
Windows itself behaves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "windows"
MODEL = ROOT / "models" / "eliza-tiny.gguf"

SETTINGS = {
    "WINEPREFIX": str(BUILD / "wine"),
    "WINEDEBUG": "-all",
    "WINEDLLOVERRIDES": "mscoree,mshtml=",  # do not offer to install .NET and a browser
    "WINEPATH": str(BUILD),  # with elizainference.dll
}


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["wine", str(BUILD / program), *map(str, arguments)]
    variables = {**os.environ, **SETTINGS}
    done = subprocess.run(
        command, env=variables, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True, errors="replace"
    )
    # Wine reports, for example, that it created its folder of settings.
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("wine: ")]
    print(f"{Path(program).name}:", *lines, sep="\n  ", flush=True)
    return done


def main() -> int:
    if shutil.which("wine") is None:
        print("check_windows: wine is missing (Debian: apt install wine)", file=sys.stderr)
        return 1
    sample = (MODEL, "Next: ", "REPLY", "REPLY_NOW")
    expected = {
        "chose ": run("tests/load_library.exe", BUILD / "elizainference.dll", MODEL),
        "chosen: ": run("examples/choose.exe", MODEL),
        "REPLY": run("examples/sampler_in_chain.exe", *sample),
        "": run("tests/native_tests.exe", "--gtest_brief=1", *sys.argv[1:]),
    }
    failed = [
        done for words, done in expected.items() if done.returncode or words not in done.stdout
    ]
    for done in failed:
        print(f"failed with exit code {done.returncode}: {' '.join(done.args)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
