"""Run eliza-ffi's strategies and llama.cpp's grammar on the same prompts, in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eliza_ffi.library.protocol import StreamConfig

from ..methods import (
    AUTO,
    GRAMMAR_FIRST,
    GRAMMAR_LAST,
    SKIP_AHEAD,
    TOKEN_BY_TOKEN,
    TREE,
    workbench_settings,
)
from ..model import TimedChoice, Workbench
from ..parts.figures import mean, median, percentile

CHOOSING = (AUTO, TREE, SKIP_AHEAD, TOKEN_BY_TOKEN, GRAMMAR_LAST, GRAMMAR_FIRST)
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
    bench: Workbench,
    tokenized: Sequence[Sequence[int]],
    effort: ChoiceEffort,
    methods: Sequence[str] = CHOOSING,
) -> dict[str, Runs]:
    """Run every method on every prompt, round by round, until its budget is used up."""
    runs = {name: Runs() for name in methods}
    made = {name: workbench_settings(name).method for name in (*methods, AUTO, REFERENCE)}
    bench.answer(tokenized[0], made[REFERENCE])  # the first pass of a model is its slowest
    begin_all = time.perf_counter()
    for turn in range(effort.repeat):
        # The time to bring prompts into slots counts towards no method's budget, but is long with
        # wide models. Therefore the whole run has a budget too.
        if turn > 0 and time.perf_counter() - begin_all > effort.budget * len(methods):
            break
        for i, prompt in enumerate(tokenized):
            # This untimed choice brings the prompt into a slot for all methods.
            bench.answer(prompt, made[AUTO])
            for name in methods:
                if runs[name].spent > effort.budget:
                    continue
                begin = time.perf_counter()
                runs[name].answers.setdefault(i, []).append(bench.answer(prompt, made[name]))
                runs[name].spent += time.perf_counter() - begin
    return runs


def summary_of(runs: Runs, reference: Runs) -> dict[str, Any]:
    """Return the figures of a method, which docs/performance.md describes."""
    answers = runs.all()
    stats = [answer.stats for answer in answers]
    milliseconds = [answer.seconds * 1e3 for answer in answers]
    decisions = sum(each.decisions + each.tokens_sampled for each in stats)
    shared = [i for i in runs.answers if i in reference.answers]
    agreed = [runs.answers[i][0].text == reference.answers[i][0].text for i in shared]
    return {
        "choice_ms": median(milliseconds),
        "choice_ms_p99": percentile(milliseconds, 99),
        "tokens": mean([len(answer.tokens) for answer in answers]),
        "ms_per_token": median([a.seconds * 1e3 / len(a.tokens) for a in answers]),
        "passes": mean([each.passes_after_prompt for each in stats]),
        "select_us": sum(each.select_ns for each in stats) / 1e3 / max(decisions, 1),
        "prompt_ms": median([answer.prompt_seconds * 1e3 for answer in answers]),
        "agreement": mean(agreed),
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


def strategies_agree(runs: Mapping[str, Runs]) -> bool:
    """Return whether all strategies chose the same tokens in every round.

    Different rounds are not compared: how a prompt was decoded changes the last digits of its KV
    cache, and so near ties may be resolved differently from round to round.
    """
    tries = [each for name, each in runs.items() if workbench_settings(name).method.has_trie]
    return all(
        len({answer.tokens for answer in same_round}) == 1
        for i in runs[REFERENCE].answers
        for same_round in zip(*(each.answers.get(i, []) for each in tries), strict=False)
    )
