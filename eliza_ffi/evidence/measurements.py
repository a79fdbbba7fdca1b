"""Measurements of a model, kept in files, so that a new process need not repeat them.

The probes of :mod:`.auto_prompts` and the prior of a question depend on no input. On a CPU they
take as long as dozens of decisions.

The name of a file is a hash of everything that the numbers depend on: the version of the package,
the model's fingerprint, and the tokens and labels that the model read. The file has only numbers.
So neither shows a question's text. A damaged file is ignored. If the folder cannot be written,
nothing is kept. The :data:`MAX_FILES` most recently used files are kept.

The environment variable :data:`VARIABLE` names another folder than ``measurements`` in the user's
cache, or is ``off``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..decisions.fingerprint import fingerprint_once
from ..errors import ElizaError
from ..structured.json_text import json_text
from .json_fields import replace_file

if TYPE_CHECKING:
    from ..session.scoring import ScoreArgs
    from ..session.session import Session

VARIABLE = "ELIZA_FFI_MEASUREMENTS"
"""The variable with the folder of the files, or ``off``."""

MAX_FILES = 500
"""The number of files that are kept. A file has at most a few kilobytes."""

Numbers = Mapping[str, Sequence[float]]


def folder() -> Path | None:
    """Return the folder of the files; None if nothing is kept."""
    named = os.environ.get(VARIABLE)
    if named == "off":
        return None
    with suppress(RuntimeError):  # the home directory is unknown
        if named:
            return Path(named).expanduser()
        if own := os.environ.get("ELIZA_FFI_CACHE"):
            return Path(own).expanduser() / "measurements"
        xdg = os.environ.get("XDG_CACHE_HOME")
        return (Path(xdg) if xdg else Path.home() / ".cache") / "eliza-ffi" / "measurements"
    return None


def key_of(session: Session, args: ScoreArgs) -> str | None:
    """Return the name of the numbers that these prompts give; None if nothing is kept."""
    from .. import __version__  # later: it reads the metadata of the package

    if folder() is None:
        return None
    try:
        model = fingerprint_once(session).partition("+")[0]  # without an encoder
    except ElizaError:  # elizaOS's own library, or the model's file is gone
        return None
    read = [
        [
            list(prompt.tokens),
            [[list(each.tokens), list(each.choices.texts), each.lead] for each in prompt.endings],
        ]
        for prompt in args.prompts
    ]
    content = json_text([__version__, model, args.full, read])
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def find(key: str | None, sizes: Mapping[str, int]) -> dict[str, list[float]] | None:
    """Return the numbers of a key; None if they are unknown.

    `sizes` has how many numbers there must be by each name.
    """
    root = folder()
    if key is None or root is None:
        return None
    path = root / f"{key}.json"
    try:
        content: Any = json.loads(path.read_bytes())
        found = {name: [float(each) for each in content["numbers"][name]] for name in sizes}
        if content["sha256"] != _digest(found):
            return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not _are_finite(found) or {name: len(numbers) for name, numbers in found.items()} != sizes:
        return None
    with suppress(OSError):
        os.utime(path)  # it is used now
    return found


def keep(key: str | None, numbers: Numbers) -> None:
    """Write the numbers of a key, if possible."""
    root = folder()
    if key is None or root is None or not _are_finite(numbers):
        return
    content = {"sha256": _digest(numbers), "numbers": {name: [*numbers[name]] for name in numbers}}
    with suppress(OSError):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(root / f"{key}.json", json_text(content))
        _remove_oldest(root)


def _remove_oldest(root: Path) -> None:
    used: list[tuple[float, Path]] = []
    for path in root.iterdir():
        with suppress(OSError):  # another process removed it
            used.append((path.stat().st_mtime, path))
    for _, path in sorted(used)[: max(0, len(used) - MAX_FILES)]:
        with suppress(OSError):
            path.unlink()


def _are_finite(numbers: Numbers) -> bool:
    return all(math.isfinite(each) for listed in numbers.values() for each in listed)


def _digest(numbers: Numbers) -> str:
    exact = {name: [float(each).hex() for each in numbers[name]] for name in sorted(numbers)}
    return hashlib.sha256(json_text(exact).encode()).hexdigest()
