"""Compare choices with llama.cpp's grammar on your own model, prompt and labels.

Modes: ``unguided`` generates freely, ``strict-guided`` with a grammar of the labels, and
``strict-trie-ffi`` with the token trie. Every round runs the measured mode and then the grammar, so
a slow moment of the machine affects both. The report compares medians.

    $ printf 'yes\\nno\\n' | python -m bench.model --mode strict-trie-ffi --labels-file - \\
          --prompt 'Is snow white? '
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from eliza_ffi.cli.console import UsageError, open_model, read_labels
from eliza_ffi.cli.files import check_output, read_bytes, read_text
from eliza_ffi.errors import InvalidArgumentError, TokenTrieError
from eliza_ffi.library.protocol import Tokens

from ..parts.figures import mean, median, percentile
from ..parts.modes import CHOICE_MODES, STRICT_GUIDED, UNGUIDED, Method
from ..parts.programs import run_program
from .alternatives import Alternatives
from .workbench import TimedChoice, Workbench

WARM_UP = 2
"""Untimed choices for each prompt, which bring it into a slot."""


@dataclass(frozen=True)
class Report:
    """The figures of a mode."""

    mode: str
    model: str
    grammar_order: str
    tokenization: str  # ``"canonical"`` or ``"any"``; ``"none"`` without a trie
    # The share of the vocabulary that a decision skips: (vocabulary - candidates) / vocabulary.
    # Forced tokens are not decisions. Modes without a trie skip nothing.
    skip_ratio_mean: float
    skip_ratio_std: float
    # The tokens of a choice divided by its seconds, median over the timed choices; and the same
    # divided by the grammar's value in the same rounds. The time of a choice begins when the prompt
    # has been decoded and ends with the last token.
    tokens_per_second: float
    tokens_per_second_vs_grammar: float
    # The share of prompts with the grammar's text, and with ``"any"`` also its tokens. Otherwise
    # the grammar allows more tokenizations than the trie, so a share below 1 is no error.
    token_accuracy: float
    # Over all timed choices: tokens that needed no forward pass of their own, and passes run after
    # the prompts.
    forward_passes_saved: int
    forward_passes_total: int
    # Milliseconds of a choice, and milliseconds before it: to open the stream, which parses the
    # grammar, and to prefill the prompt, which is in a slot.
    choice_ms_p50: float
    choice_ms_p99: float
    prompt_ms_p50: float
    n_vocab: int
    choices: int
    prompts: int
    repeat: int
    library_version: str
    llama_cpp_commit: str


def measure(
    bench: Workbench,
    prompts: Sequence[Tokens],  # the tokens of each prompt
    method: Method,
    *,
    repeat: int = 20,  # timed choices for each prompt, at least 1
) -> Report:
    """Measure a method, and the grammar with the method's `grammar_order`, in the same rounds."""
    grammar = Method(STRICT_GUIDED, grammar_order=method.grammar_order)
    answers: list[TimedChoice] = []
    baseline: list[TimedChoice] = []
    candidates: list[float] = []
    agreed: list[bool] = []
    for prompt in prompts:
        expected = bench.answer(prompt, grammar)
        # Free generation stops after as many tokens as the grammar's answer has.
        limit = len(expected.tokens) if method.mode == UNGUIDED else 0
        for turn in range(WARM_UP + repeat):
            measured = bench.answer(prompt, method, limit)
            # If the grammar itself is measured, it runs only once.
            other = measured if method == grammar else bench.answer(prompt, grammar)
            if turn >= WARM_UP:
                answers.append(measured)
                baseline.append(other)
        same = answers[-1].text == expected.text
        if method.tokenization == "any":
            same = same and answers[-1].tokens == expected.tokens
        agreed.append(same)
        candidates += bench.candidates(prompt, method, limit)

    skipped = [1.0 - each / bench.n_vocab for each in candidates] or [0.0]
    choice_ms = [answer.seconds * 1e3 for answer in answers]
    stats = [answer.stats for answer in answers]
    rate = _median_rate(answers)
    facts = bench.model.describe()
    return Report(
        mode=method.mode,
        model=bench.model.path,
        grammar_order=method.grammar_order,
        tokenization=method.tokenization if method.has_trie else "none",
        skip_ratio_mean=mean(skipped),
        skip_ratio_std=float(np.std(skipped)),
        tokens_per_second=rate,
        tokens_per_second_vs_grammar=rate / _median_rate(baseline),
        token_accuracy=mean(agreed),
        forward_passes_saved=sum(each.forward_passes_saved for each in stats),
        forward_passes_total=sum(each.passes_after_prompt for each in stats),
        choice_ms_p50=percentile(choice_ms, 50),
        choice_ms_p99=percentile(choice_ms, 99),
        prompt_ms_p50=median([answer.prompt_seconds * 1e3 for answer in answers]),
        n_vocab=bench.n_vocab,
        choices=len(bench.alternatives.texts),
        prompts=len(prompts),
        repeat=repeat,
        library_version=str(facts["library_version"]),
        llama_cpp_commit=str(facts["llama_cpp"]["commit"]),
    )


