"""The common frame of programs that open one model: options, and how errors are reported."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from eliza_ffi.cli.console import UsageError, add_model_arguments
from eliza_ffi.errors import ElizaError


def run_program(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
) -> int:
    """Add the options of the model to a parser, parse the arguments and run the program.

    Returns its exit code. An error ends the process with one line on standard error: exit code 2
    for a wrong command line, 1 for all other errors.
    """
    add_model_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        return run(given)
    except UsageError as error:
        parser.error(str(error))
    except (ElizaError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
