"""Measure the memory, objects, files and threads of this process, from Linux's /proc."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import dataclass
from pathlib import Path

MOST_MIB = 3.0
"""Tolerance for the memory: the allocator's variation, far less than a kilobyte per cycle."""


@dataclass(frozen=True)
class Held:
    """The resources of a process at one moment.

    Attributes
    ----------
    mib : float
        Resident memory, in MiB.
    objects : int
        Objects tracked by Python's garbage collector.
    files, threads : int
        Open files and threads.
    """

    mib: float
    objects: int
    files: int
    threads: int

    @staticmethod
    def now() -> Held:
        """Collect garbage, then measure this process."""
        gc.collect()
        # glibc keeps freed memory for later allocations; without the trim it looks like a leak.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return Held(
            mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            objects=len(gc.get_objects()),
            files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
            threads=sum(1 for _ in Path("/proc/self/task").iterdir()),
        )

    def __str__(self) -> str:
        return (
            f"{self.mib:.2f} MiB, {self.objects:,} objects, {self.files} files, "
            f"{self.threads} threads"
        )


def growth(early: Held, late: Held, most_mib: float = MOST_MIB) -> str:
    """Return a description of the resources that grew, or an empty string."""
    grown = [
        f"{name} by {after - before:.2f}"
        for name, before, after, most in (
            ("MiB", early.mib, late.mib, most_mib),
            ("objects", early.objects, late.objects, 100),
            ("files", early.files, late.files, 0),
            ("threads", early.threads, late.threads, 0),
        )
        if after - before > most
    ]
    return ", ".join(grown)
