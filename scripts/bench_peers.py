#!/usr/bin/env python3
"""Measure what a choice costs, here and in other libraries, in one run on one machine.

Ours with every strategy, llama.cpp's grammar in both orders, llguidance, xgrammar, and
llama-cpp-python where it is installed: the same models, prompts and choices for all, round by
round, so that a machine that slows down slows them all. Writes JSON and Markdown (and, in a full
run, a plot) into ``bench/results``.

    $ make bench-quick        # under 3 minutes
    $ make bench              # with 3,000 choices; about half an hour
    $ python scripts/bench_peers.py --render bench/results/quick.json --docs docs/performance.md

Needs the ``bench`` extra and a build with the test hooks, which ``make`` takes care of.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from peer_bench.peers import (
    MASK_ENGINES,
    LlamaCppPython,
    Logits,
    Peer,
    VocabularyBytes,
    measure_peer,
)
from peer_bench.report import markdown, plot, put_between_markers
from peer_bench.workload import MODELS, Subject, action_names, prompts

from eliza_ffi.bench import Alternatives, Answer, Method, Workbench
from eliza_ffi.library import Library
from eliza_ffi.model import Model
from eliza_ffi.protocol import StreamConfig

ROOT = Path(__file__).resolve().parent.parent

METHODS = {
    "eliza-ffi auto": Method("strict-trie-ffi", "auto"),
    "eliza-ffi tree": Method("strict-trie-ffi", "tree"),
    "eliza-ffi skip-ahead": Method("strict-trie-ffi", "skip-ahead"),
    "eliza-ffi token-by-token": Method("strict-trie-ffi", "token-by-token"),
    "llama.cpp grammar last": Method("strict-guided", grammar_order="last"),
    "llama.cpp grammar first": Method("strict-guided", grammar_order="first"),
}
OURS = "eliza-ffi auto"
REFERENCE = "eliza-ffi token-by-token"
GRAMMAR = "llama.cpp grammar last"


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    choices : tuple of int
        Numbers of answers.
    n_prompts, repeat : int
        Prompts, and rounds over all of them at most.
    budget : float
        Seconds after which a method gets no more rounds; every one gets a round of one prompt.
    """

    choices: tuple[int, ...]
    n_prompts: int
    repeat: int
    budget: float


QUICK = Effort(choices=(3, 30, 300), n_prompts=3, repeat=15, budget=1.5)
FULL = Effort(choices=(3, 30, 300, 3000), n_prompts=5, repeat=50, budget=10.0)


@dataclass
class Runs:
    """The answers of a method, by prompt."""

    answers: dict[int, list[Answer]] = field(default_factory=dict)
    spent: float = 0.0

    def all(self) -> list[Answer]:
        return [answer for listed in self.answers.values() for answer in listed]


def run_methods(
    bench: Workbench, tokenized: Sequence[Sequence[int]], effort: Effort
) -> dict[str, Runs]:
    """Run every method on every prompt, round by round, while its budget lasts."""
    runs = {name: Runs() for name in METHODS}
    bench.answer(tokenized[0], METHODS[REFERENCE])  # the first pass of a model is its slowest
    for _ in range(effort.repeat):
        for i, prompt in enumerate(tokenized):
            # Brings the prompt into a slot for all of them.
            bench.answer(prompt, METHODS[OURS])
            for name, method in METHODS.items():
                if runs[name].spent > effort.budget:
                    continue
                begin = time.perf_counter()
                runs[name].answers.setdefault(i, []).append(bench.answer(prompt, method))
                runs[name].spent += time.perf_counter() - begin
    return runs


def summary_of(runs: Runs, reference: Runs) -> dict[str, Any]:
    """Return the figures of a method; what they are is said in docs/performance.md."""
    answers = runs.all()
    stats = [answer.stats for answer in answers]
    milliseconds = [answer.seconds * 1e3 for answer in answers]
    decisions = sum(each.decisions + each.tokens_sampled for each in stats)
    shared = [i for i in runs.answers if i in reference.answers]
    agreed = [runs.answers[i][0].text == reference.answers[i][0].text for i in shared]
    return {
        "choice_ms": float(np.median(milliseconds)),
        "choice_ms_p99": float(np.percentile(milliseconds, 99)),
        "tokens": float(np.mean([len(answer.tokens) for answer in answers])),
        "ms_per_token": float(np.median([a.seconds * 1e3 / len(a.tokens) for a in answers])),
        "passes": float(np.mean([each.passes_after_prompt for each in stats])),
        "select_us": sum(each.select_us for each in stats) / max(decisions, 1),
        "prompt_ms": float(np.median([answer.prompt_seconds * 1e3 for answer in answers])),
        "agreement": float(np.mean(agreed)),
        "samples": len(answers),
    }


