#!/usr/bin/env python3
"""Write the commands that install eliza-ffi into README.md and the pages that lead with them.

Until a version is published, the pages show how to install from a clone. To switch them, set
``published = true`` under ``[tool.eliza-ffi]`` in pyproject.toml, and run this script. It replaces
the text between ``<!-- install:begin -->`` and ``<!-- install:end -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/start/install.md")

BLOCK = re.compile(r"(?<=<!-- install:begin -->\n).*?(?=<!-- install:end -->\n)", re.DOTALL)
COMMANDS = """
<!-- not run: it installs the package -->
```console
$ pip install {name}
$ eliza-ffi doctor
```

"""
FROM_A_CLONE = """{commands}There is no release yet. Run the commands in a copy of this repository
(a *clone*). The first one compiles llama.cpp, which runs the models:
you need a C++ compiler and a few minutes. The second one checks the
installation.

"""


def is_published(pyproject: str) -> bool:
    """Return the setting ``published`` of a pyproject.toml."""
    setting = re.search(r"^\[tool\.eliza-ffi\]\npublished = (true|false)$", pyproject, re.MULTILINE)
    if setting is None:
        raise ValueError("pyproject.toml: expected published = true or false in [tool.eliza-ffi]")
    return setting[1] == "true"


def with_commands(page: str, published: bool) -> str:
    """Return a page with the commands that work now."""
    name = "eliza-ffi" if published else "."
    commands = COMMANDS.format(name=name)
    text = commands if published else FROM_A_CLONE.format(commands=commands)
    changed, n = BLOCK.subn(lambda _: text, page)
    if n != 1:
        raise ValueError(f"expected one pair of install:begin and install:end, got {n}")
    return changed


def main() -> None:
    published = is_published((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for page in (ROOT / name for name in PAGES):
        text = with_commands(page.read_text(encoding="utf-8"), published)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
