"""What a process holds, and whether that grew; from Linux's /proc."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MOST_MIB", "Held", "growth"]

MOST_MIB = 3.0
"""What the memory may grow by: an allocator's moods, and far less than a kilobyte a cycle."""


@dataclass(frozen=True)
class Held:
    """What the process holds.

    Attributes
    ----------
    mib : float
        Resident memory.
    objects : int
        That Python's collector knows.
    files, threads : int
    """

    mib: float
    objects: int
    files: int
    threads: int

    @staticmethod
    def now() -> Held:
        """Return what this process holds, garbage collected."""
        gc.collect()
        # Glibc keeps what was freed for whoever asks next: that is nobody's leak.
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
    """Return what grew, and an empty text where nothing did."""
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
