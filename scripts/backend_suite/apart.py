"""Run a function in a child process, so that a crash or a hang does not end the whole run."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


STAGE = "stage: "


class DiedError(RuntimeError):
    """The child process gave no result; the message is one line with the reason.

    Attributes
    ----------
    stage : str
        The last stage that the process announced with :func:`say_stage`; may be empty.
    """

    def __init__(self, how: str, stage: str) -> None:
        super().__init__(f"{stage}: {how}" if stage else how)
        self.stage = stage


def say_stage(stage: str) -> None:
    """Announce on standard error that a stage begins."""
    print(f"{STAGE}{stage}", file=sys.stderr, flush=True)


def run_apart(work: Callable[..., T], *arguments: Any, seconds: float, mebibytes: int) -> T:
    """Call a function in a child process and return its result.

    Parameters
    ----------
    work
        A module-level function. It, its arguments and its result are pickled.
    seconds
        Time limit; the process is killed after it.
    mebibytes
        Limit of the process's address space, in MiB.

    Raises
    ------
    DiedError
        If the process raised an exception, ended, or was killed.
    """
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder, ours:
        said = Path(folder) / "stderr"
        process = spawning.Process(
            target=_work_apart, args=(theirs, said, mebibytes, work, arguments), daemon=True
        )
        process.start()
        theirs.close()
        try:
            if not ours.poll(seconds):
                raise DiedError(f"killed after {seconds:.0f} s", _last_words(said)[0])
            is_result, value = ours.recv()
            if not is_result:
                raise DiedError(value, _last_words(said)[0])
            result: T = value
            return result
        except EOFError:
            process.join()
            stage, words = _last_words(said)
            raise DiedError(_how_it_ended(process.exitcode, words), stage) from None
        finally:
            process.kill()
            process.join()


def _work_apart(
    answer: Connection,
    said: Path,
    mebibytes: int,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["GGML_NO_BACKTRACE"] = "1"  # otherwise llama.cpp runs gdb, which takes seconds
    with said.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        answer.send((True, work(*arguments)))
    except Exception as error:
        answer.send((False, f"{type(error).__name__}: {error}"))


def _last_words(said: Path) -> tuple[str, str]:
    """Return the last stage that a process announced, and the last other line that it printed."""
    text = said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""
    stage, words = "", ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        if line.startswith(STAGE):
            stage = line.removeprefix(STAGE)
        else:
            words = line
    return stage, words


def _how_it_ended(exit_code: int | None, words: str) -> str:
    how = f"ended by signal {-exit_code}" if exit_code and exit_code < 0 else f"exit {exit_code}"
    return f"{how}: {words}" if words else how
