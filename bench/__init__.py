"""Benchmarks: one program each. Their results are in ``results``.

Run a benchmark from the repository's root, for example ``python -m bench.peers``.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The modules in scripts/ create the test models and fetch llama.cpp's vocabularies.
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
