"""The option ``--ray``: decide the rows of a table on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..decisions.questions import Question
from ..ray.table import LOCAL, TableWorkers
from .console import UsageError, model_options, whole_number

__all__ = ["add_ray_arguments", "ray_workers"]


def add_ray_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster's address and the number of workers."""
    group = parser.add_argument_group(
        "Ray", "requires the extra 'ray': pip install 'eliza-ffi[ray]'"
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help=f"decide the table on the Ray cluster at ADDRESS: HOST:PORT, auto, or {LOCAL}",
    )
    group.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="with --ray: worker processes, each with its own model; each reserves --threads CPUs "
        "of the cluster (default: 1 CPU)",
    )


def ray_workers(
    arguments: argparse.Namespace, questions: Sequence[Question], settings: Mapping[str, Any]
) -> TableWorkers:
    """Return the workers of the command line; a ``with`` block starts and ends them.

    `settings` are keyword arguments for :meth:`~eliza_ffi.Model.decide`.
    """
    if not arguments.workers:
        raise UsageError("--ray requires --workers, 1 or more")
    return TableWorkers(
        arguments.ray,
        arguments.workers,
        arguments.column,
        questions,
        settings,
        model=arguments.model,
        model_options=model_options(arguments, arguments.n_slots),
        waiting=_report_waiting,
    )


def _report_waiting(n_ready: int, n_workers: int) -> None:
    print(
        f"eliza-ffi: workers with a loaded model: {n_ready} of {n_workers}; the others are "
        f"loading it or waiting for free CPUs or GPUs in the cluster",
        file=sys.stderr,
    )
