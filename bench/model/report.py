"""What a benchmark came to: a method beside the grammar, over some prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eliza_ffi.library.protocol import Tokens

from ..parts.figures import mean, median, percentile
from ..parts.modes import STRICT_GUIDED, UNGUIDED, Method
from .workbench import TimedChoice, TimedDecision, Workbench

__all__ = ["Report", "measure"]


@dataclass(frozen=True)
class Report:
    """What a benchmark came to.

    Attributes
    ----------
    mode, model, strategy : str
        `strategy` is ``"none"`` where there is no trie.
    grammar_order : str
        Of the grammar that is measured or compared with.
    skip_ratio_mean, skip_ratio_std : float
        Over all decisions, the share of the vocabulary that was not looked at:
        ``(vocabulary - candidates) / vocabulary``. Forced tokens are no decisions. Modes without a
        trie look at all of it: 0.
    tokens_per_second : float
        Median over the timed choices of their tokens divided by their seconds. A choice's time
        begins when the prompt has been decoded and ends with its last token.
    tokens_per_second_vs_grammar : float
        Divided by the same of the grammar, run in the same rounds.
    tokenization : str
        ``"own"`` or ``"any"``; ``"none"`` where there are no choices.
    token_accuracy : float
        Of choices by text, which any tokens may spell: the share of the prompts on which the tokens
        are those of the grammar, both greedily. Otherwise leaf agreement: the share on which the
        text is the grammar's. That may spell a string with any tokens and the trie with those of
        its leaf, so less than 1 is possible, and is no error of either.
    forward_passes_saved, forward_passes_total : int
        Over all timed choices: tokens that ran no forward pass of their own, and the passes run,
        without those of the prompts.
    decision_us_mean, decision_us_p50, decision_us_p99 : float
        Microseconds selecting a token at a decision.
    choice_ms_p50, choice_ms_p99 : float
        Milliseconds of a choice, as for `tokens_per_second`: the prompt is in the slot already.
    prompt_ms_p50 : float
        Milliseconds before that: opening a stream, which parses the grammar if there is one, and
        prefilling a prompt that the slot holds.
    passes_per_choice, tokens_per_choice : float
        Means over the timed choices.
    prompt_tokens, prompt_tokens_reused : float
        Means over the timed choices: tokens given to prefill, and those of them found in a slot.
    set_token_trie_us_cold, set_token_trie_us_cached : float
        Median microseconds of setting a payload never seen before, and one seen before.
    tree_passes : int
        Passes of the timed choices that decoded several decisions at once.
    cores : int
        Physical cores this process may use.
    """

    mode: str
    model: str
    strategy: str
    grammar_order: str
    tokenization: str
    skip_ratio_mean: float
    skip_ratio_std: float
    tokens_per_second: float
    tokens_per_second_vs_grammar: float
    token_accuracy: float
    forward_passes_saved: int
    forward_passes_total: int
    decision_us_mean: float
    decision_us_p50: float
    decision_us_p99: float
    choice_ms_p50: float
    choice_ms_p99: float
    prompt_ms_p50: float
    passes_per_choice: float
    tokens_per_choice: float
    prompt_tokens: float
    prompt_tokens_reused: float
    set_token_trie_us_cold: float
    set_token_trie_us_cached: float
    tree_passes: int
    n_vocab: int
    choices: int
    prompts: int
    repeat: int
    warmup: int
    cores: int
    library_version: str
    llama_cpp_commit: str


def measure(
    bench: Workbench,
    prompts: Sequence[Tokens],
    method: Method,
    *,
    repeat: int = 20,
    warmup: int = 2,
) -> Report:
    """Measure a method beside the grammar of its `grammar_order`.

    Parameters
    ----------
    bench
    prompts
        Each as tokens, shape ``[n]``.
    method
    repeat
        Timed choices for each prompt, at least 1.
    warmup
        Choices for each prompt before those; they bring the prompt into a slot.
    """
    grammar = Method(STRICT_GUIDED, grammar_order=method.grammar_order)
    answers: list[TimedChoice] = []
    baseline: list[TimedChoice] = []
    decisions: list[TimedDecision] = []
    agreed: list[bool] = []
    for prompt in prompts:
        expected = bench.answer(prompt, grammar)
        # As many tokens as the grammar took, so that free generation has the same to do.
        limit = len(expected.tokens) if method.mode == UNGUIDED else 0
        for turn in range(warmup + repeat):
            measured = bench.answer(prompt, method, limit)
            # The grammar is not run twice to be compared with itself.
            other = measured if method == grammar else bench.answer(prompt, grammar)
            if turn >= warmup:
                answers.append(measured)
                baseline.append(other)
        same = answers[-1].text == expected.text
        if method.tokenization == "any":
            same = same and answers[-1].tokens == expected.tokens
        agreed.append(same)
        for _ in range(repeat):
            decisions += bench.decisions(prompt, method, limit)

    skipped = [(bench.n_vocab - made.candidates) / bench.n_vocab for made in decisions] or [0.0]
    select_us = [made.microseconds for made in decisions] or [0.0]
    choice_ms = [answer.seconds * 1e3 for answer in answers]
    stats = [answer.stats for answer in answers]
    rate = _median_rate(answers)
    facts = bench.model.describe()
    return Report(
        mode=method.mode,
        model=bench.model.path,
        strategy=method.strategy if method.has_trie else "none",
        grammar_order=method.grammar_order,
        tokenization=method.tokenization if method.has_trie else "none",
        skip_ratio_mean=mean(skipped),
        skip_ratio_std=float(np.std(skipped)),
        tokens_per_second=rate,
        tokens_per_second_vs_grammar=rate / _median_rate(baseline),
        token_accuracy=mean(agreed),
        forward_passes_saved=sum(each.forward_passes_saved for each in stats),
        forward_passes_total=sum(each.passes_after_prompt for each in stats),
        decision_us_mean=mean(select_us),
        decision_us_p50=percentile(select_us, 50),
        decision_us_p99=percentile(select_us, 99),
        choice_ms_p50=percentile(choice_ms, 50),
        choice_ms_p99=percentile(choice_ms, 99),
        prompt_ms_p50=median([answer.prompt_seconds * 1e3 for answer in answers]),
        passes_per_choice=mean([each.passes_after_prompt for each in stats]),
        tokens_per_choice=mean([len(answer.tokens) for answer in answers]),
        prompt_tokens=mean([each.prompt_tokens for each in stats]),
        prompt_tokens_reused=mean([each.prompt_tokens_reused for each in stats]),
        set_token_trie_us_cold=bench.set_trie_microseconds(prompts[0], cached=False),
        set_token_trie_us_cached=bench.set_trie_microseconds(prompts[0], cached=True),
        tree_passes=sum(each.tree_passes for each in stats),
        n_vocab=bench.n_vocab,
        choices=len(bench.alternatives.texts),
        prompts=len(prompts),
        repeat=repeat,
        warmup=warmup,
        cores=int(facts["threads"]),
        library_version=str(facts["library_version"]),
        llama_cpp_commit=str(facts["llama_cpp"]["commit"]),
    )


def _median_rate(answers: Sequence[TimedChoice]) -> float:
    return median([len(answer.tokens) / answer.seconds for answer in answers])
