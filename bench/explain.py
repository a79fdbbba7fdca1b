"""Measure explanations by deleting sentences of real reviews, and what they cost.

    python -m bench.explain [--rows 30] [--model smollm2|FILE]

Each review is asked whether it is positive. The deletion test leaves out the sentence with the
largest effect on the answer, and compares how often the answer changes with the mean over all
sentences, which is what a random one does. Every deleted sentence is asked again without `explain`.
The cost is the CPU time with `explain` over that without, for texts that are new to the KV cache.
"""

from __future__ import annotations

import argparse
import html
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fetch_real_models import fetch

from eliza_ffi import Model
from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.passages import cuts

QUESTION = Choice(
    "Is the review positive or negative?",
    {"positive": "the writer liked it", "negative": "the writer did not like it"},
)
OTHER = "This is another text, which is not a review."
"""It is read between two measurements, so that no input is in the KV cache."""


@dataclass(frozen=True)
class Row:
    """The measurements of one review; `random` is the share of its sentences that change it."""

    n_sentences: int
    named: bool
    random: float
    seconds: float
    explained_seconds: float


def reviews(least: int, most: int) -> list[str]:
    """Return the reviews with this many sentences, one on each line, in a fixed random order."""
    by_review: dict[str, list[str]] = defaultdict(list)
    path = fetch("ratings") / "amazonReviewSnippets_GroundTruth.txt"
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        name, _, text = line.split("\t")
        by_review[name.partition("_")[0]].append(html.unescape(text))
    texts = ["\n".join(each) for each in by_review.values()]
    texts = [text for text in texts if least <= len(cuts(text)) <= most]
    random.Random(0).shuffle(texts)
    return texts


def cpu_seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def measure(model: Model, text: str) -> Row:
    model.decide(OTHER, QUESTION)
    whole, seconds = cpu_seconds(lambda: model.decide(text, QUESTION)[0])
    model.decide(OTHER, QUESTION)
    explained, more = cpu_seconds(lambda: model.decide(text, QUESTION, explain=True)[0])
    effects = [each.effect for each in explained.passages or ()]
    rests = model.decide_many([each.rest for each in cuts(text)], QUESTION)
    changes = [each[0].choice != whole.choice for each in rests]
    named = changes[max(range(len(effects)), key=effects.__getitem__)]
    return Row(len(effects), named, fmean(changes), seconds, more)


def report(rows: Sequence[Row]) -> str:
    named, by_chance = sum(each.named for each in rows), sum(each.random for each in rows)
    cost = sum(each.explained_seconds for each in rows) / sum(each.seconds for each in rows)
    ratio = f"{named / by_chance:.1f} times as many" if by_chance else "no ratio"
    return (
        f"{len(rows)} reviews: {named} answers change without the named sentence, "
        f"{by_chance:.1f} without a random one ({ratio}); {cost:.1f} times the CPU time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.explain")
    add = parser.add_argument
    add("--model", default="smollm2", help="a name of scripts/fetch_real_models.py, or a file")
    add("--rows", type=int, default=30, metavar="N", help="how many reviews to read")
    add("--sentences", type=int, nargs=2, default=(4, 6), metavar=("LEAST", "MOST"))
    options = parser.parse_args()
    path = options.model if "." in options.model else fetch(options.model)
    with Model(path, n_ctx=4096) as model:
        model.decide(OTHER, QUESTION)
        rows = [measure(model, text) for text in reviews(*options.sentences)[: options.rows]]
    for n in sorted({each.n_sentences for each in rows}):
        print(f"{n} sentences, {report([each for each in rows if each.n_sentences == n])}")
    print(report(rows))


if __name__ == "__main__":
    main()
