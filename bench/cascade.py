"""Measure a cascade on real data: a head on MiniLM's embeddings, then SmolLM2's option scores.

    python -m bench.answers --models smollm2 --labels 150 --readings DIR
    python -m bench.cascade --readings DIR [--plot cascade.svg]

It asks no model: `bench.answers` has written what both models read. A part of the rows fits the
head, another part the weights and the threshold, and the rest is measured.
"""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.cascade import Reading
from eliza_ffi.learning.cascades import Goal, Stages, Walk
from eliza_ffi.learning.heads import Group, fit_head
from eliza_ffi.learning.thresholds import GRID

from .answers.datasets import load
from .parts.charts import OURS, Panel, Scale, picture

DATA = ("trec", "spam", "sentiment", "ratings", "tickets")
N_HEAD, CERTIFYING = 150, 0.6
"""The labelled rows of the head, at most a third; and the share of the others that certifies."""


def stages_of(name: str, folder: Path, seed: int) -> tuple[Stages, Stages, Any]:
    """Return the stages of the rows that certify and of those that are measured."""
    (path,) = folder.glob(f"SmolLM2*-{name}.pickle")
    known = {
        text: (kind[1], each) for (text, kind), each in pickle.loads(path.read_bytes()).items()
    }
    data = load(name)
    every = [row for each in (data, load(name, 1)) for row in (*each.train, *each.test)]
    rows = [row for row in dict(every).items() if row[0] in known]
    random.Random(seed).shuffle(rows)
    right = np.array(data.targets(rows))
    features = known[rows[0][0]][0]
    place = [each.pooling for each in features].index("embedding")
    states = np.stack([known[text][1].hidden[place] for text, _ in rows])[None]
    n_head = min(N_HEAD, len(rows) // 3)
    group = Group((features[place],))
    n_options = len(data.values)
    head = fit_head(states[:, :n_head], right[:n_head], {group: 1.0}, n_options).head
    cheap = head.log_probabilities(states)
    dear = [known[text][1].sources("constrained")[-1] for text, _ in rows]
    read = [[Reading((each,)) for each in source] for source in (cheap, dear)]
    begin = n_head + int(CERTIFYING * (len(rows) - n_head))

    def part(places: slice) -> Stages:
        each, groups = [one[places] for one in read], np.arange(len(right[places]))
        return Stages(data.question, each, 0, right[places], groups, [False, False])

    return part(slice(n_head, begin)), part(slice(begin, None)), right[begin:]


def measure(name: str, folder: Path, seed: int, goal: Goal) -> dict[str, Any]:
    certifying, others, right = stages_of(name, folder, seed)
    try:
        found = certifying.fit(name, goal)
    except InvalidArgumentError as error:
        return {"problem": str(error)}
    p = others.probabilities(found.weights, found.constants)
    walk, answers = Walk(p, right, goal, []), p.argmax(axis=2)

    def at(threshold: float) -> list[float]:
        ends = walk.counts(threshold, False)[2]
        given = answers[ends, np.arange(len(ends))]
        return [float(each.mean()) for each in (ends == 1, given == answers[1], given == right)]

    names = ("rows that reach SmolLM2", "agreement", "accuracy of the cascade")
    return {
        **dict(zip(names, at(found.threshold), strict=True)),
        **{name: float((answers[i] == right).mean()) for i, name in enumerate(("MiniLM", "both"))},
        "SmolLM2": float((others.logs[1].argmax(axis=1) == right).mean()),
        "curve": [at(each)[:2] for each in GRID[::3]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cascade")
    add = parser.add_argument
    add("--readings", type=Path, required=True, metavar="DIR", help="readings of bench.answers")
    add("--data", nargs="+", default=DATA, choices=DATA, metavar="SET", help="data sets")
    add("--seeds", type=int, default=5, metavar="N", help="samples of each set")
    add("--target", default="agreement", choices=["agreement", "accuracy"])
    add("--at", type=float, default=0.98, metavar="P")
    add("--plot", type=Path, metavar="SVG", help="draw cost against agreement")
    options = parser.parse_args()
    panels = []
    goal = Goal(options.target, options.at)
    for name in options.data:
        cells = [measure(name, options.readings, seed, goal) for seed in range(options.seeds)]
        good = [each for each in cells if "problem" not in each]
        if not good:
            print(f"{cells[0]['problem']}")
            continue
        means = {key: fmean(each[key] for each in good) for key in good[0] if key != "curve"}
        shown = ", ".join(f"{key} {mean:.3f}" for key, mean in means.items())
        print(f"{name}: {len(good)} of {len(cells)} samples certified, {shown}")
        x = Scale(
            "rows that reach SmolLM2", {each / 4: f"{each * 25} %" for each in range(5)}, 0, 1
        )
        y = Scale("agreement", {each / 10: f"{each * 10} %" for each in range(7, 11)}, 0.7, 1)
        panels.append(Panel(name, x, y))
        curve = np.mean([each["curve"] for each in good], axis=0)
        panels[-1].line([(a, max(b, 0.7)) for a, b in curve.tolist()], OURS)
    if options.plot and panels:
        options.plot.write_text(picture(panels, "Cost against agreement"), encoding="utf-8")


if __name__ == "__main__":
    main()
