#!/usr/bin/env python3
"""Check an installed eliza-ffi: run it without a compiler on the PATH and outside of the checkout.

    $ venv/bin/python tests/release/check_installed.py
    ...
    check_installed: chose REPLY

``scripts/check_wheel.sh`` and cibuildwheel run this in the environment with the new wheel. Exit
code 1 if ``doctor`` finds problems, if ``choose`` returns no label, or if the licence of code in
the library is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

LABELS = ("REPLY", "IGNORE")
LICENSES = ("LICENSE", "LICENSE.llama.cpp", "LICENSE.nlohmann-json")
KEPT = ("SYSTEMROOT", "TEMP", "GGML_VK_VISIBLE_DEVICES")
"""The environment variables that the commands get: Windows needs the first two."""


def main() -> int:
    program = shutil.which("eliza-ffi", path=sysconfig.get_path("scripts"))
    if program is None:
        print("check_installed: this Python has no eliza-ffi: pip install it", file=sys.stderr)
        return 1
    files = {path.name for path in metadata.files("eliza-ffi") or ()}
    if missing := [name for name in LICENSES if name not in files]:
        print(f"check_installed: the wheel lacks {', '.join(missing)}", file=sys.stderr)
        return 1
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    with tempfile.TemporaryDirectory() as home:
        environment |= {"HOME": home, "USERPROFILE": home, "PATH": str(Path(program).parent)}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *words], cwd=home, env=environment, stdout=subprocess.PIPE, text=True
            )

        doctor = run("doctor")
        print(doctor.stdout, flush=True)
        labels = [word for label in LABELS for word in ("--label", label)]
        answer = run("choose", "--prompt", "Reply or ignore?", *labels).stdout.strip()
    if answer not in LABELS:
        print(f"check_installed: expected {' or '.join(LABELS)}, got {answer!r}", file=sys.stderr)
        return 1
    print(f"check_installed: chose {answer}")
    return doctor.returncode


if __name__ == "__main__":
    sys.exit(main())
