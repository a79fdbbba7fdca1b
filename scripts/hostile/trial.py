"""Run a case in a child process with limits, and judge its outcome."""

from __future__ import annotations

import re
import tempfile
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.preloaded import Preloaded
from faults.symbols import Symbols, blamed
from forked import little_memory, run_forked
from stage import Stage

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

from .case import Broken, Case, Must, Neighbour

LONGEST_WAIT_S = 1.0
MOST_DIFFERENCE = 0.005
"""Tolerance for a probability: rounding depends on how much of the prompt was in the cache."""

LEAST_WALL_S = 20.0
WALL_TO_CPU = 5
"""The wall time limit is this many times the CPU time limit, because the machine may be busy."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    came: str  # ``"answer"``, ``"error"``, ``"broken"``, ``"died"`` or ``"hung"``
    said: str  # the error message, the beginning of the answer, or the place of death
    seconds: float = 0.0  # CPU time
    mib: float = 0.0  # peak of the additional memory
    waited: float | None = None  # duration of the other stream's slowest choice, in seconds
    after: str = ""  # what changed in the model's answers afterwards; empty if nothing did
    whose: str = ""  # whose code the process died in


def verdict(case: Case, outcome: Outcome) -> str:
    """Return ``"ok"``, ``"known"``, or a description of the problems."""
    if outcome.came == "died":
        if case.may_die_in_llama_cpp and outcome.whose == "llama.cpp":
            return "known"
        return "died"
    if outcome.came in ("hung", "broken"):
        return outcome.came
    wrong = []
    if case.must is Must.FAIL and outcome.came != "error":
        wrong.append("no error")
    if case.must is Must.ANSWER and outcome.came != "answer":
        wrong.append("no answer")
    if outcome.came == "error" and not re.search(case.says, outcome.said):
        wrong.append(f"does not say {case.says}")
    if outcome.seconds > case.seconds:
        wrong.append(f"over {case.seconds:g} s")
    if outcome.mib > case.mib:
        wrong.append(f"over {case.mib:g} MiB")
    if outcome.waited is not None and outcome.waited > LONGEST_WAIT_S:
        wrong.append(f"another stream waited {outcome.waited:.1f} s")
    if outcome.after:
        wrong.append("answers changed afterwards")
    return "; ".join(wrong) or "ok"


class Trials:
    """Runs cases, one after the other."""

    def __init__(
        self,
        library: Library,
        watcher: Preloaded,  # records where a child died
    ) -> None:
        self._library = library
        self._watcher = watcher
        self._symbols = Symbols(Path(library.path), watcher.base)

    def run(self, case: Case) -> Outcome:
        """Run a case."""
        self._watcher.forget()
        wall = max(LEAST_WALL_S, WALL_TO_CPU * case.seconds)
        with tempfile.TemporaryDirectory() as folder:
            child = run_forked(lambda: self._perform(case, Path(folder)), wall)
        if child.report is not None:
            return Outcome(**child.report)
        whose, place = blamed(self._symbols.names(self._watcher.report.stack_of_death()))
        came, how = ("hung", f"after {wall:g} s") if child.is_late else ("died", child.how)
        return Outcome(came, f"{how} in {place or '?'} {child.last_words}".strip(), whose=whose)

    def _perform(self, case: Case, folder: Path) -> dict[str, Any]:
        stage = Stage(self._library, folder)
        if case.prepare is not None:
            case.prepare(stage)
        before = stage.answers() if stage.was_used else None
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the memory
        held, cpu = _peak_mib(), time.process_time()
        neighbour = Neighbour(stage.model) if case.neighbour else None
        with little_memory(case.address_mib), neighbour.choosing() if neighbour else nullcontext():
            report = _attempt(case, stage)
        report |= {"seconds": time.process_time() - cpu, "mib": _peak_mib() - held}
        if neighbour is not None:
            report["waited"] = neighbour.longest
        if neighbour is not None and neighbour.error is not None:
            report["after"] = f"the other stream failed: {neighbour.error}"
        elif before is not None:
            report["after"] = _changes(stage, before)
        report["said"] = report["said"].replace(str(folder), "FOLDER")
        return report


def _attempt(case: Case, stage: Stage) -> dict[str, Any]:
    try:
        return {"came": "answer", "said": repr(case.run(stage))[:200]}
    except ElizaError as error:
        return {"came": "error", "said": f"{type(error).__name__}: {error}"}
    except Broken as error:
        return {"came": "broken", "said": str(error)}
    except BaseException as error:
        last = " ".join(traceback.format_tb(error.__traceback__)[-3:])
        return {"came": "broken", "said": f"{type(error).__name__}: {error} ({last})"}


def _changes(stage: Stage, before: list[Any]) -> str:
    """Return how the answers differ from those before the case; empty = they are the same."""
    try:
        answers = stage.answers()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    is_same = all(
        value == old_value and abs(probability - old) < MOST_DIFFERENCE
        for (value, probability), (old_value, old) in zip(answers, before, strict=True)
    )
    return "" if is_same else f"expected {before}, got {answers}"


def _peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