def open_ms(bench: Workbench, grammar: str | None) -> float:
    """Return the median time of opening and closing a stream, which parses the grammar."""
    binding, config = bench.model.binding, StreamConfig(gbnf_grammar=grammar)
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        binding.close(binding.open(bench.model.runner.ctx, config))
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e3


def strategies_agree(runs: dict[str, Runs]) -> bool:
    """Return whether all strategies chose the same tokens in every round.

    From round to round near ties may turn: a prompt's KV cache depends in its last digits on how it
    was decoded.
    """
    tries = [runs[name] for name, method in METHODS.items() if method.mode == "strict-trie-ffi"]
    return all(
        len({answer.tokens for answer in same_round}) == 1
        for i in runs[REFERENCE].answers
        for same_round in zip(*(each.answers.get(i, []) for each in tries), strict=False)
    )


def measure_cell(
    subject: Subject, n_choices: int, effort: Effort, peers: Sequence[Peer], logits: Logits
) -> dict[str, Any]:
    """Measure everything for one model and one number of choices."""
    names = action_names(n_choices)
    with Model(subject.path()) as model:
        bench = Workbench(model, Alternatives.of_texts(model, names))
        tokenized = [
            model.tokenize(text, add_special=True, parse_special=True)
            for text in prompts(names, effort.n_prompts)
        ]
        runs = run_methods(bench, tokenized, effort)
        methods = {name: summary_of(each, runs[GRAMMAR]) for name, each in runs.items()}
        cold = bench.set_trie_microseconds(tokenized[0], cached=False)
        grammar_ms = open_ms(bench, bench.alternatives.grammar) - open_ms(bench, None)
        for name, method in METHODS.items():
            figures = methods[name]
            is_trie = method.mode == "strict-trie-ffi"
            figures["setup_ms"] = cold / 1e3 if is_trie else grammar_ms
        one_token = [answer.stats for answer in runs[REFERENCE].all()]
        cell: dict[str, Any] = {
            "model": subject.name,
            "n_vocab": bench.n_vocab,
            "choices": n_choices,
            "prompt_tokens": float(np.mean([len(tokens) for tokens in tokenized])),
            "pass_ms": float(np.median([s.decode_us / s.forward_passes for s in one_token])) / 1e3,
            "set_token_trie_us_cold": cold,
            "set_token_trie_us_cached": bench.set_trie_microseconds(tokenized[0], cached=True),
            "strategies_agree": strategies_agree(runs),
            "methods": methods,
            "problems": {},
        }
        add_mask_engines(cell, bench, tokenized, runs[REFERENCE], effort, peers, logits)
        add_llama_cpp_python(cell, bench, tokenized, runs[GRAMMAR], effort, peers)
    return cell


def add_mask_engines(
    cell: dict[str, Any],
    bench: Workbench,
    tokenized: Sequence[Sequence[int]],
    ours: Runs,
    effort: Effort,
    peers: Sequence[Peer],
    logits: Logits,
) -> None:
    """Drive every mask engine there is along our answers."""
    present = [peer.name for peer in peers if peer.version and peer.name in MASK_ENGINES]
    if not present:
        return
    model = bench.model
    walks = []
    for i, prompt in enumerate(tokenized):
        if i in ours.answers:
            tokens = ours.answers[i][0].tokens
            before = [[*prompt, *tokens[:n]] for n in range(len(tokens))]
            rows = [logits.after(model.path, given, bench.n_vocab) for given in before]
            walks.append((tokens, rows))
    vocabulary = VocabularyBytes(model)
    for name in present:
        try:
            engine = MASK_ENGINES[name](vocabulary, bench.alternatives.texts)
            cost = measure_peer(engine, walks, effort.repeat)
        except Exception as error:  # whatever a peer does must not end the run
            cell["problems"][name] = f"{type(error).__name__}: {error}"
            continue
        passes = cost.steps - 1.0
        choice_ms = cost.choice_select_ms + passes * cell["pass_ms"]
        cell["methods"][name] = {
            **asdict(cost),
            "choice_ms": choice_ms,
            "tokens": cost.steps,
            "ms_per_token": choice_ms / cost.steps,
            "passes": passes,
            "select_us": cost.step_us,
            "setup_ms": cost.compile_ms,
            "agreement": cost.same_decisions,
            "samples": effort.repeat * len(walks),
        }


