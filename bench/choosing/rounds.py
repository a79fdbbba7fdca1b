"""Run eliza-ffi's strategies and llama.cpp's grammar on the same prompts, in turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eliza_ffi.library.protocol import StreamConfig

from ..methods import AUTO, GRAMMAR_FIRST, GRAMMAR_LAST, TOKEN_BY_TOKEN, workbench_settings
from ..model import TimedChoice, Workbench
from ..parts.figures import mean, median

CHOOSING = (AUTO, TOKEN_BY_TOKEN, GRAMMAR_LAST, GRAMMAR_FIRST)
"""The methods that run in every round."""

REFERENCE = TOKEN_BY_TOKEN


@dataclass(frozen=True)
class ChoiceEffort:
    """How long to measure.

    Attributes
    ----------
    repeat : int
        The most rounds over all prompts.
    budget : float
        Seconds after which a method gets no more choices. Every method makes at least one choice.
    """

    repeat: int
    budget: float


@dataclass
class Runs:
    """The choices of a method, by prompt."""

    answers: dict[int, list[TimedChoice]] = field(default_factory=dict)
    spent: float = 0.0

    def all(self) -> list[TimedChoice]:
        return [answer for listed in self.answers.values() for answer in listed]


def run_methods(
    bench: Workbench, tokenized: Sequence[Sequence[int]], effort: ChoiceEffort
) -> dict[str, Runs]:
    """Run every method on every prompt, round by round, until its budget is used up."""
    runs = {name: Runs() for name in CHOOSING}
    made = {name: workbench_settings(name).method for name in CHOOSING}
    bench.answer(tokenized[0], made[REFERENCE])  # the first pass of a model is its slowest
    begin_all = time.perf_counter()
    for turn in range(effort.repeat):
        # The time to bring prompts into slots counts towards no method's budget, but is long with
        # wide models. Therefore the whole run has a budget too.
        if turn > 0 and time.perf_counter() - begin_all > effort.budget * len(CHOOSING):
            break
        for i, prompt in enumerate(tokenized):
            # This untimed choice brings the prompt into a slot for all methods.
            bench.answer(prompt, made[AUTO])
            for name in CHOOSING:
                if runs[name].spent > effort.budget:
                    continue
                begin = time.perf_counter()
                runs[name].answers.setdefault(i, []).append(bench.answer(prompt, made[name]))
                runs[name].spent += time.perf_counter() - begin
    return runs


def summary_of(runs: Runs) -> dict[str, Any]:
    """Return the figures of a method, which docs/performance.md describes."""
    answers = runs.all()
    return {
        "choice_ms": median([answer.seconds * 1e3 for answer in answers]),
        "tokens": mean([len(answer.tokens) for answer in answers]),
        "ms_per_token": median([a.seconds * 1e3 / len(a.tokens) for a in answers]),
        "passes": mean([answer.stats.passes_after_prompt for answer in answers]),
        "samples": len(answers),
    }


def open_ms(bench: Workbench, grammar: str | None) -> float:
    """Return the median milliseconds to open and close a stream, which parses the grammar."""
    binding, config = bench.model.binding, StreamConfig(gbnf_grammar=grammar)
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        binding.close(binding.open(bench.model.session.ctx, config))
        times.append(time.perf_counter() - begin)
    return median(times) * 1e3
