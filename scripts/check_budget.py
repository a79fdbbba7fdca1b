#!/usr/bin/env python3
"""Check that no part of the repository has more lines or words than its ceiling in budget.txt.

If a part is over its ceiling, delete something, or raise the ceiling and say why in the commit.
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    over = False
    for row in Path(__file__).with_name("budget.txt").read_text(encoding="utf-8").splitlines():
        most, unit, *patterns = row.partition("#")[0].split() or ("0", "")
        if patterns:
            command = ["git", "ls-files", "--", *patterns]
            listed = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
            texts = [Path(name).read_bytes() for name in listed if Path(name).is_file()]
            parts = bytes.split if unit == "words" else bytes.splitlines
            count = sum(len(parts(text)) for text in texts)
            over |= count > int(most)
            print(f"{count:6} of at most {most:>6} {unit}: {' '.join(patterns)}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
