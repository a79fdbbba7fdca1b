"""Run the ``eliza-ffi`` command in this process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from eliza_ffi import cli
from eliza_ffi.cli.main import build_parser

Run = Callable[..., "Output"]
"""Runs the command with the given arguments; checks the exit code, which is 0 or `code`."""


class Output(NamedTuple):
    """The output of a command."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def runner(capsys: pytest.CaptureFixture[str], *options: str) -> Run:
    """Return a function that runs the command, always with `options`."""

    def run(*arguments: str, code: int = 0) -> Output:
        found = cli.main([*arguments, *options])
        output = Output(*capsys.readouterr())
        assert found == code, output.err
        return output

    return run


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every subcommand, by its name."""
    actions = build_parser()._actions
    (found,) = (each for each in actions if isinstance(each, argparse._SubParsersAction))
    return dict(found.choices)
