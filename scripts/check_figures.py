#!/usr/bin/env python3
"""Check that every measured table in README.md and docs/ names the versions it was measured with.

    $ python scripts/check_figures.py

Benchmarks write their tables between `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->`.
Each table must name the versions of eliza-ffi and llama.cpp. README.md's tables must be measured
with the minor version in pyproject.toml.

Exit codes: 0 = all tables pass, 1 = some do not; a line on standard error names each of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TABLE = re.compile(r"<!-- bench:(?P<name>[\w-]+):begin -->(?P<text>.*?)<!-- bench:\1:end -->", re.S)
VERSIONS = re.compile(r"\beliza-ffi (?P<eliza_ffi>\d+\.\d+)\S* over llama\.cpp \w+")
PROJECT_VERSION = re.compile(r'^version = "(\d+\.\d+)', re.M)


def main() -> int:
    found = list(problems(ROOT))
    for problem in found:
        print(f"check_figures: {problem}", file=sys.stderr)
    return 1 if found else 0


def problems(root: Path) -> Iterator[str]:
    """Yield a line for each table of a checkout that has no versions or the wrong ones."""
    readme = root / "README.md"
    version = PROJECT_VERSION.findall((root / "pyproject.toml").read_text(encoding="utf-8"))[0]
    for page in (readme, *sorted((root / "docs").rglob("*.md"))):
        for table in TABLE.finditer(page.read_text(encoding="utf-8")):
            place = f"{page.relative_to(root)}: the table {table['name']!r}"
            measured = VERSIONS.search(table["text"])
            if measured is None:
                yield f"{place} must name its versions: 'eliza-ffi VERSION over llama.cpp VERSION'"
            elif page == readme and (got := measured["eliza_ffi"]) != version:
                yield f"{place}: expected figures of eliza-ffi {version}, got those of {got}"


if __name__ == "__main__":
    sys.exit(main())
