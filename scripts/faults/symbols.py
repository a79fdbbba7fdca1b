"""Translate addresses in a library to function names, and tell our code from llama.cpp's."""

from __future__ import annotations

import bisect
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

OURS = ("eliza::", "eliza_inference_", "eliza_test_")
# Code that is attributed to its caller. Code that is neither ours nor neutral is llama.cpp's.
NEUTRAL = (
    *("std::", "__gnu_cxx::", "__cxxabiv1::", "__cxa", "__gxx_personality", "_Unwind"),
    *("nlohmann::", "operator new", "operator delete", "ggml_abort"),
)


class Symbols:
    """The functions of a library that was not stripped."""

    def __init__(
        self,
        library: Path,  # the library's file
        base: int,  # its load address
    ) -> None:
        self._base = base
        command = ["nm", "--numeric-sort", "--defined-only", "--print-size", str(library)]
        mangled = subprocess.run(command, capture_output=True, check=True).stdout
        plain = ["c++filt", "--no-params"]
        listed = subprocess.run(plain, input=mangled, capture_output=True, check=True).stdout
        found = re.findall(r"^(\w+) (\w+) [tTwWi] (.+)$", listed.decode(), flags=re.MULTILINE)
        self._begins = [int(begin, 16) for begin, _, _ in found]
        self._ends = [int(begin, 16) + int(size, 16) for begin, size, _ in found]
        self._names = [name for _, _, name in found]

    def names(self, addresses: Iterable[int]) -> list[str]:
        """Return the functions at the addresses; addresses outside the library are left out."""
        names = (self._name(address - self._base) for address in addresses)
        return [name for name in names if name]

    def _name(self, offset: int) -> str:
        # If the callee never returns, the return address may lie after the end of the caller.
        at = bisect.bisect_right(self._begins, offset - 1) - 1
        return self._names[at] if at >= 0 and offset - 1 < self._ends[at] else ""


def blamed(names: Sequence[str]) -> tuple[str, str]:
    """Return whose code a stack is in, and the innermost function of that owner.

    The names begin with the innermost function. The owner is ``"ours"``, ``"llama.cpp"`` or
    ``"nobody"``.
    """
    for name in names:
        if name.startswith(OURS):
            return "ours", name
        if not name.startswith(NEUTRAL):
            return "llama.cpp", name
    return "nobody", ""


def our_caller(names: Sequence[str]) -> str:
    """Return our innermost function in a stack, or an empty string."""
    return next((name for name in names if name.startswith(OURS)), "")
