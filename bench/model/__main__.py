"""Compare choices with llama.cpp's grammar, or many streams with one, on your own model.

Modes: ``unguided`` generates freely, ``strict-guided`` with a grammar of the labels, and
``strict-trie-ffi`` with the token trie. Every round runs the measured mode and then the grammar, so
a slow moment of the machine affects both. The report compares medians. With ``--streams``, every
round runs one stream and then several at once.

    $ printf 'yes\\nno\\n' | python -m bench.model --mode strict-trie-ffi --labels-file - \\
          --prompt 'Is snow white? '
    $ python -m bench.model --streams 8 --model model.gguf
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from eliza_ffi.cli.console import UsageError, open_model, read_labels
from eliza_ffi.cli.files import check_output, read_bytes, read_text
from eliza_ffi.errors import InvalidArgumentError, TokenTrieError
from eliza_ffi.model import Model

from ..parts.modes import CHOICE_MODES, GRAMMAR_ORDERS, STRATEGIES, TOKENIZATIONS, Method
from ..parts.programs import run_program
from . import (
    CHOICES,
    Alternatives,
    Report,
    StreamsReport,
    Workbench,
    measure,
    measure_streams,
)

MOST_STREAMS = 64
"""The most slots of a context."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.model", description="Measure choices, or many streams together."
    )
    _add_arguments(parser)
    return run_program(parser, _run, arguments)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--mode", choices=CHOICE_MODES, help="how the label is chosen")
    measured.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help="measure N streams at once: tokens and choices per second, compared with one stream",
    )
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--prompt", action="append", metavar="TEXT", help="the prompt; repeat for more prompts"
    )
    prompts.add_argument(
        "--prompt-file",
        action="append",
        metavar="FILE",
        help="read the prompt from FILE, without its last newline; repeat for more prompts",
    )
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument(
        "--labels-file", metavar="FILE", help="the labels, one per line; - = standard input"
    )
    answers.add_argument(
        "--token-tree-descriptor", metavar="FILE", help="the labels as a JSON or RTKT payload"
    )
    parser.add_argument(
        "--grammar-order",
        choices=GRAMMAR_ORDERS,
        default="last",
        help="first: mask the vocabulary before sampling; last: mask it only if the sampled token "
        "is not allowed (last)",
    )
    parser.add_argument(
        "--tokenization",
        choices=TOKENIZATIONS,
        default="own",
        help="own: one tokenization per label; any: all tokens that spell it (own)",
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="auto", help="how a trie is decoded (auto)"
    )
    parser.add_argument(
        "--repeat",
        type=int,
        metavar="N",
        help="timed choices per prompt (20); with --streams, rounds (3)",
    )
    parser.add_argument(
        "--warmup", type=int, default=2, metavar="N", help="untimed choices before them (2)"
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=48,
        metavar="N",
        help="with --streams: tokens of each stream in a round (48)",
    )
    parser.add_argument(
        "--json", action="store_true", help="with --streams: print JSON instead of a table"
    )
    parser.add_argument("--output", metavar="FILE", help="write the JSON to FILE (standard output)")


def _run(arguments: argparse.Namespace) -> int:
    """Run the requested measurement and write the report."""
    if arguments.repeat is None:
        arguments.repeat = 20 if arguments.streams is None else 3
    if arguments.repeat < 1 or arguments.warmup < 0:
        raise UsageError(
            "expected --repeat of 1 or more and --warmup of 0 or more, got "
            f"{arguments.repeat} and {arguments.warmup}"
        )
    check_output(arguments)
    return _run_choices(arguments) if arguments.streams is None else _run_streams(arguments)


def _run_streams(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.streams <= MOST_STREAMS:
        raise UsageError(f"--streams: expected 1 to {MOST_STREAMS}, got {arguments.streams}")
    if arguments.tokens < 2:
        raise UsageError(
            f"--tokens: expected 2 or more, because the time between tokens is measured, got "
            f"{arguments.tokens}"
        )
    prompts = arguments.prompt or arguments.prompt_file
    if prompts is not None or arguments.token_tree_descriptor is not None:
        raise UsageError(
            "--streams uses its own prompts, and takes labels only as a --labels-file; remove "
            "--prompt, --prompt-file and --token-tree-descriptor"
        )
    choices = CHOICES if arguments.labels_file is None else tuple(read_labels(arguments))
    with open_model(arguments, n_slots=arguments.streams) as model:
        report = measure_streams(
            model,
            arguments.streams,
            tokens=arguments.tokens,
            choices=choices,
            repeat=arguments.repeat,
        )
    shown = _json(report) if arguments.json else f"{report.text()}\n"
    if arguments.output is not None:
        Path(arguments.output).write_text(_json(report), encoding="utf-8")
    else:
        sys.stdout.write(shown)
    return 0


def _run_choices(arguments: argparse.Namespace) -> int:
    texts = _prompts(arguments)
    if arguments.labels_file is None and arguments.token_tree_descriptor is None:
        raise UsageError("--mode requires --labels-file or --token-tree-descriptor")
    descriptor = arguments.token_tree_descriptor
    data = read_bytes(descriptor) if descriptor is not None else None
    choices = read_labels(arguments) if data is None else []
    with open_model(arguments) as model:
        prompts = [model.tokenize(text, add_special=True, parse_special=True) for text in texts]
        alternatives = (
            Alternatives.of_texts(model, choices)
            if data is None
            else _of_payload(model, data, descriptor)
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
    if arguments.output is None:
        sys.stdout.write(_json(report))
    else:
        Path(arguments.output).write_text(_json(report), encoding="utf-8")
    return 0


def _of_payload(model: Model, data: bytes, path: str) -> Alternatives:
    try:
        return Alternatives.of_payload(model, data)
    except (InvalidArgumentError, TokenTrieError) as error:
        raise InvalidArgumentError(f"{path}: cannot read labels: {error}") from error


def _prompts(arguments: argparse.Namespace) -> list[str]:
    if arguments.prompt is not None:
        if not all(arguments.prompt):
            raise UsageError("--prompt: expected a non-empty text")
        return list(arguments.prompt)
    if arguments.prompt_file is None:
        raise UsageError("--mode requires --prompt or --prompt-file")
    texts = [read_text(file).removesuffix("\n") for file in arguments.prompt_file]
    for file, text in zip(arguments.prompt_file, texts, strict=True):
        if not text:
            raise UsageError(f"--prompt-file: {file} is empty")
    return texts


def _json(report: Report | StreamsReport) -> str:
    return json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
