"""What measures, a program for each benchmark, beside what came out of it in ``results``.

A benchmark is run from the repository's root: ``python -m bench.peers``.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The models that are measured, and llama.cpp's vocabularies, are fetched and made by scripts.
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
