#!/usr/bin/env python3
"""Check that every measured table of the pages names the versions it was measured with.

    $ python scripts/check_figures.py

Benchmarks write their tables between `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->`.
Exit code 1 if a table does not name the versions of eliza-ffi and llama.cpp.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = re.compile(r"<!-- bench:([\w-]+):begin -->(.*?)<!-- bench:\1:end -->", re.S)
VERSIONS = re.compile(r"\beliza-ffi\s\d+\.\d+\S*\s\(llama\.cpp\s\w+\)")


def main() -> int:
    code = 0
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for name, table in TABLE.findall(page.read_text(encoding="utf-8")):
            if not VERSIONS.search(table):
                expected = "'eliza-ffi VERSION (llama.cpp VERSION)'"
                print(f"{page}: the table {name!r} must name {expected}", file=sys.stderr)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
