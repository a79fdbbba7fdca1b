"""Measure how long it takes to find the most probable of 100 to 100,000 labels.

The same model ranks the labels (`rank`), returns the most probable one (`choose`), returns the
greedy one, and scores all labels. llguidance's masks also lead to the greedy label. All take turns.
With one compute thread, the processor time is close to the time on an idle machine, even if other
programs run.

    $ python -m bench.ranking                                # a quarter of an hour
    $ python -m bench.ranking --only 'SmolLM2 135M' --merge  # measure one model again
    $ python -m bench.ranking --render                       # measure nothing
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.choices import PreparedLabels
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model

from .parts import pages
from .parts.figures import in_turns, mean, median, quartiles, ratios
from .parts.machine import machine_facts, machine_line, noting_other_programs
from .parts.workload import EMBEDDED, SMOLLM2, Subject, wide

TOP = 5
SEPARATOR = " > "

RANK = "rank, top 5"
CHOOSE = "choose"
GREEDY = "greedy"
ALL = "all scores"
LLGUIDANCE = "greedy, llguidance"
WAYS = (RANK, CHOOSE, GREEDY, ALL, LLGUIDANCE)
"""The ways: the five best labels, the best one, the greedy one, all probabilities, and the greedy
label with the token masks of llguidance."""

MAX_TOKENS = 64
MIN_ROUNDS, SECONDS = 3, 30.0
"""The fewest rounds, and the time after which no other round begins."""

N_CTX = 2048

INPUTS = (
    "a warm blanket for cold evenings",
    "something to keep my tea hot at the office",
    "a birthday present for a child who likes horses",
    "new tyres, because the old ones are worn",
    "I need shoes for walking in the rain",
    "the lamp in the kitchen is broken",
    "a book about the history of the sea",
    "my knee hurts when I climb stairs",
)

# fmt: off
ADJECTIVES = (
    "small", "blue", "heavy", "soft", "modern", "round", "dark", "light", "green", "old", "quiet",
    "strong", "white", "red", "large", "wild", "fresh", "young", "yellow", "silver", "long", "warm",
    "narrow", "black", "simple", "deep", "short", "rough", "smooth", "bright", "brown", "cold",
    "wide", "thin", "thick", "dry", "sharp", "clean", "plain", "solid", "sweet", "grey", "golden",
    "open", "broad", "loud", "fine",
)
MATERIALS = (
    "wood", "glass", "wool", "paper", "metal", "leather", "stone", "plastic", "cotton", "iron",
    "steel", "clay", "silk", "straw", "copper", "linen", "rubber", "brass", "marble", "felt", "oak",
    "pine", "cork", "denim", "velvet", "bamboo", "ceramic", "chrome", "concrete", "crystal", "foam",
    "granite", "jute", "lace", "maple", "mesh", "nylon", "pearl", "slate", "suede", "teak", "tin",
    "vinyl", "walnut", "wax", "wicker", "zinc",
)
THINGS = (
    "chair", "table", "lamp", "clock", "door", "window", "basket", "blanket", "bottle", "bowl",
    "box", "brush", "bucket", "candle", "carpet", "coat", "cup", "curtain", "desk", "drawer", "fan",
    "fence", "fork", "frame", "hammer", "hat", "jacket", "jar", "kettle", "knife", "ladder", "lock",
    "mat", "mirror", "mug", "pan", "pillow", "plate", "pot", "shelf", "shoe", "sofa", "spoon",
    "stool", "towel", "tray", "vase",
)
# fmt: on


def product_names(n: int) -> list[str]:
    """Return `n` names such as ``small wood chair``; each part has the cube root of `n` words."""
    n_words = next(i for i in itertools.count(1) if i**3 >= n)
    parts = (words[:n_words] for words in (ADJECTIVES, MATERIALS, THINGS))
    return [" ".join(words) for words in itertools.islice(itertools.product(*parts), n)]


def codes(n: int) -> list[str]:
    """Return `n` codes such as ``A01.1``, up to 26,000: a letter, two digits and one more."""
    letters = (chr(ord("A") + i) for i in range(26))
    drawn = itertools.product(letters, range(100), range(10))
    return [f"{letter}{two:02}.{one}" for letter, two, one in itertools.islice(drawn, n)]


def paths(n: int) -> list[str]:
    """Return `n` labels such as ``blue > wood > chair > small``, with four levels."""
    n_words = next(i for i in itertools.count(1) if i**4 >= n)
    parts = (words[:n_words] for words in (ADJECTIVES[::-1], MATERIALS, THINGS, ADJECTIVES))
    return [SEPARATOR.join(words) for words in itertools.islice(itertools.product(*parts), n)]


@dataclass(frozen=True)
class MultiLabel:
    """A set of labels, and the text before them."""

    kind: str  # names, codes or paths
    n: int
    make: Callable[[int], list[str]]  # returns `n` labels
    question: str  # the text between an input and the label

    @property
    def name(self) -> str:
        return f"{self.n:,} {self.kind}"


NAMES = tuple(
    MultiLabel("names", n, product_names, "\nProduct: ") for n in (100, 1000, 8000, 30_000, 100_000)
)
SETS = (
    *NAMES,
    MultiLabel("codes", 20_000, codes, "\nICD code: "),
    MultiLabel("paths", 10_000, paths, "\nCategory: "),
)


@dataclass(frozen=True)
class RankSubject:
    """A model, the labels that it ranks, and how long to measure."""

    model: Subject
    sets: tuple[MultiLabel, ...]
    rounds: int  # The most rounds. Each has another input, as long as there are some.


# All tokens are equally probable to an indifferent model: the worst case of a search.
INDIFFERENT = wide("wide, indifferent", "llama-spm", logit_std=0.0)
SUBJECTS = (
    RankSubject(EMBEDDED, SETS, 16),
    RankSubject(SMOLLM2, NAMES, 8),
    RankSubject(INDIFFERENT, NAMES[:3], 5),
)


@dataclass(frozen=True)
class Found:
    """What a way has found after one prompt."""

    label: str  # the first label
    forward_passes: int  # forward passes after the prompt
    # The label's probability among all labels, if the way computes it.
    probability: float | None = None


Way = Callable[[str], Found]


def ways_of(model: Model, labels: PreparedLabels[str]) -> dict[str, Way]:
    """Return the ways to find labels after a prompt, by name."""

    def rank(prompt: str) -> Found:
        ranked = model.rank(prompt, labels, TOP)
        return Found(ranked.labels[0], ranked.forward_passes, ranked.probabilities[0])

    def choose(prompt: str) -> Found:
        best = model.choose(prompt, labels)
        return Found(best.value, best.forward_passes)

    def greedy(prompt: str) -> Found:
        walked = model.choose(prompt, labels, mode="greedy")
        return Found(walked.value, walked.forward_passes)

    def score_all(prompt: str) -> Found:
        scored = model.choose(prompt, labels, mode="greedy", probabilities=True)
        assert scored.probabilities is not None
        label, probability = max(scored.probabilities.items(), key=lambda item: item[1])
        return Found(label, scored.forward_passes, probability)

    ways: dict[str, Way] = {RANK: rank, CHOOSE: choose, GREEDY: greedy, ALL: score_all}
    try:
        masks = model.session.guidance().regex("|".join(map(re.escape, labels.texts)))
    except InvalidArgumentError:  # the pattern is too long
        return ways

    def guided(prompt: str) -> Found:
        written = model.generate(prompt, MAX_TOKENS, schema=masks)
        assert written.stats is not None
        return Found(written.text, written.stats.passes_after_prompt)

    return {**ways, LLGUIDANCE: guided}


def measure_set(model: Model, labels: MultiLabel, rounds: int) -> dict[str, Any]:
    """Run all ways in turns and return the figures."""
    texts = labels.make(labels.n)
    begin = time.process_time()
    prepared = model.prepare_labels(texts)
    prepare_ms = 1e3 * (time.process_time() - begin)
    ways = ways_of(model, prepared)
    ms: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[Found]] = {name: [] for name in ways}
    for way in ways.values():
        way(f"{INPUTS[-1]}{labels.question}")  # warms up, and measures the cost of passes
    start = time.perf_counter()
    for n_done, names in enumerate(in_turns(ways, rounds)):
        if n_done >= MIN_ROUNDS and time.perf_counter() - start > SECONDS:
            break
        prompt = f"Message: {INPUTS[n_done % len(INPUTS)]}{labels.question}"
        model.rank(prompt, prepared, max_passes=0)  # brings the prompt into the cache
        for name in names:
            begin = time.process_time()
            found[name].append(ways[name](prompt))
            ms[name].append(1e3 * (time.process_time() - begin))
    best = [each.label for each in found[RANK]]
    greedy = [each.label for each in found[GREEDY]]
    return {
        "rounds": len(best),
        "prepare_ms": prepare_ms,
        "ways": {
            name: {"ms": median(ms[name]), "passes": median([each.forward_passes for each in runs])}
            for name, runs in found.items()
        },
        "all_over_rank": [*quartiles(ratios(ms[ALL], ms[RANK]))],
        "greedy_is_best": mean([a == b for a, b in zip(best, greedy, strict=True)]),
    }


def measure(subject: RankSubject) -> list[dict[str, Any]]:
    """Measure all label sets of a model and return one cell for each."""
    cells = []
    with Model(subject.model.path(), n_ctx=N_CTX, n_threads=1) as model:
        for labels in subject.sets:
            cell: dict[str, Any] = {"model": subject.model.name, "labels": labels.name}
            cell |= {"kind": labels.kind, "n": labels.n}
            with noting_other_programs(cell, f"{subject.model.name}, {labels.name}"):
                cell |= measure_set(model, labels, subject.rounds)
            cells.append(cell)
    return cells


def run(subjects: Sequence[RankSubject]) -> dict[str, Any]:
    """Measure some models and return the results."""
    return {
        "machine": machine_facts(),
        "cells": [cell for subject in subjects for cell in measure(subject)],
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table, without the names that the embedded model ranks."""
    rows = [
        [
            f"{cell['model']}, {cell['labels']}",
            number(cell["prepare_ms"]),
            *pages.by_method(cell["ways"], WAYS, lambda way: number(way["ms"])),
            pages.spread(cell["all_over_rank"], number),
            f"{cell['ways'][RANK]['passes']:g}",
        ]
        for cell in results["cells"]
        if (cell["model"], cell["kind"]) != (EMBEDDED.name, "names")
    ]
    head = ["model, labels", "prepare once", *WAYS, "all scores / rank", "passes of rank"]
    return pages.page_of(
        machine_line(results["machine"]),
        "Milliseconds of processor time after the prompt. Medians of the rounds (quartiles)",
        markdown_table(head, rows),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.bench_parser("Find the most probable labels of many.", merge=True)
    names = [subject.model.name for subject in SUBJECTS]
    pages.add_filter(parser, "--only", "this model", choices=names)
    options = parser.parse_args(arguments)
    wanted = [each for each in SUBJECTS if each.model.name in (options.only or names)]
    results = pages.stored_or_measured(
        options, "ranking", lambda: run(wanted), key=("model", "labels")
    )
    return pages.publish("ranking", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
