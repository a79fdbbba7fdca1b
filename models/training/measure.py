#!/usr/bin/env python3
"""Measure a GGUF file through the library, on held-out examples and on elizaOS's fixtures.

    python models/training/measure.py [models/eliza-tiny.gguf]

Choices are greedy, token by token, as in the demo. The script needs only the package itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tiny_model.corpus import Example  # noqa: E402
from tiny_model.fixtures import load_fixtures  # noqa: E402
from tiny_model.held_out import held_out_splits, report  # noqa: E402

from eliza_ffi.model import Model  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the accuracy of each split."""
    parser = argparse.ArgumentParser(description="Measure a model through the library.")
    parser.add_argument("model", type=Path, nargs="?", default=ROOT / "models" / "eliza-tiny.gguf")
    parser.add_argument(
        "--held-out", type=int, default=300, help="number of examples in each held-out split"
    )
    parser.add_argument("--seed", type=int, default=2, help="seed of the held-out examples")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixtures", type=Path, default=ROOT / "bench" / "eliza_1")
    options = parser.parse_args(arguments)
    splits = held_out_splits(options.seed, options.held_out) | load_fixtures(options.fixtures)
    with Model(options.model, n_threads=options.threads) as model:
        results = {
            name: [(example, is_right(model, example)) for example in split]
            for name, split in splits.items()
        }
    for line in report(results):
        print(line, flush=True)


def is_right(model: Model, example: Example) -> bool:
    """Return whether the model chooses the correct label."""
    chosen = model.choose(example.prompt, list(example.choices))
    return bool(chosen.value == example.choice)


if __name__ == "__main__":
    main()
