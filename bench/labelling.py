"""Compare the rows that `eliza-ffi label` chooses with random rows: a simulated person labels both.

    python -m bench.labelling [--model minilm] [--seeds 5]

The rows of each data set are divided at random into two parts. The person labels rows of the first
part. The accuracy is that of a head that learned from the labels, on the second part. Random rows
that only measure are not counted.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from fetch_real_models import fetch
from numpy.typing import NDArray

from eliza_ffi import Model
from eliza_ffi.learning.labelling import Labelling, read_rows

from .answers.datasets import load

DATA = ("trec", "spam", "sentiment", "ratings", "tickets")
N_ROWS = 700
"""The maximum number of rows of a data set."""

N_POOL = 300
"""How many of them may be labelled; two thirds of a smaller data set."""

CHOSEN, RANDOM = (10, 20, 40), (0, 20, 40, 60)
"""The numbers of labels."""


class Rows(NamedTuple):
    """States, log-probabilities and right options of rows, in one order."""

    states: NDArray[np.float32]
    own: NDArray[np.float64]
    right: NDArray[np.intp]

    def at(self, places: Any) -> Rows:
        return Rows(*(each[places] for each in self))


def read(model: Model, name: str) -> Rows:
    """Return the rows of a data set."""
    data = load(name)
    rows = [*data.train, *data.test][:N_ROWS]
    texts = [text for text, _ in rows]
    places, states, own = zip(*read_rows(model, data.question, texts, {}), strict=True)
    return Rows(np.stack(states), np.stack(own), np.array(data.targets(rows))[list(places)])


def accuracy(labelled: Rows, others: Rows) -> float:
    """Return the accuracy on other rows of a head that learned from labelled ones."""
    labelling = Labelling(others.own.shape[1])
    for rows in (labelled, others):
        for state, own in zip(rows.states, rows.own, strict=True):
            labelling.add_row(state, own)
    for row, option in enumerate(labelled.right.tolist()):
        labelling.label(row, option, "chosen")
    answers = labelling.log_probabilities()[len(labelled.right) :].argmax(axis=1)
    return float((answers == others.right).mean())


def chosen_rows(pool: Rows, n: int) -> list[int]:
    """Return the first rows that are chosen while a person labels the pool."""
    labelling = Labelling(pool.own.shape[1])
    for state, own in zip(pool.states, pool.own, strict=True):
        labelling.add_row(state, own)
    chosen: list[int] = []
    while len(chosen) < n and (found := labelling.next()) is not None:
        labelling.label(found.row, int(pool.right[found.row]), found.kind)
        chosen += [found.row] if found.kind == "chosen" else []
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with Model(fetch(arguments.model), n_threads=1) as model:
        for name in DATA:
            rows = read(model, name)
            n_pool = min(N_POOL, 2 * len(rows.right) // 3)
            for seed in range(arguments.seeds):
                order = np.random.default_rng(seed).permutation(len(rows.right))
                pool, others = rows.at(order[:n_pool]), rows.at(order[n_pool:])
                for n in RANDOM:
                    found[f"{n} random"][name].append(accuracy(pool.at(slice(n)), others))
                chosen = chosen_rows(pool, max(CHOSEN))
                for n in CHOSEN:
                    found[f"{n} chosen"][name].append(accuracy(pool.at(chosen[:n]), others))
    print(f"{'labels':12}" + "".join(f"{each:>11}" for each in (*DATA, "mean")))
    for label, by_name in found.items():
        means = [fmean(by_name[name]) for name in DATA]
        print(f"{label:12}" + "".join(f"{each:11.3f}" for each in (*means, fmean(means))))


if __name__ == "__main__":
    main()
