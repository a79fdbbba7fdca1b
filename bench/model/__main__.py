"""Measure a choice of your model beside llama.cpp's grammar, or many streams together.

Modes: ``unguided`` generates freely, ``strict-guided`` under a grammar of the choices, and
``strict-trie-ffi`` under the token trie. Every round runs the measured mode and the grammar one
after the other, so that a machine that slows down slows both, and medians are compared. With
``--streams`` every round runs one stream and then several at once.

    $ printf 'yes\\nno\\n' | python -m bench.model --mode strict-trie-ffi --choices-file - \\
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

from eliza_ffi.cli.console import UsageError, open_model, read_choices
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
"""Slots that a context can have."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.model", description="Measure choices, or many streams together."
    )
    _add_arguments(parser)
    return run_program(parser, _run, arguments)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--mode", choices=CHOICE_MODES, help="how the answer is made")
    measured.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help="measure N streams at once instead: tokens and choices per second beside one alone",
    )
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--prompt", action="append", metavar="TEXT", help="the prompt: repeated for several"
    )
    prompts.add_argument(
        "--prompt-file",
        action="append",
        metavar="FILE",
        help="read the prompt from FILE, but for its last newline: repeated for several",
    )
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument(
        "--choices-file", metavar="FILE", help="answers, one per line; - = standard input"
    )
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
        help="tokens of an answer: its own, or any that spell it (own)",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="auto", help="of the trie (auto)")
    parser.add_argument(
        "--repeat",
        type=int,
        metavar="N",
        help="timed choices per prompt (20); with --streams, rounds (3)",
    )
    parser.add_argument(
        "--warmup", type=int, default=2, metavar="N", help="untimed ones before them (2)"
    )
    parser.add_argument(
        "--tokens", type=int, default=48, metavar="N", help="with --streams, of each stream (48)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: with --streams, and no table"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write to FILE: the JSON (standard output)"
    )


def _run(arguments: argparse.Namespace) -> int:
    """Measure what the arguments ask for and write the report."""
    if arguments.repeat is None:
        arguments.repeat = 20 if arguments.streams is None else 3
    if arguments.repeat < 1 or arguments.warmup < 0:
        raise UsageError("--repeat must be 1 or more and --warmup 0 or more")
    check_output(arguments)
    return _run_choices(arguments) if arguments.streams is None else _run_streams(arguments)


def _run_streams(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.streams <= MOST_STREAMS:
        raise UsageError(f"--streams must be 1 to {MOST_STREAMS}, not {arguments.streams}")
    if arguments.tokens < 2:
        raise UsageError("--tokens must be 2 or more: time is measured between them")
    prompts = arguments.prompt or arguments.prompt_file
    if prompts is not None or arguments.token_tree_descriptor is not None:
        raise UsageError("--streams has prompts of its own; its answers are a --choices-file")
    choices = CHOICES if arguments.choices_file is None else tuple(read_choices(arguments))
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
    if arguments.choices_file is None and arguments.token_tree_descriptor is None:
        raise UsageError("--mode needs one of --choices-file and --token-tree-descriptor")
    descriptor = arguments.token_tree_descriptor
    data = read_bytes(descriptor) if descriptor is not None else None
    choices = read_choices(arguments) if data is None else []
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
        raise InvalidArgumentError(f"{path} holds no choices: {error}") from error


def _prompts(arguments: argparse.Namespace) -> list[str]:
    if arguments.prompt is not None:
        if not all(arguments.prompt):
            raise UsageError("a prompt is empty")
        return list(arguments.prompt)
    if arguments.prompt_file is None:
        raise UsageError("--mode needs a --prompt or a --prompt-file")
    texts = [read_text(file).removesuffix("\n") for file in arguments.prompt_file]
    for file, text in zip(arguments.prompt_file, texts, strict=True):
        if not text:
            raise UsageError(f"the prompt in {file} is empty")
    return texts


def _json(report: Report | StreamsReport) -> str:
    return json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
