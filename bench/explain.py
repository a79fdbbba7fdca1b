"""Measure explanations by deleting sentences of real reviews, and what they cost.

    python -m bench.explain [--rows 40] [--model smollm2|FILE] [--encoder minilm|FILE]

Each review is asked whether it is positive. The deletion test leaves out the sentence with the
largest effect on the answer, and compares how often the answer changes with the mean over all
sentences, which is what a random one does. Every deleted sentence is asked again without `explain`.
No choice of sentences changes more answers than there are reviews with a sentence that does. The
cost is the CPU time with `explain` over that without, for texts that are new to the KV cache. The
95 % intervals come from the bootstrap over reviews.
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
FEW, N_DRAWN = 6, 2000
OTHER = "This is another text, which is not a review."
"""It is read between two measurements, so that no input is in the KV cache."""


@dataclass(frozen=True)
class Row:
    """The measurements of one review; `random` is the share of its sentences that change it."""

    n_sentences: int
    n_asked: int
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
    passages = explained.passages or ()
    named = max(passages, key=lambda each: each.effect)
    every = cuts(text)
    rests = model.decide_many([each.rest for each in every], QUESTION)
    changes = [each[0].choice != whole.choice for each in rests]
    changed = changes[[each.start for each in every].index(named.start)]
    return Row(len(every), len(passages), changed, fmean(changes), seconds, more)


def interval(rows: Sequence[Row], value: Callable[[Sequence[Row]], float]) -> str:
    """Return a value of rows with its 95 % interval, by the bootstrap over rows."""
    drawn = random.Random(0)
    values = sorted(value(drawn.choices(rows, k=len(rows))) for _ in range(N_DRAWN))
    low, high = (values[round(q * (N_DRAWN - 1))] for q in (0.025, 0.975))
    return f"{value(rows):.1f} ({low:.1f} to {high:.1f})"


def ratio(rows: Sequence[Row]) -> float:
    by_chance = sum(each.random for each in rows)
    return sum(each.named for each in rows) / by_chance if by_chance else 0.0


def cost(rows: Sequence[Row]) -> float:
    return sum(each.explained_seconds for each in rows) / sum(each.seconds for each in rows)


def report(rows: Sequence[Row]) -> str:
    by_chance = sum(each.random for each in rows)
    return (
        f"{len(rows)} reviews, {fmean(each.n_asked for each in rows):.1f} sentences asked: "
        f"{sum(each.named for each in rows)} answers change without the named sentence, "
        f"{by_chance:.1f} without a random one: {interval(rows, ratio)} times as many; "
        f"{interval(rows, cost)} times the CPU time; "
        f"{sum(each.random > 0 for each in rows)} reviews have such a sentence"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.explain")
    add = parser.add_argument
    add("--model", default="smollm2", help="a name of scripts/fetch_real_models.py, or a file")
    add("--encoder", help="a name, or a file, of an encoder that answers, too")
    add("--rows", type=int, default=40, metavar="N", help="how many reviews to read")
    add("--sentences", type=int, nargs=2, default=(4, 14), metavar=("LEAST", "MOST"))
    options = parser.parse_args()
    path, encoder = (
        each if each is None or "." in each else fetch(each)
        for each in (options.model, options.encoder)
    )
    with Model(path, encoder=encoder, n_ctx=4096) as model:
        model.decide(OTHER, QUESTION)
        rows = [measure(model, text) for text in reviews(*options.sentences)[: options.rows]]
    for few in (True, False):
        some = [each for each in rows if (each.n_sentences <= FEW) is few]
        if some:
            print(f"{'at most' if few else 'more than'} {FEW} sentences, {report(some)}")
    print(report(rows))


if __name__ == "__main__":
    main()
