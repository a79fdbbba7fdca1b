"""``eliza-ffi bench``: what a choice costs, measured beside llama.cpp's grammar in one process.

Modes: ``unguided`` generates freely, ``strict-guided`` under a grammar of the choices, and
``strict-trie-ffi`` under the token trie. Every round runs the measured mode and the grammar one
after the other, so that a machine that slows down slows both, and medians are compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from .benchmark import (
    GRAMMAR_ORDERS,
    MODES,
    STRATEGIES,
    TOKENIZATIONS,
    Alternatives,
    Method,
    Workbench,
    measure,
)
from .console import UsageError, open_model, read_choices

__all__ = ["add_bench_arguments", "run_bench"]


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, but for the model's."""
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument(
        "--prompt", metavar="FILE", nargs="+", required=True, help="files with a prompt each"
    )
    answers = parser.add_mutually_exclusive_group(required=True)
    answers.add_argument("--choices-file", metavar="FILE", help="answers, one per line")
    answers.add_argument(
        "--token-tree-descriptor", metavar="FILE", help="answers as a payload, JSON or RTKT"
    )
    parser.add_argument(
        "--grammar-order",
        choices=GRAMMAR_ORDERS,
        default="last",
        help="mask before sampling, or only where an illegal token was sampled (last)",
    )
    parser.add_argument(
        "--tokenization",
        choices=TOKENIZATIONS,
        default="own",
        help="each answer's own tokens, or any that spell it (own)",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="auto", help="of the trie (auto)")
    parser.add_argument(
        "--repeat", type=int, default=20, metavar="N", help="timed choices per prompt (20)"
    )
    parser.add_argument(
        "--warmup", type=int, default=2, metavar="N", help="untimed ones before them (2)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the JSON here (standard output)")


def run_bench(arguments: argparse.Namespace) -> int:
    """Measure what the arguments ask for and write the report."""
    if arguments.repeat < 1 or arguments.warmup < 0:
        raise UsageError("--repeat must be 1 or more and --warmup 0 or more")
    texts = [Path(file).read_text(encoding="utf-8").removesuffix("\n") for file in arguments.prompt]
    for file, text in zip(arguments.prompt, texts, strict=True):
        if not text:
            raise UsageError(f"the prompt in {file} is empty")
    descriptor = arguments.token_tree_descriptor
    data = Path(descriptor).read_bytes() if descriptor is not None else None
    choices = read_choices(arguments) if data is None else []
    with open_model(arguments) as model:
        prompts = [model.tokenize(text, add_special=True, parse_special=True) for text in texts]
        alternatives = (
            Alternatives.of_texts(model, choices)
            if data is None
            else Alternatives.of_payload(model, data)
        )
        report = measure(
            Workbench(model, alternatives),
            prompts,
            Method(
                arguments.mode,
                arguments.strategy,
                arguments.grammar_order,
                arguments.tokenization,
            ),
            repeat=arguments.repeat,
            warmup=arguments.warmup,
        )
    out = json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n"
    if arguments.output is None:
        sys.stdout.write(out)
    else:
        Path(arguments.output).write_text(out, encoding="utf-8")
    return 0
