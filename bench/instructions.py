"""Count the processor instructions of one decision among 30 tokens in the native library.

Linux on x86-64 only. If the library's symbols were stripped, only the total is counted.

    $ python -m bench.instructions
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table

from eliza_ffi.library.cffi_values import CffiStream
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import TRIE_ARGMAX, StreamConfig, StreamStats
from eliza_ffi.model import Model

from .model import Alternatives
from .parts.machine import machine_facts, machine_line
from .parts.pages import bench_parser, publish, stored_or_measured
from .parts.single_steps import Place, address_of, is_supported, steps_of
from .parts.workload import MODELS, NOUNS, VERBS

CANDIDATES = 30
PULL = "eliza_inference_llm_stream_next"
PARTS = {
    PULL: "the whole pull",
    "eliza::Choice::next": "the decision, from the place in the trie to the token",
    "eliza::OutputHead::logits": "part of the decision: logits, 30 rows of the output matrix",
    "eliza::TokenSelector::select_in_span": "part of the decision: argmax and probability",
}


def inclusive_counts(steps: Sequence[Place], functions: dict[int, str]) -> dict[str, int]:
    """Return the instructions of each of `PARTS` that was called, including its callees."""
    counts = {PULL: len(steps)}
    for place, (instruction, stack) in enumerate(steps):
        name = functions.get(instruction)
        if name in PARTS and name not in counts:
            ends = (i for i in range(place, len(steps)) if steps[i][1] > stack)
            counts[name] = next(ends, len(steps)) - place
    return counts


def functions_of(library: Path) -> dict[int, str]:
    """Return the names of a loaded library's functions by address, without parameter lists."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = next(int(line.partition("-")[0], 16) for line in maps if line.endswith(str(library)))
    command = ["nm", "--demangle", "--defined-only", str(library)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    symbols = (line.split(" ", 2) for line in listed.splitlines())
    return {
        base + int(address, 16): name.partition("(")[0]
        for address, kind, name in symbols
        if kind in "tT"
    }


def count(path: Path) -> dict[str, Any]:
    """Count the instructions of a decision among names with different first tokens."""

    def prepare() -> Callable[[], object]:
        # The forked copy opens its own model, because a fork does not copy threads.
        model = Model(path, n_slots=1, n_threads=1)
        decide(model)  # loads and allocates everything that only the first decision needs
        stream = undecided(model)
        return lambda: model.binding.next(stream)

    with Model(path, n_slots=1, n_threads=1) as model:
        stats = decide(model)
        if (stats.decisions, stats.candidates_seen) != (1, CANDIDATES):
            raise RuntimeError(f"expected one decision among {CANDIDATES} tokens, got {stats}")
        pull = address_of(getattr(model.binding.library.lib, PULL))
        steps = list(steps_of(prepare, pull))
        functions = functions_of(Library().path.resolve())
        n_vocab = int(model.describe()["model"]["n_vocab"])
    return {"n_vocab": n_vocab, "parts": inclusive_counts(steps, functions)}


def undecided(model: Model) -> CffiStream:
    """Return a stream whose next token has `CANDIDATES` candidates and needs no forward pass."""
    by_token: dict[int, str] = {}
    for name in (f"{verb}_{noun}" for verb in VERBS for noun in NOUNS):
        by_token.setdefault(model.tokenize(name)[0], name)
    payload = Alternatives.of_texts(model, list(by_token.values())[:CANDIDATES]).json
    binding = model.binding
    stream = binding.open(model.session.ctx, StreamConfig())
    binding.prefill(stream, model.tokenize("The best tool is ", add_special=True))
    binding.set_token_trie(stream, payload, TRIE_ARGMAX)
    return stream


def decide(model: Model) -> StreamStats:
    """Make the decision once and return the stats of its stream."""
    stream = undecided(model)
    model.binding.next(stream)
    stats = model.binding.stats(stream)
    model.binding.close(stream)
    return stats


def markdown(results: dict[str, Any]) -> str:
    """Return the table."""
    counted = results["counted"]
    rows = [
        [label, *(f"{each['parts'][name]:,}" if name in each["parts"] else "-" for each in counted)]
        for name, label in PARTS.items()
    ]
    head = [f"instructions, {CANDIDATES} candidates"]
    head += [f"{each['name']}, vocabulary {each['n_vocab']:,}" for each in counted]
    return f"{machine_line(results['machine'])}\n\n{markdown_table(head, rows)}\n"


def run() -> dict[str, Any]:
    """Count with a small and with a large vocabulary."""
    subjects = [each for each in MODELS if each.name in ("trained 2k", "random 262k")]
    counted = [{"name": each.name, **count(each.path())} for each in subjects]
    return {"machine": machine_facts(), "counted": counted}


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("Count the processor instructions of a decision.").parse_args(arguments)
    if not is_supported():
        print("bench.instructions: requires Linux on x86-64", file=sys.stderr)
        return 1
    results = stored_or_measured(options, "instructions", run)
    return publish("instructions", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
