#!/usr/bin/env python3
"""Show the effect of calibration on the embedded model's decisions.

    python models/training/measure_calibration.py
    python models/training/measure_calibration.py --method auto --plots build/calibration

Messages come from the generator of the training corpus, but with held-out sentences. One part of
them fits a calibration. Another part is used for two reports: of the model's own probabilities, and
of the calibrated ones. The script needs only the package itself.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tiny_model.aspects import Split, read_aspect  # noqa: E402
from tiny_model.inputs import tell  # noqa: E402

from eliza_ffi.decisions import Choice, calibrate, evaluate  # noqa: E402
from eliza_ffi.decisions.learning.calibration import METHODS  # noqa: E402
from eliza_ffi.model import Model  # noqa: E402

ASPECTS = ("topic", "urgency", "mood", "wants", "emotion", "act")
MOST_OPTIONS = 6

Examples = list[tuple[Any, Mapping[str, Any]]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit a calibration on one part of the messages, and print reports on the other."""
    options = _parse(arguments)
    rng = random.Random(options.seed)
    questions = {name: _question(name) for name in ASPECTS}
    fitting = list(_examples(rng, options.examples))
    held_out = list(_examples(rng, options.examples))
    with Model(options.model, n_threads=options.threads) as model:
        calibration = calibrate(model, questions, fitting, method=options.method)
        for fitted, title in ((None, "own probabilities"), (calibration, options.method)):
            report = evaluate(model, questions, held_out, calibration=fitted)
            print(f"---- {title}\n{report.text()}\n")
            if options.plots is not None:
                report.save_plots(options.plots / title.replace(" ", "-"))


def _question(name: str) -> Choice:
    aspect = read_aspect(name)
    choices = {value.names[0]: None for value in aspect.values[:MOST_OPTIONS]}
    return Choice(aspect.choices[0].write(random.Random(0), lambda slot, rng: slot), choices)


def _examples(rng: random.Random, per_question: int) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    for name in ASPECTS:
        aspect, n = read_aspect(name), 0
        values = aspect.values[:MOST_OPTIONS]
        while n < per_question:
            told = tell(aspect, rng, Split.MESSAGES)
            if told.value in values:
                n += 1
                yield told.given, {name: told.value.names[0]}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Show the effect of calibration.")
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the embedded model")
    parser.add_argument(
        "--method", default="temperature", choices=(*METHODS, "auto"), help="calibration method"
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=150,
        help="number of examples per question, for each of the two parts",
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="also write plots to FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
