"""Compare the rows that `eliza-ffi label` chooses with random rows: a simulated person labels both.

    python -m bench.labelling [--model minilm] [--seeds 20] [--runs 200] \\
        [--plot bench/results/labelling.svg]

For each seed, the rows of each data set are divided at random into two parts. The person labels
rows of the first part. The accuracy is that of a head that learned from the labels, on the second
part. Random rows that only measure are not counted. The standard errors are those of the mean
difference over the seeds.

Then people label random rows, and rows that teach the model, until there is a certificate. Its
promise is broken if more of the certified answers are wrong in all rows that did not teach.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from fetch_real_models import fetch
from numpy.typing import NDArray

from eliza_ffi import Model
from eliza_ffi.decisions import Score
from eliza_ffi.learning.labelling import Labelling, read_rows

from .answers.datasets import load
from .parts.charts import OURS, SERVER, Panel, Scale, picture

DATA = ("trec", "spam", "sentiment", "ratings", "tickets")
N_ROWS = 700
"""The maximum number of rows of a data set."""

N_POOL = 300
"""How many of them may be labelled; two thirds of a smaller data set."""

CHOSEN, RANDOM = (10, 20, 30, 40), (0, 10, 20, 30, 40, 60)
"""The numbers of labels."""

RISK = 0.1
"""The risk of the certificates."""


Accuracies: TypeAlias = "Mapping[str, Mapping[str, list[float]]]"
"""By the labels, the data set and the seed."""


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
    found = list(read_rows(model, data.question, texts, {}))
    right = np.array(data.targets(rows))[[each.place for each in found]]
    return Rows(np.stack([each.state for each in found]), np.stack([e.own for e in found]), right)


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


def chosen_rows(pool: Rows, n: int, is_score: bool) -> list[int]:
    """Return the first rows that are chosen while a person labels the pool."""
    labelling = Labelling(pool.own.shape[1], is_score=is_score)
    for state, own in zip(pool.states, pool.own, strict=True):
        labelling.add_row(state, own)
    chosen: list[int] = []
    while len(chosen) < n and (found := labelling.next()) is not None:
        labelling.label(found.row, int(pool.right[found.row]), found.kind)
        chosen += [found.row] if found.kind == "chosen" else []
    return chosen


def certified_error(rows: Rows, seed: int) -> float | None:
    """Return the error rate of the certified answers of a person who stops at the first one.

    None if no certificate comes before half of the rows have a label.
    """
    rows = rows.at(np.random.default_rng(seed).permutation(len(rows.right)))
    labelling = Labelling(rows.own.shape[1], RISK)
    for state, own in zip(rows.states, rows.own, strict=True):
        labelling.add_row(state, own)
    looks = labelling.looks
    for row, option in enumerate(rows.right[: len(rows.right) // 2].tolist()):
        labelling.label(row, option, "random" if row % 2 else "chosen")
        n_random = (row + 1) // 2
        if row % 2 and n_random in looks:
            threshold = labelling.counts().certificate.threshold
            if threshold is not None:
                untaught = np.ones(len(rows.right), dtype=bool)
                untaught[:row:2] = False
                log_p = labelling.log_probabilities()
                above = untaught & (np.exp(log_p.max(axis=1)) >= threshold)
                return float((log_p.argmax(axis=1) != rows.right)[above].mean())
    return None


def gains(found: Accuracies, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what `n` chosen labels gain over random ones, and the standard errors.

    Both have a figure for each data set, and one for their mean.
    """
    chosen, random = (
        np.array([found[f"{n} {kind}"][name] for name in DATA]) for kind in ("chosen", "random")
    )
    gained = np.vstack([chosen - random, (chosen - random).mean(axis=0)])
    return gained.mean(axis=1), gained.std(axis=1) / max(gained.shape[1] - 1, 1) ** 0.5


def draw(found: Accuracies, path: str) -> None:
    """Draw the mean accuracy over the number of labels."""
    ticks = {float(n): str(n) for n in RANDOM}
    means = {label: fmean(map(fmean, by_name.values())) for label, by_name in found.items()}
    low, high = min(means.values()) - 0.02, max(means.values()) + 0.02
    tens = [i / 50 for i in range(51) if low <= i / 50 <= high]
    panel = Panel(
        "Accuracy over the number of labels",
        Scale("labels", ticks, 0, max(RANDOM)),
        Scale("mean of five data sets", {y: f"{y:.0%}" for y in tens}, low, high),
    )
    none = (0.0, means["0 random"])
    lines = {"random": (RANDOM[1:], SERVER), "chosen": (CHOSEN, OURS)}
    for kind, (numbers, colour) in lines.items():
        points = [none, *((float(n), means[f"{n} {kind}"]) for n in numbers)]
        panel.line(points, colour)
        panel.label(points[-1], kind, colour, "end", -10)
    Path(path).write_text(picture([panel], panel.title), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200, help="how many people get a certificate")
    parser.add_argument("--plot", metavar="FILE", help="draw the accuracies into FILE, as SVG")
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    errors: list[float | None] = []
    with Model(fetch(arguments.model), n_threads=1) as model:
        for name in DATA:
            rows = read(model, name)
            n_runs = arguments.runs // len(DATA)
            errors += [certified_error(rows, seed) for seed in range(n_runs)]
            n_pool = min(N_POOL, 2 * len(rows.right) // 3)
            for seed in range(arguments.seeds):
                order = np.random.default_rng(seed).permutation(len(rows.right))
                pool, others = rows.at(order[:n_pool]), rows.at(order[n_pool:])
                for n in RANDOM:
                    found[f"{n} random"][name].append(accuracy(pool.at(slice(n)), others))
                chosen = chosen_rows(pool, max(CHOSEN), isinstance(load(name).question, Score))
                for n in CHOSEN:
                    found[f"{n} chosen"][name].append(accuracy(pool.at(chosen[:n]), others))
    certified = [error for error in errors if error is not None]
    broken = sum(error > RISK for error in certified)
    print(f"{len(certified)} of {len(errors)} people got a certificate, {broken} a wrong one")
    if arguments.plot is not None:
        draw(found, arguments.plot)
    print(f"{'labels':12}" + "".join(f"{each:>11}" for each in (*DATA, "mean")))
    for label, by_name in found.items():
        means = [fmean(by_name[name]) for name in DATA]
        print(f"{label:12}" + "".join(f"{each:11.3f}" for each in (*means, fmean(means))))
    print("\nIn points: chosen minus random labels, and the standard error")
    for n in CHOSEN:
        gained, errors_of_gain = gains(found, n)
        pairs = zip(gained, errors_of_gain, strict=True)
        print(f"{n:<12}" + "".join(f"{100 * gain:+6.1f} ±{100 * e:3.1f}" for gain, e in pairs))


if __name__ == "__main__":
    main()
