"""Measure a method on some prompts, compared with the grammar, and report the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eliza_ffi.library.protocol import Tokens

from ..parts.figures import mean, median, percentile
from ..parts.modes import STRICT_GUIDED, UNGUIDED, Method
from .workbench import TimedChoice, TimedDecision, Workbench


@dataclass(frozen=True)
class Report:
    """The figures of a method.

    Attributes
    ----------
    mode, model, strategy : str
        `strategy` is ``"none"`` without a trie.
    grammar_order : str
        The order of the grammar that is measured or compared with.
    tokenization : str
        ``"own"`` or ``"any"``; ``"none"`` without a trie.
    skip_ratio_mean, skip_ratio_std : float
        The share of the vocabulary that a decision skips, over all decisions:
        ``(vocabulary - candidates) / vocabulary``. Forced tokens are not decisions. Modes without a
        trie skip nothing, so the share is 0.
    tokens_per_second : float
        The tokens of a choice divided by its seconds; the median over the timed choices. The time
        of a choice begins when the prompt has been decoded and ends with the last token.
    tokens_per_second_vs_grammar : float
        The same, divided by the grammar's value in the same rounds.
    token_accuracy : float
        With the tokenization ``"any"``, the share of prompts with the same tokens as the grammar,
        both greedy. Otherwise the share of prompts with the same text as the grammar. This share
        can be below 1 without an error, because the grammar allows every tokenization of a label
        and the trie only one.
    forward_passes_saved, forward_passes_total : int
        Over all timed choices: tokens that needed no forward pass of their own, and passes run
        after the prompts.
    decision_us_mean, decision_us_p50, decision_us_p99 : float
        Microseconds to select one token, when its logits are available.
    choice_ms_p50, choice_ms_p99 : float
        Milliseconds of a choice, measured as for `tokens_per_second`. The prompt is in a slot.
    prompt_ms_p50 : float
        Milliseconds before a choice begins: to open the stream, which parses the grammar if there
        is one, and to prefill the prompt, which is in a slot.
    passes_per_choice, tokens_per_choice : float
        Means over the timed choices.
    prompt_tokens, prompt_tokens_reused : float
        Means over the timed choices: the tokens of the prompt, and how many of them were in a slot.
    set_token_trie_us_cold, set_token_trie_us_cached : float
        Median microseconds to set a new payload, and a cached payload.
    tree_passes : int
        Passes of the timed choices that decoded several decisions at once.
    n_vocab, choices, prompts : int
        The numbers of tokens in the vocabulary, of labels, and of prompts.
    repeat, warmup : int
        Timed and untimed choices for each prompt.
    cores : int
        Compute threads of the model.
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
    """Measure a method, and the grammar with the method's `grammar_order`, in the same rounds.

    Parameters
    ----------
    prompts
        The tokens of each prompt.
    repeat
        Timed choices for each prompt, at least 1.
    warmup
        Untimed choices for each prompt before those; they bring the prompt into a slot.
    """
    grammar = Method(STRICT_GUIDED, grammar_order=method.grammar_order)
    answers: list[TimedChoice] = []
    baseline: list[TimedChoice] = []
    decisions: list[TimedDecision] = []
    agreed: list[bool] = []
    for prompt in prompts:
        expected = bench.answer(prompt, grammar)
        # Free generation stops after as many tokens as the grammar's answer has.
        limit = len(expected.tokens) if method.mode == UNGUIDED else 0
        for turn in range(warmup + repeat):
            measured = bench.answer(prompt, method, limit)
            # If the grammar itself is measured, it runs only once.
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
