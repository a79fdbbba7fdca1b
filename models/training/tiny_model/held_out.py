"""Held-out examples to measure a model with: new actions, clauses, combinations and words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from .aspects import Split
from .catalogue import Length
from .corpus import Example, Generator

KINDS = ("predicate", "choice", "score")


def held_out_splits(seed: int, count: int) -> dict[str, list[Example]]:
    """Write the splits, with `count` examples each.

    Examples of known parts are new combinations of these parts. Lists with only one action are
    skipped, because they leave no choice.
    """
    known, new = Generator(), Generator(held_out=True)
    rng = random.Random(seed)

    def several(write: Callable[[], Example]) -> list[Example]:
        examples: list[Example] = []
        while len(examples) < count:
            example = write()
            if len(example.choices) > 1:
                examples.append(example)
        return examples

    long = Length.LONG_HELD_OUT
    splits = {
        "planner, known actions": several(lambda: known.planner(rng)),
        "planner, held-out actions": several(lambda: new.planner(rng)),
        "planner, known actions, new long descriptions": several(lambda: known.planner(rng, long)),
        "planner, held-out actions, new long descriptions": several(lambda: new.planner(rng, long)),
        "should respond": several(lambda: known.decision(rng)),
        "questions, held-out actions": several(lambda: new.action_question(rng)),
    }
    for split in Split:
        title = {
            Split.TRAINING: "known combinations",
            Split.COMBINATIONS: "new combinations",
            Split.INSTRUCTIONS: "new instructions",
            Split.NAMES: "new option names",
            Split.MESSAGES: "new messages",
        }[split]
        write = _writer(known, rng, split)
        splits[f"questions, {title}"] = several(write)
    return splits


def report(results: Mapping[str, Sequence[tuple[Example, bool]]]) -> Iterator[str]:
    """Yield the accuracy of each split as text, then of new questions by kind."""
    for name, answered in results.items():
        yield _share(name, answered)
    new = [
        each
        for name, answered in results.items()
        if name.startswith("questions, new")
        for each in answered
    ]
    for kind in KINDS if new else ():
        yield _share(f"new questions, {kind}", [each for each in new if each[0].kind == kind])
    if new:
        yield _share("new questions, all", new)


def _share(name: str, answered: Sequence[tuple[Example, bool]]) -> str:
    right = sum(is_right for _, is_right in answered)
    return f"{name}: {right} of {len(answered)}, {100 * right / max(1, len(answered)):.1f} %"


def _writer(generator: Generator, rng: random.Random, split: Split) -> Callable[[], Example]:
    return lambda: generator.question(rng, split)
