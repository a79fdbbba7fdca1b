"""Describe the machine, and record how busy other programs kept it during a measurement."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from eliza_ffi.model import Model

DISTURBED = 0.1
"""A measurement is disturbed if other programs keep this many cores busy."""


def machine_facts() -> dict[str, Any]:
    """Return the properties of the machine and the versions that figures depend on."""
    affinity = getattr(os, "sched_getaffinity", None)
    with Model() as model:
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
    """Return the facts of `machine_facts` as one line of text."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, at most {machine['threads']} compute "
        f"threads; {machine['system']}, Python {machine['python']}, numpy {machine['numpy']}; "
        f"eliza-ffi {machine['eliza_ffi']} (llama.cpp {machine['llama_cpp']}); "
        f"{machine['date']}."
    )


@contextmanager
def noting_other_programs(
    into: MutableMapping[str, Any],  # gets ``other_programs`` and ``seconds``
    name: str = "",  # if not empty, the name and the duration are reported on standard error
) -> Iterator[None]:
    """Store how many cores other programs kept busy in the block, and the duration of the block.

    Programs that the block starts and waits for do not count. If the system does not report this,
    only the duration is stored.
    """
    begin, before = time.perf_counter(), _busy_seconds()
    yield
    took, after = time.perf_counter() - begin, _busy_seconds()
    into["seconds"] = took
    if before is not None and after is not None:
        into["other_programs"] = max((after - before) / took, 0.0)
    if name:
        print(f"{name}: {took:.0f} s", file=sys.stderr)


def disturbance(cells: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a sentence that names the disturbed rows; it is empty if there are none."""
    named = [
        f"{cell['other_programs']:.1f} cores in the rows for {name}"
        for name, cell in cells
        if cell.get("other_programs", 0.0) >= DISTURBED
    ]
    listed = ", ".join(named)
    return f" Other programs used the processor at the same time: {listed}." if named else ""


def _cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _busy_seconds() -> float | None:
    """Return the CPU seconds of all programs except this process and its finished children.

    Returns None if the system has no ``/proc/stat``.
    """
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    user, nice, system, _idle, _wait, *rest = file.read_text().splitlines()[0].split()[1:]
    ticks = sum(map(int, (user, nice, system, *rest[:3])))
    ended = os.times()
    ours = time.process_time() + ended.children_user + ended.children_system
    return ticks / os.sysconf("SC_CLK_TCK") - ours
