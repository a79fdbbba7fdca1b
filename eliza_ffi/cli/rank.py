"""``eliza-ffi rank``: find the most probable of many labels, with exact probabilities."""

from __future__ import annotations

import argparse

from ..async_model import AsyncModel
from ..choices.rank_result import RankResult
from ..terminal import counted, printable, terminal_width, wrap
from .bars import bar_lines
from .console import (
    UsageError,
    add_label_arguments,
    add_model_arguments,
    add_options,
    add_prompt_arguments,
    add_tokenization,
    given,
    open_model,
    print_json,
    read_labels,
    read_question,
    run_interruptibly,
)

MIN_INEXACT = 0.0005
"""A level's two bounds differ visibly if they differ by at least this much."""


def add_rank_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompt_arguments(parser)
    add_label_arguments(parser)
    add_options(
        parser,
        {
            "-k N": "print the N most probable labels (default: 5)",
            "--separator TEXT": "the text between the parts of a label, such as ' > '; also print "
            "the probability of each level of the first label",
            "--group-level N": "with --separator: rank the groups of labels with the same first N "
            "parts",
            "--max-passes N": "stop after N forward passes, even if the result is not proven "
            "(default: no limit; 100 with --tokenization any)",
        },
    )
    parser.set_defaults(k=5)
    add_tokenization(parser)
    add_options(
        parser, {"--json": "print JSON: labels, probabilities, their rest, passes and time"}
    )
    add_model_arguments(parser)


def run_rank(arguments: argparse.Namespace) -> int:
    if arguments.group_level is not None and arguments.separator is None:
        raise UsageError("--group-level requires --separator, the text between a label's parts")
    labels = read_labels(arguments)
    question = read_question(arguments)
    with open_model(arguments) as model:
        ranking = run_interruptibly(
            AsyncModel.of(model).rank(
                question,
                labels,
                arguments.k,
                level=arguments.group_level,
                **given(arguments, "separator", "max_passes", "tokenization"),
            )
        )
    if arguments.json:
        print_json({**ranking.to_dict(), "model": model.path})
    else:
        print(_ranking_text(ranking, max(terminal_width() or 80, 40)))
    return 0


def _ranking_text(ranking: RankResult[str], width: int) -> str:
    parts = []
    if len(ranking):
        parts.append(bar_lines(list(ranking), width))
    parts.append(f"all other labels together: {ranking.rest:.1%}")
    if ranking.levels:
        parts.append("\nlevels of the first label:")
        inside = [(level.text, level.probability) for level in ranking.levels]
        parts.append(bar_lines(inside, width))
        parts += [
            wrap(f"{printable(level.text)}: at most {level.at_most:.1%}", width)
            for level in ranking.levels
            if level.at_most - level.probability >= MIN_INEXACT
        ]
    figures = (
        "proven: no other label is more probable"
        if ranking.proven
        else "not proven: the limit of passes ended the search"
    )
    if ranking.forward_passes >= 0:
        figures += f"; {counted(ranking.forward_passes, 'pass', 'passes')}"
    parts.append("\n" + wrap(f"{figures}, {ranking.seconds * 1e3:.1f} ms", width))
    return "\n".join(parts)
