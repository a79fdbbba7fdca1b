"""The machine that figures come from, and what other programs do on it meanwhile."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from eliza_ffi.model import Model

__all__ = [
    "disturbance",
    "machine_facts",
    "machine_line",
    "noting_other_programs",
    "on_cores",
    "one_core_and_the_others",
]


def machine_facts(library: Path | None = None) -> dict[str, Any]:
    """Return what the figures depend on besides the code.

    Parameters
    ----------
    library
        The library that is measured; None = the default one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    with Model(library=library) as model:
        facts = model.describe()
    return {
        "cpu": _cpu_name(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "eliza_ffi": facts["library_version"],
        "llama_cpp": facts["llama_cpp"]["commit"],
        "threads": facts["threads"],
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def machine_line(machine: dict[str, Any]) -> str:
    """Return the facts as one sentence."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, at most {machine['threads']} compute "
        f"threads; {machine['system']}, Python {machine['python']}, numpy {machine['numpy']}; "
        f"eliza-ffi {machine['eliza_ffi']} over llama.cpp {machine['llama_cpp']}; "
        f"{machine['date']}."
    )


def one_core_and_the_others() -> tuple[set[int], set[int]] | None:
    """Return the number of one core and those of the others; None where they cannot be chosen."""
    affinity = getattr(os, "sched_getaffinity", None)
    one, *others = sorted(affinity(0)) if affinity else [0]
    return ({one}, set(others)) if others else None


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run the block on some cores, and the threads and programs that it starts; Linux alone can."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def noting_other_programs(into: MutableMapping[str, Any]) -> Iterator[None]:
    """Set ``other_programs``: the cores that other programs kept busy during the block.

    Programs that the block starts and waits for are none of them. Nothing is set where the system
    does not tell.
    """
    begin, before = time.perf_counter(), _busy_seconds()
    yield
    took, after = time.perf_counter() - begin, _busy_seconds()
    if before is not None and after is not None:
        into["other_programs"] = max((after - before) / took, 0.0)


def disturbance(cells: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a sentence naming the cells during which others took a tenth of a core or more.

    Figures are then worse than they would be, ours and everyone's.
    """
    named = [
        f"{name} ({cell['other_programs']:.1f} cores)"
        for name, cell in cells
        if cell.get("other_programs", 0.0) >= 0.1
    ]
    return f" Disturbed by other programs: {', '.join(named)}." if named else ""


def _cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _busy_seconds() -> float | None:
    """Return the seconds that cores have been busy with anything but this process and its own."""
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    user, nice, system, _idle, _wait, *rest = file.read_text().splitlines()[0].split()[1:]
    ticks = sum(map(int, (user, nice, system, *rest[:3])))
    ended = os.times()
    ours = time.process_time() + ended.children_user + ended.children_system
    return ticks / os.sysconf("SC_CLK_TCK") - ours