def add_llama_cpp_python(
    cell: dict[str, Any],
    bench: Workbench,
    tokenized: Sequence[Sequence[int]],
    grammar: Runs,
    effort: Effort,
    peers: Sequence[Peer],
) -> None:
    """Run llama-cpp-python's own loop, if it is installed."""
    if not any(peer.name == "llama-cpp-python" and peer.version for peer in peers):
        return
    try:
        longest = max(len(tokens) for tokens in tokenized)
        other = LlamaCppPython(bench.model.path, bench.alternatives.texts, longest + 256)
        samples: list[tuple[int, float]] = []
        agreed = []
        begin = time.perf_counter()
        for i, prompt in enumerate(tokenized):
            other.choose(prompt, lambda text: True)  # one token: the prompt is in the cache now
            for _ in range(effort.repeat):
                if samples and time.perf_counter() - begin > effort.budget:
                    break
                text, count, seconds = other.choose(prompt, bench.alternatives.ends_at)
                samples.append((count, seconds * 1e3))
                if i in grammar.answers:
                    agreed.append(text == grammar.answers[i][0].text)
    except Exception as error:  # as above
        cell["problems"]["llama-cpp-python"] = f"{type(error).__name__}: {error}"
        return
    counts = [count for count, _ in samples]
    cell["methods"]["llama-cpp-python"] = {
        "choice_ms": float(np.median([each for _, each in samples])),
        "tokens": float(np.mean(counts)),
        "ms_per_token": float(np.median([each / count for count, each in samples])),
        "passes": float(np.mean(counts)),
        "agreement": float(np.mean(agreed)) if agreed else None,
        "samples": len(samples),
    }


def cpu_seconds() -> tuple[float, float] | None:
    """Return the busy seconds of all cores and of this process, None where nothing tells."""
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    user, nice, system, _idle, _wait, *rest = file.read_text().splitlines()[0].split()[1:]
    ticks = sum(map(int, (user, nice, system, *rest[:3])))
    own = time.process_time()
    return ticks / os.sysconf("SC_CLK_TCK"), own


def machine_facts() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    affinity = getattr(os, "sched_getaffinity", None)
    with Model() as model:
        facts = model.describe()
    return {
        "cpu": cpu,
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "eliza_ffi": facts["library_version"],
        "llama_cpp": facts["llama_cpp"]["commit"],
        "threads": facts["threads"],
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def run(effort: Effort, only: Sequence[str]) -> dict[str, Any]:
    """Measure all cells and return the results."""
    library = Library().path
    hooks = library.with_name(library.name.replace("libelizainference", "libeliza_test_hooks"))
    if not hooks.is_file():
        raise SystemExit(f"{hooks} is missing: run 'make bench' or build with the tests")
    logits = Logits(hooks)
    peers = [
        Peer.find("llguidance"),
        Peer.find("xgrammar"),
        Peer.find("llama-cpp-python", "llama_cpp"),
    ]
    begin = time.perf_counter()
    cells = []
    for subject in MODELS:
        for n_choices in effort.choices:
            if only and subject.name not in only:
                continue
            cell_begin, busy_before = time.perf_counter(), cpu_seconds()
            cell = measure_cell(subject, n_choices, effort, peers, logits)
            took, busy = time.perf_counter() - cell_begin, cpu_seconds()
            if busy and busy_before:
                others = (busy[0] - busy_before[0]) - (busy[1] - busy_before[1])
                cell["other_programs"] = max(others / took, 0.0)
            cells.append(cell)
            print(f"{subject.name}, {n_choices} choices: {took:.1f} s", file=sys.stderr)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in peers],
        "effort": asdict(effort),
        "seconds": time.perf_counter() - begin,
        "cells": cells,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure a choice here and in other libraries.")
    parser.add_argument("--quick", action="store_true", help="under 3 minutes, no plot")
    parser.add_argument("--only", action="append", default=[], metavar="MODEL", help="repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="DIR")
    parser.add_argument("--render", type=Path, metavar="JSON", help="measure nothing, show these")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the tables between markers")
    options = parser.parse_args(arguments)
    if options.render:
        results = json.loads(options.render.read_text(encoding="utf-8"))
        target = options.render
    else:
        results = run(QUICK if options.quick else FULL, options.only)
        options.out.mkdir(parents=True, exist_ok=True)
        target = options.out / ("quick.json" if options.quick else "full.json")
        target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    table = markdown(results)
    target.with_suffix(".md").write_text(table, encoding="utf-8")
    if not options.quick and not options.render:
        plot(results, target.with_suffix(".png"))
    if options.docs:
        put_between_markers(options.docs, table)
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
