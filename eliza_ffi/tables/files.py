"""Hash a file, and replace a file atomically."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["content_hash", "replace_file"]


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def replace_file(part: Path, path: Path) -> None:
    """Move the finished file `part` to `path`, replacing a file there atomically."""
    part.replace(path)
    with suppress(OSError):  # not every file system can flush a folder to the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