def _median_rate(answers: Sequence[TimedChoice]) -> float:
    return median([len(answer.tokens) / answer.seconds for answer in answers])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.model", description="Measure choices.")
    add = parser.add_argument
    add("--mode", choices=CHOICE_MODES, required=True, help="how the label is chosen")
    prompts = parser.add_mutually_exclusive_group(required=True).add_argument
    prompts("--prompt", action="append", metavar="TEXT", help="the prompt; repeat for more prompts")
    text = "read the prompt from FILE, without its last newline; repeat for more prompts"
    prompts("--prompt-file", action="append", metavar="FILE", help=text)
    answers = parser.add_mutually_exclusive_group(required=True).add_argument
    answers("--labels-file", metavar="FILE", help="the labels, one per line; - = standard input")
    answers("--token-tree-descriptor", metavar="FILE", help="the labels as a JSON payload")
    text = "first: mask the vocabulary before sampling; last: only if a token is not allowed (last)"
    add("--grammar-order", choices=("last", "first"), default="last", help=text)
    text = "canonical: one tokenization per label; any: all tokens that spell it (canonical)"
    add("--tokenization", choices=("canonical", "any"), default="canonical", help=text)
    add("--repeat", type=int, default=20, metavar="N", help="timed choices per prompt (20)")
    add("--output", metavar="FILE", help="write the JSON to FILE (standard output)")
    return run_program(parser, _run, arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Run the requested measurement and write the report."""
    if arguments.repeat < 1:
        raise UsageError(f"--repeat: expected 1 or more, got {arguments.repeat}")
    check_output(arguments)
    texts = arguments.prompt or [
        read_text(file).removesuffix("\n") for file in arguments.prompt_file
    ]
    if not all(texts):
        raise UsageError("--prompt, --prompt-file: expected a non-empty text")
    orders = {"grammar_order": arguments.grammar_order, "tokenization": arguments.tokenization}
    method = Method(arguments.mode, **orders)
    descriptor = arguments.token_tree_descriptor
    data = read_bytes(descriptor) if descriptor is not None else None
    labels = read_labels(arguments) if data is None else []
    with open_model(arguments) as model:
        prompts = [model.tokenize(text, add_special=True, parse_special=True) for text in texts]
        try:
            alternatives = (
                Alternatives.of_texts(model, labels)
                if data is None
                else Alternatives.of_payload(model, data)
            )
        except TokenTrieError as error:
            raise InvalidArgumentError(f"{descriptor}: cannot read labels: {error}") from error
        report = measure(Workbench(model, alternatives), prompts, method, repeat=arguments.repeat)
    text = json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n"
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        Path(arguments.output).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
