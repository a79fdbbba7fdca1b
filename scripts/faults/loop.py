"""Run each operation in child processes, with one failing call per run."""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Child, run_forked
from stage import CHAT, Stage

from eliza_ffi.errors import ElizaError, OutOfMemoryError
from eliza_ffi.library.loading import Library

from .operations import N_SLOTS, Operation
from .preloaded import Preloaded, Symbols, blamed, our_caller

TIME_LIMIT_S = 30.0
SETTINGS = {"n_ctx": 512, "n_slots": N_SLOTS, "options": {"slot_wait_ms": "0"}}


class Ended(enum.Enum):
    WORKED = "worked"
    REFUSED = "refused"
    OTHER_ERROR = "other error"
    WRONG = "wrong"
    SPOILT = "spoilt"
    HUNG = "hung"
    OURS = "died: ours"
    THEIRS = "died: llama.cpp"

    @property
    def is_failure(self) -> bool:
        """Whether this outcome fails the check; deaths in llama.cpp's code are only counted."""
        return self not in (Ended.WORKED, Ended.REFUSED, Ended.THEIRS)


@dataclass(frozen=True)
class Fault:
    operation: str
    kind: str
    n: int  # number of the failing call, from 1
    ended: Ended
    said: str  # the error message, or a description of the deviation
    failed_at: list[str]  # functions of the library, innermost first
    died_at: list[str]

    @property
    def place(self) -> str:
        """The function where the process died; if it survived, the function that made the call.

        If the function is llama.cpp's, the place also names our function that called it.
        """
        stack = self.died_at or self.failed_at
        function, ours = blamed(stack)[1], our_caller(stack)
        return function if function == ours or not ours else f"{function}, called by {ours}"


class Loop:
    def __init__(self, library: Library, preloaded: Preloaded, *, lasting: bool = False) -> None:
        self._library = library
        self._preloaded = preloaded
        self._symbols = Symbols(Path(library.path), preloaded.base)
        self._lasting = lasting

    def count(self, operation: Operation, kind: str) -> tuple[int, dict[str, Any]]:
        """Return the number of calls of a kind, and the child's report if none of them fails."""
        child = self._in_child(operation, kind, 0)
        problem = child.last_words if child.report is None else child.report.get("error")
        if problem is not None:
            raise RuntimeError(f"{operation.name} failed without a failing call: {problem}")
        return int(self._preloaded.report.n_calls), child.report

    def faults(self, operation: Operation, kind: str, sample: int = 0) -> Iterator[Fault]:
        """Yield the outcome for each failing call, or for about `sample` of them."""
        count, expected = self.count(operation, kind)
        step = max(1, count // sample) if sample else 1
        for n in range(1, count + 1, step):
            child = self._in_child(operation, kind, n)
            # With threads, the number of calls varies, so the n-th call may not have happened.
            if self._preloaded.report.n_failed:
                yield self._judged(operation, kind, n, child, expected)

    def _judged(
        self, operation: Operation, kind: str, n: int, child: Child, expected: Any
    ) -> Fault:
        stacks = self._preloaded.report
        failed_at = self._symbols.names(stacks.stack_of_failure())
        died_at: list[str] = []
        if child.report is None:
            died_at = self._symbols.names(stacks.stack_of_death())
            is_ours = blamed(died_at)[0] != "llama.cpp"
            ended = Ended.HUNG if child.is_late else Ended.OURS if is_ours else Ended.THEIRS
            said = f"{'hung' if child.is_late else 'died'} ({child.how}): {child.last_words}"
        else:
            ended, said = judge(kind, child.report, expected)
        return Fault(operation.name, kind, n, ended, said, failed_at, died_at)

    def _in_child(self, operation: Operation, kind: str, n: int) -> Child:
        self._preloaded.forget()
        with tempfile.TemporaryDirectory() as folder:
            return run_forked(lambda: self._perform(operation, kind, n, Path(folder)), TIME_LIMIT_S)

    def _perform(self, operation: Operation, kind: str, n: int, folder: Path) -> dict[str, Any]:
        stage = Stage(self._library, folder, **SETTINGS)
        operation.prepare(stage)
        report: dict[str, Any] = {"old_files": stage.files()}
        self._preloaded.arm(kind, n, lasting=self._lasting)
        try:
            report["result"] = operation.run(stage)
        except ElizaError as error:
            report["error"] = str(error)
            report["is_memory"] = isinstance(error, OutOfMemoryError) or isinstance(
                error.__cause__, OutOfMemoryError
            )
        except BaseException as error:
            report["error"] = report["unexpected"] = f"{type(error).__name__}: {error}"
        finally:
            self._preloaded.disarm()
        report["files"] = stage.files()
        try:
            report["answers"] = [*stage.answers(), stage.model.generate(CHAT, 6).text]
            report["answers"].append(operation.run(stage))
        except BaseException as error:
            report["answers"] = f"{type(error).__name__}: {error}"
        return report


def judge(kind: str, report: dict[str, Any], expected: dict[str, Any]) -> tuple[Ended, str]:
    """Return how an operation ended, if the process survived a failing call.

    `expected` is the report of a child in which no call failed.
    """

    def wrong(part: str) -> str:
        return f"{part}: expected {expected[part]}, got {report[part]}"

    if report["answers"] != expected["answers"]:
        return Ended.SPOILT, wrong("answers")
    if report["files"] not in (report["old_files"], expected["files"]):
        return Ended.SPOILT, f"{wrong('files')}, before {report['old_files']}"
    if "unexpected" in report:
        return Ended.OTHER_ERROR, report["unexpected"]
    if "error" in report:
        is_right = kind != "allocation" or report["is_memory"]
        return Ended.REFUSED if is_right else Ended.OTHER_ERROR, report["error"]
    for part in ("result", "files"):
        if report[part] != expected[part]:
            return Ended.WRONG, wrong(part)
    return Ended.WORKED, ""
