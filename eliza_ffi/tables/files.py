"""What is done to whole files: their hashes, and writing them at once or not at all."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["content_hash", "replace_file"]


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def replace_file(part: Path, path: Path) -> None:
    """Let a file that is written take the place of another one, so that it is there whole."""
    part.replace(path)
    with suppress(OSError):  # not every file system forces a folder onto the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
