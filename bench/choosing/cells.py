"""Measure one cell of the tables: a model, labels and prompts, with every method, in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

from ..model import Alternatives, TimedChoice, Workbench
from ..parts.figures import attempt, mean, median
from ..parts.machine import noting_other_programs
from ..parts.modes import STRICT_GUIDED, TRIE, Method
from ..parts.workload import Subject
from .other_libraries import (
    LlGuidancePicker,
    Logits,
    MaskPicker,
    Peer,
    XGrammarPicker,
    measure_peer,
)

AUTO = "eliza-ffi auto"
TOKEN_BY_TOKEN = "eliza-ffi token-by-token"
GRAMMAR_LAST = "llama.cpp grammar last"
GRAMMAR_FIRST = "llama.cpp grammar first"
LLGUIDANCE = "llguidance"
XGRAMMAR = "xgrammar"

CHOOSING = {
    AUTO: Method(TRIE),
    TOKEN_BY_TOKEN: Method(TRIE, "token-by-token"),
    GRAMMAR_LAST: Method(STRICT_GUIDED, grammar_order="last"),
    GRAMMAR_FIRST: Method(STRICT_GUIDED, grammar_order="first"),
}
"""The methods that run in every round."""

PICKERS: dict[str, type[MaskPicker]] = {LLGUIDANCE: LlGuidancePicker, XGRAMMAR: XGrammarPicker}
"""The mask libraries, by the names of their packages."""

WALKED_PROMPTS = 2
"""The number of prompts for the mask libraries. A wide model takes minutes to compute the logits of
more prompts."""


@dataclass(frozen=True)
class ChoiceEffort:
    """How long to measure."""

    repeat: int  # the most rounds over all prompts
    # Seconds after which a method gets no more choices. Every method makes at least one choice.
    budget: float


@dataclass
class Runs:
    """The choices of a method, by prompt."""

    answers: dict[int, list[TimedChoice]] = field(default_factory=dict)
    spent: float = 0.0


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
            If the library of test hooks, which is beside our library, has not been built.
        """
        library = Library().path
        hooks = library.with_name(library.name.replace("libelizainference", "libeliza_test_hooks"))
        if not hooks.is_file():
            raise SystemExit(f"{hooks} is missing: run 'make cpu-with-tests'")
        return cls(tuple(map(Peer.find, PICKERS)), Logits(hooks))


def measure_cell(
    subject: Subject,
    texts: Sequence[str],  # the labels
    prompts: Sequence[str],  # each ends where the label begins
    effort: ChoiceEffort,
    others: Others,
) -> dict[str, Any]:
    """Measure the processor time of a model's choices among some labels with every method.

    With one compute thread, this is close to the time on an idle machine.
    """
    cell: dict[str, Any] = {"problems": {}}
    with noting_other_programs(cell), Model(subject.path(), n_threads=1) as model:
        bench = Workbench(model, Alternatives.of_texts(model, texts), time.process_time)
        tokenized = [model.tokenize(text, add_special=True, parse_special=True) for text in prompts]
        runs = _run(bench, tokenized, effort)
        cell |= _our_figures(bench, runs)
        _add_mask_libraries(cell, bench, tokenized, runs[TOKEN_BY_TOKEN], effort, others)
    return cell


def _run(
    bench: Workbench, tokenized: Sequence[Sequence[int]], effort: ChoiceEffort
) -> dict[str, Runs]:
    """Run every method on every prompt, round by round, until its budget is used up."""
    runs = {name: Runs() for name in CHOOSING}
    bench.answer(tokenized[0], CHOOSING[TOKEN_BY_TOKEN])  # the first pass of a model is its slowest
    begin_all = time.perf_counter()
    for turn in range(effort.repeat):
        # The time to bring prompts into slots counts towards no method's budget, but is long with
        # wide models. Therefore the whole run has a budget too.
        if turn > 0 and time.perf_counter() - begin_all > effort.budget * len(CHOOSING):
            break
        for i, prompt in enumerate(tokenized):
            # This untimed choice brings the prompt into a slot for all methods.
            bench.answer(prompt, CHOOSING[AUTO])
            for name, method in CHOOSING.items():
                if runs[name].spent > effort.budget:
                    continue
                begin = time.perf_counter()
                runs[name].answers.setdefault(i, []).append(bench.answer(prompt, method))
                runs[name].spent += time.perf_counter() - begin
    return runs


def _our_figures(bench: Workbench, runs: Mapping[str, Runs]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    answers = {
        name: [one for listed in run.answers.values() for one in listed]
        for name, run in runs.items()
    }
    for name, made in answers.items():
        figures[name] = {
            "choice_ms": median([each.seconds * 1e3 for each in made]),
            "tokens": mean([len(each.tokens) for each in made]),
            "ms_per_token": median([each.seconds * 1e3 / len(each.tokens) for each in made]),
            "passes": mean([each.stats.passes_after_prompt for each in made]),
            "samples": len(made),
        }
    passes = [
        each.seconds * 1e3 / each.stats.passes_after_prompt
        for each in answers[TOKEN_BY_TOKEN]
        if each.stats.passes_after_prompt
    ]
    return {
        "n_vocab": bench.n_vocab,
        "choices": len(bench.alternatives.texts),
        "pass_ms": median(passes),
        "methods": figures,
    }


def _add_mask_libraries(
    cell: dict[str, Any],
    bench: Workbench,
    tokenized: Sequence[Sequence[int]],
    ours: Runs,
    effort: ChoiceEffort,
    others: Others,
) -> None:
    """Run every available mask library along the tokens of eliza-ffi's labels."""
    installed = {peer.name: PICKERS[peer.name] for peer in others.peers if peer.version}
    if not installed:
        return
    model = bench.model
    walks = []
    for i, prompt in enumerate(tokenized[:WALKED_PROMPTS]):
        if i in ours.answers:
            tokens = ours.answers[i][0].tokens
            before = [[*prompt, *tokens[:n]] for n in range(len(tokens))]
            rows = [others.logits.after(model.path, given, bench.n_vocab) for given in before]
            walks.append((tokens, rows))
    steps = mean([len(tokens) for tokens, _ in walks])
    for name, make in installed.items():
        problems, labels = cell["problems"], bench.alternatives.texts
        engine = attempt(problems, name, make, model.vocabulary(), labels)
        select_ms = attempt(problems, name, measure_peer, engine, walks, effort.repeat)
        if engine is not None and select_ms is not None:
            choice_ms = select_ms + (steps - 1.0) * cell["pass_ms"]
            cell["methods"][name] = {
                "choice_ms": choice_ms,
                "tokens": steps,
                "ms_per_token": choice_ms / steps,
                "passes": steps - 1.0,
                "samples": effort.repeat * len(walks),
            }
