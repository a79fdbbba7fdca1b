"""Define a hostile case: its action, its permitted results, and its limits."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stage import ACTIONS, PROMPT, Stage

from eliza_ffi.model import Model

T = TypeVar("T")


class Must(enum.Enum):
    FAIL = "an error"
    ANSWER = "an answer"
    END = "an error or an answer"


class Broken(AssertionError):  # noqa: N818 - a verdict
    """A case found a deviation."""


def _use(stage: Stage) -> None:
    stage.model.choose(PROMPT, ACTIONS)


@dataclass(frozen=True)
class Case:
    name: str  # the kind, a colon, and a description
    run: Callable[[Stage], Any]  # runs the case; its return value is the answer
    must: Must = Must.END
    says: str = ""  # a regular expression that the message of an error must match
    seconds: float = 2.0  # limits of CPU time, and of additional memory
    mib: float = 200.0
    # Runs first and is not measured. By default, it opens the model. None = the case opens it.
    prepare: Callable[[Stage], object] | None = _use
    # Whether another thread makes choices meanwhile. Each must take less than a second.
    neighbour: bool = False
    address_mib: int = 3000  # limit of additional address space, in MiB


def cases(
    name: str,  # ``{}`` stands for the name of the item
    run: Callable[[T, Stage], Any],
    of: Mapping[str, T],
    must: Must = Must.END,
    **more: Any,  # further fields of `Case`
) -> list[Case]:
    """Return a case for each item, which runs with the item as its first argument."""
    return [Case(name.format(key), partial(run, item), must, **more) for key, item in of.items()]


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU time that this thread needs to call a function."""
    begin = time.thread_time()
    run()
    return time.thread_time() - begin


@contextmanager
def neighbour(model: Model) -> Iterator[list[float]]:
    """Make choices in another stream until the context ends; yield the list of their seconds.

    An error of that stream is raised at the end.
    """
    is_over = threading.Event()
    seconds: list[float] = []

    def choose() -> None:
        while not is_over.wait(0.01):
            begin = time.perf_counter()
            model.choose(PROMPT, ACTIONS)
            seconds.append(time.perf_counter() - begin)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(choose)
        try:
            yield seconds
        finally:
            is_over.set()
        running.result()
