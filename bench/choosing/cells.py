"""Measure one cell of the tables: a model, labels and prompts, with every library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eliza_ffi.model import Model

from ..methods import METHODS, workbench_settings
from ..model import Alternatives, Workbench
from ..parts.figures import attempt, median
from ..parts.hooks import find_hooks
from ..parts.machine import noting_other_programs
from ..parts.workload import Subject
from .other_libraries import (
    Logits,
    Peer,
    measure_peer,
)
from .rounds import (
    REFERENCE,
    ChoiceEffort,
    Runs,
    open_ms,
    run_methods,
    summary_of,
)

WALKED_PROMPTS = 2
"""The number of prompts for the mask libraries. A wide model takes minutes to compute the logits of
more prompts."""


@dataclass(frozen=True)
class Workload:
    """A model, and the choices that it makes.

    Attributes
    ----------
    texts : sequence of str
        The labels.
    prompts : sequence of str
        Each ends where the label begins.
    n_threads : int
        Compute threads; 0 = the library's default.
    """

    subject: Subject
    texts: Sequence[str]
    prompts: Sequence[str]
    n_threads: int = 0


@dataclass(frozen=True)
class Others:
    """The other libraries, and the logits that their masks are applied to."""

    peers: tuple[Peer, ...]
    logits: Logits

    @classmethod
    def find(cls) -> Others:
        """Find the installed libraries.

        Raises
        ------
        SystemExit
            If the library of test hooks has not been built.
        """
        peers = tuple(each.needs() for each in METHODS.values() if each.picks and each.needs)
        return cls(peers, Logits(find_hooks()))

    def has(self, name: str) -> bool:
        return any(peer.name == name and peer.version for peer in self.peers)


def measure_cell(workload: Workload, effort: ChoiceEffort, others: Others) -> dict[str, Any]:
    """Measure one workload with every method and return the figures of the cell."""
    cell: dict[str, Any] = {"problems": {}}
    with (
        noting_other_programs(cell),
        Model(workload.subject.path(), n_threads=workload.n_threads) as model,
    ):
        bench = Workbench(model, Alternatives.of_texts(model, workload.texts))
        tokenized = [
            model.tokenize(text, add_special=True, parse_special=True) for text in workload.prompts
        ]
        runs = run_methods(bench, tokenized, effort)
        cell |= _our_figures(bench, tokenized, runs)
        _add_mask_engines(cell, bench, tokenized, runs[REFERENCE], effort, others)
    return cell


def _our_figures(
    bench: Workbench, tokenized: Sequence[Sequence[int]], runs: Mapping[str, Runs]
) -> dict[str, Any]:
    figures = {name: summary_of(each) for name, each in runs.items()}
    cold = bench.set_trie_microseconds(tokenized[0], cached=False)
    grammar_ms = open_ms(bench, bench.alternatives.grammar) - open_ms(bench, None)
    for name, each in figures.items():
        is_trie = workbench_settings(name).method.has_trie
        each["setup_ms"] = cold / 1e3 if is_trie else grammar_ms
    one_token = [answer.stats for answer in runs[REFERENCE].all()]
    return {
        "n_vocab": bench.n_vocab,
        "choices": len(bench.alternatives.texts),
        "pass_ms": median([s.decode_us / s.forward_passes for s in one_token]) / 1e3,
        "set_token_trie_us_cached": bench.set_trie_microseconds(tokenized[0], cached=True),
        "methods": figures,
    }


def _add_mask_engines(
    cell: dict[str, Any],
    bench: Workbench,
    tokenized: Sequence[Sequence[int]],
    ours: Runs,
    effort: ChoiceEffort,
    others: Others,
) -> None:
    """Run every available mask library along the tokens of eliza-ffi's labels."""
    present = {
        name: each.picks for name, each in METHODS.items() if each.picks and others.has(name)
    }
    if not present:
        return
    model = bench.model
    walks = []
    for i, prompt in enumerate(tokenized[:WALKED_PROMPTS]):
        if i in ours.answers:
            tokens = ours.answers[i][0].tokens
            before = [[*prompt, *tokens[:n]] for n in range(len(tokens))]
            rows = [others.logits.after(model.path, given, bench.n_vocab) for given in before]
            walks.append((tokens, rows))
    vocabulary = model.token_texts()
    for name, make in present.items():
        engine = attempt(cell["problems"], name, make, vocabulary, bench.alternatives.texts)
        cost = attempt(cell["problems"], name, measure_peer, engine, walks, effort.repeat)
        if cost is None:
            continue
        passes = cost.steps - 1.0
        choice_ms = cost.choice_select_ms + passes * cell["pass_ms"]
        cell["methods"][name] = {
            "choice_ms": choice_ms,
            "tokens": cost.steps,
            "ms_per_token": choice_ms / cost.steps,
            "passes": passes,
            "setup_ms": cost.compile_ms,
            "samples": effort.repeat * len(walks),
        }
