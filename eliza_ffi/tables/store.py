"""Store the finished rows of a job in an append-only file next to the output.

Every line is a checksum and a fact as JSON: first the description of the job, then rows, and facts
such as the hash of an output. The last line of a row counts, so that rows can be decided again.

A killed process loses no rows, because every line is written at once. A power failure can lose the
rows of the last two seconds, which are then decided again. A damaged line ends the file: the next
run cuts the rest off.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from ..errors import ElizaError, InvalidArgumentError
from .columns import ERROR, ROW
from .rows import json_bytes

SYNC_SECONDS = 2.0
"""Interval at which the rows are flushed to the disk."""

FORMAT = 3
"""The version of the file's format."""


class JobStore:
    """The file ``OUTPUT.job``: the rows of one output, and a description of their job.

    `description` has everything that the answers depend on, as JSON. `overwrite` discards the rows
    and the output of an earlier job. The file is locked until the store is closed.

    Attributes
    ----------
    facts : dict
        What :meth:`note` stored.
    end : int
        The length of the file in bytes.
    failed : set of int
        The numbers of the rows with errors.

    Raises
    ------
    InvalidArgumentError
        If the output exists and does not belong to this job.
    ElizaError
        If another process is running the job, or the file cannot be written.
    """

    def __init__(self, output: Path, description: Mapping[str, Any], *, overwrite: bool) -> None:
        self.path = output.with_name(output.name + ".job")
        self._output = output
        self._description = json.loads(json.dumps(description))
        if output.exists() and not self.path.exists() and not overwrite:
            raise InvalidArgumentError(
                f"{output} exists, but {self.path.name} does not, so the job cannot be resumed: "
                f"give another output, or --overwrite"
            )
        self._synced = time.monotonic()
        self._file = self.path.open("ab", buffering=0)
        self._reader = self.path.open("rb")  # it stays readable if somebody deletes it
        try:
            lock(self._file, output)
            if overwrite:
                self._file.truncate(0)
                output.unlink(missing_ok=True)
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._reader.close()
        self._file.close()

    @property
    def n_rows(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the cells of all rows, from the first."""
        return (fact["cells"] for fact in self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, place in enumerate(self._places, 1):
            self._reader.seek(place)
            fact = _fact(self._reader.readline())
            if fact is None or "cells" not in fact or fact["cells"][ROW] != number:
                raise ElizaError(
                    f"{self.path} was changed by another program: row {number} is missing"
                )
            yield fact

    def kept(self) -> Iterator[str | None]:
        """Yield what is kept of each row, from the first."""
        return (fact.get("kept") for fact in self._rows())

    def append(self, cells: Mapping[str, Any], kept: str | None = None) -> None:
        """Store a row: the next one, or an earlier one that was decided again."""
        self._write({"cells": cells} if kept is None else {"cells": cells, "kept": kept})
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self._sync()

    def note(self, **facts: Any) -> None:
        """Store facts, and replace earlier facts with the same names."""
        self._write(facts)

    def cut(self, end: int) -> None:
        """Discard all rows and facts after the first `end` bytes of the file."""
        self._file.truncate(end)
        self._scan()

    def note_output(self, part: Path) -> None:
        """Record the hash of a file with all rows, before the file replaces the output."""
        self.note(output=content_hash(part))
        self._sync()

    def is_written(self) -> bool:
        """Return whether the output exists and has all rows in their current state."""
        return self._written is not None and self._hash_of_output() == self._written

    def _begin(self) -> None:
        self._scan()
        if self.path.stat().st_size and not self.facts:
            raise InvalidArgumentError(
                f"{self.path} is damaged or from another version of eliza-ffi: expected the rows "
                f"of a job; give another output, or --overwrite"
            )
        found = self.facts.get("format", FORMAT)
        if found != FORMAT:
            raise InvalidArgumentError(
                f"{self.path} has another format: expected {FORMAT}, found {found}; give another "
                f"output, or --overwrite"
            )
        if self._output.exists() and self._hash_of_output() not in self._outputs:
            raise InvalidArgumentError(
                f"{self._output} was changed after the job wrote it: give another output, or "
                f"--overwrite"
            )
        if self.n_rows:
            self._check(self.facts["job"])
            self._file.truncate(self.end)
            return
        # Without rows, nothing depends on the settings of the earlier job.
        self._output.unlink(missing_ok=True)
        self.cut(0)
        self.note(format=FORMAT, job=self._description)

    def _check(self, stored: Mapping[str, Any]) -> None:
        """Raise InvalidArgumentError if the rows belong to another job."""
        ours = self._description
        other = [name for name in {*ours, *stored} if stored.get(name) != ours.get(name)]
        if other:
            listed = ", ".join(name.replace("_", " ") for name in sorted(other))
            raise InvalidArgumentError(
                f"{self._output} was started with different settings: {listed}; use the same "
                f"settings, another output, or --overwrite"
            )

    def _scan(self) -> None:
        """Read the facts and find the rows, up to the first damaged line."""
        self._places = array("q")
        self.failed: set[int] = set()
        self.facts: dict[str, Any] = {}
        self._outputs: set[str] = set()
        self._written: str | None = None
        self.end = 0
        self._reader.seek(0)
        for line in self._reader:
            fact = _fact(line)
            if fact is None or not self._take(fact):
                return
            self.end += len(line)

    def _take(self, fact: Mapping[str, Any]) -> bool:
        """Note the fact of a line at the end; return False if rows before it are missing."""
        if "cells" not in fact:
            self.facts.update(fact)
            if "output" in fact:
                self._written = fact["output"]
                self._outputs.add(fact["output"])
            return True
        number = fact["cells"][ROW]
        if number == self.n_rows + 1:
            self._places.append(self.end)
        elif number <= self.n_rows:
            self._places[number - 1] = self.end
        else:
            return False
        self._written = None
        (self.failed.discard if fact["cells"][ERROR] is None else self.failed.add)(number)
        return True

    def _write(self, fact: Mapping[str, Any]) -> None:
        data = json_bytes(fact)
        line = b"%08x %s\n" % (crc32(data), data)
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise ElizaError(f"{self.path}: {error.strerror}; run the job again") from error
        self._take(fact)
        self.end += len(line)

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _hash_of_output(self) -> str | None:
        return content_hash(self._output) if self._output.exists() else None


def _fact(line: bytes) -> dict[str, Any] | None:
    """Return the fact of a line; None if the line is damaged."""
    data = line[9:-1]
    if not line.endswith(b"\n") or line[:9] != b"%08x " % crc32(data):
        return None
    fact: dict[str, Any] = json.loads(data)
    return fact


def lock(file: io.FileIO, output: Path) -> None:
    """Lock a file until it is closed; raise ElizaError if another process has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(2**62)  # other processes cannot read a locked byte
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ElizaError(f"another process is writing {output}") from None


def content_hash(path: Path) -> str:
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
