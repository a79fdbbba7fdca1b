"""What programs that open one model share: how they begin, and how they report a mistake."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from eliza_ffi.cli.console import UsageError, add_model_arguments
from eliza_ffi.errors import ElizaError

__all__ = ["run_program"]


def run_program(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
) -> int:
    """Add the model's options to a parser, and run a program with its arguments.

    A wrong command line ends the process with code 2, and any other error with 1, in one line.
    """
    add_model_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        return run(given)
    except UsageError as error:
        parser.error(str(error))
    except (ElizaError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
