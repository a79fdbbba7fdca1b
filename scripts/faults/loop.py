"""One operation after the other, in a child process each, with one call that fails."""

from __future__ import annotations

import enum
import json
import os
import select
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.errors import ElizaError, OutOfMemory
from eliza_ffi.library.loading import Library

from .operations import Operation, Scene
from .preloaded import Preloaded
from .symbols import Symbols, blamed, our_caller

__all__ = ["Ended", "Fault", "Loop"]

TIME_LIMIT_S = 30.0


class Ended(enum.Enum):
    """How an operation ended of which a call failed."""

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
        """Whether this must not be; what llama.cpp dies of is only counted."""
        return self not in (Ended.WORKED, Ended.REFUSED, Ended.THEIRS)


@dataclass(frozen=True)
class Fault:
    """What became of one call that failed.

    Attributes
    ----------
    operation, kind : str
    n : int
        Which of the calls it was, from 1.
    ended : Ended
    said : str
        The error's text, or what was not as it should be.
    failed_at, died_at : list of str
        Functions of the library, innermost first.
    """

    operation: str
    kind: str
    n: int
    ended: Ended
    said: str
    failed_at: list[str]
    died_at: list[str]

    @property
    def place(self) -> str:
        """The function to look at: where it died or, if it did not, where the call was made.

        In code of llama.cpp it is told who of ours called that.
        """
        stack = self.died_at or self.failed_at
        function, ours = blamed(stack)[1], our_caller(stack)
        return function if function == ours or not ours else f"{function}, called by {ours}"


class Loop:
    """Runs operations again and again.

    Parameters
    ----------
    library
    preloaded
    lasting
        Whether all calls after the first that fails do, too.
    """

    def __init__(self, library: Library, preloaded: Preloaded, *, lasting: bool = False) -> None:
        self._library = library
        self._preloaded = preloaded
        self._symbols = Symbols(Path(library.path), preloaded.base)
        self._lasting = lasting

    def count(self, operation: Operation, kind: str) -> tuple[int, dict[str, Any]]:
        """Return how many calls of a kind it makes, and what becomes of it when none fails."""
        told = self._in_child(operation, kind, 0)
        if isinstance(told, str):
            raise RuntimeError(f"{operation.name} does not work at all: {told}")
        if "error" in told:
            raise RuntimeError(f"{operation.name} does not work at all: {told['error']}")
        return self._preloaded.n_calls, told

    def faults(self, operation: Operation, kind: str, sample: int = 0) -> Iterator[Fault]:
        """Yield what became of it for each call that fails, or for about `sample` of them."""
        count, sound = self.count(operation, kind)
        step = max(1, count // sample) if sample else 1
        for n in range(1, count + 1, step):
            told = self._in_child(operation, kind, n)
            # Threads do not always make the same calls.
            if self._preloaded.n_failed:
                yield self._judged(operation, kind, n, told, sound)

    def _judged(
        self, operation: Operation, kind: str, n: int, told: dict[str, Any] | str, sound: Any
    ) -> Fault:
        failed_at = self._symbols.names(self._preloaded.failed_at)
        died_at = self._symbols.names(self._preloaded.died_at)
        if isinstance(told, str):
            is_ours = blamed(died_at)[0] != "llama.cpp"
            ended = Ended.OURS if is_ours else Ended.THEIRS
            if told.startswith("hung"):
                ended = Ended.HUNG
            said = told
        else:
            ended, said = judge(kind, told, sound)
            died_at = []
        return Fault(operation.name, kind, n, ended, said, failed_at, died_at)

    def _in_child(self, operation: Operation, kind: str, n: int) -> dict[str, Any] | str:
        """Return what the child tells, or how it died."""
        self._preloaded.forget()
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.dup2(errors.fileno(), 2)
                told = self._perform(operation, kind, n, Path(folder))
                os.write(writing, json.dumps(told).encode())
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                ready, _, _ = select.select([pipe], [], [], TIME_LIMIT_S)
                if not ready:
                    os.kill(child, signal.SIGABRT)  # it says where it was
                raw = pipe.read()
            _, status = os.waitpid(child, 0)
            if raw:
                told = json.loads(raw)
                assert isinstance(told, dict)
                return told
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().replace("\n", " ")
        how = os.waitstatus_to_exitcode(status)
        how_text = f"signal {-how}" if how < 0 else f"exit code {how}"
        return f"{'died' if ready else 'hung'} ({how_text}): {said[-300:]}"

    def _perform(self, operation: Operation, kind: str, n: int, folder: Path) -> dict[str, Any]:
        scene = Scene(self._library, folder)
        operation.prepare(scene)
        told: dict[str, Any] = {"before": scene.files()}
        self._preloaded.arm(kind, n, lasting=self._lasting)
        try:
            told["result"] = operation.run(scene)
        except ElizaError as error:
            told["error"] = str(error)
            told["is_memory"] = isinstance(error, OutOfMemory) or isinstance(
                error.__cause__, OutOfMemory
            )
        except BaseException as error:
            told["error"] = told["stranger"] = f"{type(error).__name__}: {error}"
        finally:
            self._preloaded.disarm()
        told["after"] = scene.files()
        try:
            told["answers"] = [*scene.answers(), operation.run(scene)]
        except BaseException as error:
            told["answers"] = f"{type(error).__name__}: {error}"
        sys.stderr.flush()
        return told


def judge(kind: str, told: dict[str, Any], sound: dict[str, Any]) -> tuple[Ended, str]:
    """Return how an operation ended that did not end its process.

    Parameters
    ----------
    kind
        Of the call that failed.
    told
        What the child says of it.
    sound
        What a child says when no call fails.
    """
    if told["answers"] != sound["answers"]:
        return Ended.SPOILT, f"afterwards {told['answers']}, not {sound['answers']}"
    if told["after"] not in (told["before"], sound["after"]):
        return (
            Ended.SPOILT,
            f"left {sorted(told['after'])}, neither the files before nor those after",
        )
    if "stranger" in told:
        return Ended.OTHER_ERROR, told["stranger"]
    if "error" in told:
        if kind == "allocation" and not told["is_memory"]:
            return Ended.OTHER_ERROR, told["error"]
        return Ended.REFUSED, told["error"]
    if told["result"] != sound["result"]:
        return Ended.WRONG, f"{told['result']}, not {sound['result']}"
    if told["after"] != sound["after"]:
        return (
            Ended.WRONG,
            f"it worked, and the files are not those it makes: {sorted(told['after'])}",
        )
    return Ended.WORKED, ""
