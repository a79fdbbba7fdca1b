"""Measure a choice on one backend: milliseconds, passes and copied bytes.

    $ python -m bench.backend cuda
    $ python -m bench.backend cpu --quick

The library in ``build/BACKEND`` is used, with all layers on the backend's device. The model chooses
among thirty names with the restricted head off and on, and with llama.cpp's own grammar. It also
decodes the same number of tokens without any constraint. All methods take turns, so a slow moment
of the machine affects them all. The models have random weights and real vocabularies, because the
time depends on shapes, not on what a model has learned.

Exit codes: 0 = measured; 2 = not measured, because there is no library or it put no layers on a
device.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_suite.cases import ANSWERS, PROMPTS, SHAPE, VOCABULARIES
from backend_suite.comparing import Subject
from check_backend import BUILD, ON_CPU
from fetch_llama_cpp import FetchError
from make_test_models import cached_model
from page_tables import markdown_table, number

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import LIBRARY_VARIABLE, library_file_name
from eliza_ffi.library.protocol import StreamConfig

from .choosing.cells import ChoiceEffort
from .model import Alternatives, TimedChoice, Workbench
from .parts.figures import mean, median
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.modes import STRICT_GUIDED, TRIE, UNGUIDED, Method
from .parts.pages import bench_parser, publish, stored_or_measured

NAMES = ANSWERS["90 alike"][::3]
"""Thirty names with a common beginning. Names with different first tokens would need no pass."""
EFFORT = ChoiceEffort(repeat=50, budget=5.0)
QUICK_EFFORT = ChoiceEffort(repeat=15, budget=1.0)
# The default strategy, "auto", chooses between two strategies by the cost of a pass. Here the
# strategy is fixed, because otherwise the rows of different machines would not compare. The
# strategy "tree" runs one pass for all possible next decisions. The
# grammar has llama.cpp's own order: it masks the whole vocabulary before each token is sampled.
SKIP_AHEAD = "eliza-ffi skip-ahead"
NO_CONSTRAINT = "no constraint"
WAYS = {
    SKIP_AHEAD: (Method(TRIE, "skip-ahead"), "off"),
    "eliza-ffi skip-ahead, restricted head": (Method(TRIE, "skip-ahead"), "auto"),
    "eliza-ffi tree, restricted head": (Method(TRIE, "tree"), "auto"),
    "llama.cpp grammar first": (Method(STRICT_GUIDED, grammar_order="first"), "off"),
    NO_CONSTRAINT: (Method(UNGUIDED), "off"),
}
"""How a choice is made, and the value of the option `restricted_head`."""

BASE = SKIP_AHEAD


@dataclass(frozen=True)
class BackendRun:
    """A choice, and the bytes copied for each decision that needed a pass after the prompt."""

    answer: TimedChoice
    decision_bytes: float


def measure(
    subject: Subject,  # the library, and how many layers it puts on devices
    path: Path,  # the model's file
    texts: Sequence[str],  # the labels
    # The rounds over all prompts, and the mean seconds that each method may take.
    effort: ChoiceEffort,
    name: str = "",  # reported on standard error with the time of the measurement, if not empty
) -> dict[str, Any]:
    """Measure all methods on one model.

    A RuntimeError is raised if layers should be on a device, and none are.
    """
    cell: dict[str, Any] = {}
    runs: dict[str, list[list[BackendRun]]] = {name: [[] for _ in PROMPTS] for name in WAYS}
    with ExitStack() as opened, noting_other_programs(cell, name):
        model = opened.enter_context(subject.open(path))
        facts = model.describe()["model"]
        cell |= {"n_vocab": facts["n_vocab"], "placement": facts.get("placement", [])}
        bench = Workbench(model, Alternatives.of_texts(model, texts))
        prompts = [model.tokenize(text, add_special=True) for text in PROMPTS.values()]
        end = float("inf")
        # A method is faster after another one with passes of the same shapes, so the order changes.
        shuffled = random.Random(0)
        for turn in range(effort.repeat + 1):
            if turn > 1 and time.perf_counter() > end:
                break
            for i, prompt in enumerate(prompts):
                for name in WAYS if turn == 0 else shuffled.sample([*WAYS], len(WAYS)):
                    limit = len(runs[BASE][i][0].answer.tokens) if name == NO_CONSTRAINT else 0
                    runs[name][i].append(_run(bench, prompt, *WAYS[name], limit))
            if turn == 0:  # the warm-up builds graphs and brings the prompts into slots
                end = time.perf_counter() + effort.budget * len(WAYS)
    cell["ways"] = {name: _figures([each[1:] for each in runs[name]]) for name in WAYS}
    return cell


def _run(
    bench: Workbench, prompt: Sequence[int], method: Method, restricted_head: str, limit: int
) -> BackendRun:
    binding, ctx = bench.model.binding, bench.model.session.ctx
    binding.set_option(ctx, "restricted_head", restricted_head)
    answer = bench.answer(prompt, method, max_tokens=limit)
    # The prompt's row of logits is copied before the allowed tokens are known, and a decision that
    # reads this row copies nothing. The same prefill again shows how many bytes the row has.
    with closing(binding.open(ctx, StreamConfig())) as stream:
        binding.prefill(stream, prompt)
        prompt_bytes = binding.stats(stream).bytes_copied
    stats = answer.stats
    firsts = {leaf.tokens[0] for leaf in bench.alternatives.payload.leaves()}
    decides_first = not method.has_trie or len(firsts) > 1
    waited = stats.decisions + stats.tokens_sampled - decides_first
    return BackendRun(answer, (stats.bytes_copied - prompt_bytes) / max(waited, 1))


def _figures(by_prompt: Sequence[Sequence[BackendRun]]) -> dict[str, Any]:
    """Return the figures of a method: means over the prompts of the runs in `by_prompt`."""
    answers = [run.answer for runs in by_prompt for run in runs]
    stats = [answer.stats for answer in answers]
    medians = [median([run.answer.seconds for run in runs]) for runs in by_prompt]
    return {
        "choice_ms": mean(medians) * 1e3,
        "passes": mean([each.passes_after_prompt for each in stats]),
        "decisions": mean([each.decisions + each.tokens_sampled for each in stats]),
        "decision_bytes": mean([run.decision_bytes for runs in by_prompt for run in runs]),
        "tokens": mean([len(answer.tokens) for answer in answers]),
        "texts": [runs[0].answer.text for runs in by_prompt],
        "rounds": len(by_prompt[0]),
    }


def run(subject: Subject, models: Mapping[str, Path], effort: ChoiceEffort) -> dict[str, Any]:
    """Measure all models."""
    cells = [
        {"model": name, **measure(subject, path, NAMES, effort, name)}
        for name, path in models.items()
    ]
    return {"machine": machine_facts(), "cells": cells}


def markdown(results: dict[str, Any]) -> str:
    """Return a description of the devices, and the table of the smallest and largest vocabulary."""
    by_size = sorted(results["cells"], key=lambda cell: cell["n_vocab"])
    cells = by_size[:: max(len(by_size) - 1, 1)]
    places = {f"{p['device']} ({p['description']})" for cell in cells for p in cell["placement"]}
    rounds = min(each["rounds"] for cell in cells for each in cell["ways"].values())
    intro = (
        f"Layers on {', '.join(sorted(places)) or 'unknown devices'}."
        f" {machine_line(results['machine'])} The models have random F16 weights,"
        f" {SHAPE['n_layers']} layers and width {SHAPE['n_embd']}, and choose among {len(NAMES)}"
        f" names. Times are medians of at least {rounds} rounds, averaged over {len(PROMPTS)}"
        f" prompts. *Same name*: the prompts for which a method chooses the same name as `{BASE}`."
    )
    head = ["method", "vocabulary", "ms per choice", "passes", "same name"]
    rows = [
        [
            name,
            f"{cell['n_vocab']:,}",
            number(each["choice_ms"]),
            f"{each['passes']:.1f}",
            _agreement(name, each["texts"], cell["ways"][BASE]["texts"]),
        ]
        for cell in cells
        for name, each in cell["ways"].items()
    ]
    noted = disturbance((f"a vocabulary of {cell['n_vocab']:,} tokens", cell) for cell in cells)
    return f"{intro}{noted}\n\n{markdown_table(head, rows)}\n"


def _agreement(name: str, texts: Sequence[str], expected: Sequence[str]) -> str:
    """Return for how many prompts a method chose the same name as `BASE`."""
    if name == NO_CONSTRAINT:
        return "-"
    return f"{sum(map(str.__eq__, texts, expected))} of {len(expected)}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure a choice on one backend.")
    parser.add_argument("backend", help="the folder in build/ that has the library")
    parser.add_argument("--quick", action="store_true", help="one model, fewer rounds")
    options = parser.parse_args(arguments)
    library = BUILD / options.backend / library_file_name()
    subject = Subject(library, 0 if options.backend in ON_CPU else -1)
    sizes = list(VOCABULARIES.items())[: 1 if options.quick else None]
    effort = QUICK_EFFORT if options.quick else EFFORT
    os.environ[LIBRARY_VARIABLE] = str(library)  # so that machine_facts reports its versions
    name = f"backend-{options.backend}"
    try:
        models = {
            f"random {size}": cached_model(vocabulary, tensor_type="f16", **SHAPE)
            for size, vocabulary in sizes
        }
        results = stored_or_measured(options, name, lambda: run(subject, models, effort))
        return publish(name, results, markdown(results), options)
    except (ElizaError, FetchError, OSError, RuntimeError, ValueError) as error:
        print(f"bench.backend: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
