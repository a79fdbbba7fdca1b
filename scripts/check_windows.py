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
from typing import Any

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
    output: dict[str, Any] = {"stdout": PIPE, "stderr": STDOUT, "text": True, "errors": "replace"}
    done = subprocess.run(command, env={**os.environ, **SETTINGS}, cwd=ROOT, **output)
    # Wine reports, for example, that it created its folder of settings.
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("wine: ")]
    print(f"{Path(program).name}:", *lines, sep="\n  ", flush=True)
    return done


def main() -> None:
    if shutil.which("wine") is None:
        sys.exit("check_windows: wine is missing (Debian: apt install wine)")
    sample = (MODEL, "Next: ", "REPLY", "REPLY_NOW")
    expected = {
        "chose ": run("tests/load_library.exe", BUILD / "elizainference.dll", MODEL),
        "chosen: ": run("examples/choose.exe", MODEL),
        "REPLY": run("examples/sampler_in_chain.exe", *sample),
        "": run("tests/native_tests.exe", "--gtest_brief=1", *sys.argv[1:]),
    }
    for words, done in expected.items():
        if done.returncode or words not in done.stdout:
            sys.exit(f"failed with exit code {done.returncode}: {' '.join(done.args)}")


if __name__ == "__main__":
    main()
