"""A file that rows are appended to, and that goes on where it was broken off.

What is on disk when a process is killed, at any byte, is: the rows that were appended, in order,
and after them at most one that is half written. That is cut off when the file is opened again.
After a loss of power, rows of the last two seconds can be missing or garbled as well; they are cut
off, too.

Beside the file lies another one, ``FILE.job``, that says what it is the output of. It is there
before the first row is, so that nothing is ever appended to the output of something else, and only
who holds the growing file looks at it and writes it.

Other programs can still delete, replace or change the file while it grows. The writer keeps the
size and the hash of the bytes that it wrote. It compares the size with the file's every two
seconds, and both at the end.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import ElizaError, InvalidArgumentError
from .columns import ROW
from .files import content_hash, replace_file, sync_folder
from .formats import RowFormat

__all__ = ["JobFile", "Journal"]

SYNC_SECONDS = 2.0
"""How often what was appended is forced onto the disk."""

JOB_FORMAT = 1

WHOLE, ROWS = "whole", "rows"


class JobFile:
    """What an output is the output of: a JSON file beside it.

    Parameters
    ----------
    output
    """

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(output.name + ".job")
        self._output = output

    def exists(self) -> bool:
        """Whether a job has been begun."""
        return self.path.exists()

    def write(self, job: Mapping[str, Any], *, n_rows: int | None = None) -> None:
        """Write what the output is of, at once or not at all.

        Parameters
        ----------
        job
        n_rows
            The number of rows of the finished output; None if it is not finished.
        """
        said = {"format": JOB_FORMAT, WHOLE: n_rows is not None, ROWS: n_rows, **job}
        text = json.dumps(said, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))  # an escape of JSON, too
            file.flush()
            os.fsync(file.fileno())
        replace_file(part, self.path)

    def check(self, job: Mapping[str, Any]) -> None:
        """Raise InvalidArgumentError if the output is that of another job."""
        said = self._read()
        wanted = json.loads(json.dumps({"format": JOB_FORMAT, **job}))
        names = {*wanted, *said} - {WHOLE, ROWS}
        other = [name for name in names if said.get(name) != wanted.get(name)]
        if other:
            listed = ", ".join(name.replace("_", " ") for name in sorted(other))
            raise InvalidArgumentError(
                f"{self._output} was begun with other settings: {listed}; give those, another "
                f"output, or --overwrite"
            )

    @property
    def is_whole(self) -> bool:
        """Whether the output has all rows."""
        return self._read().get(WHOLE) is True

    def check_rows(self, n_rows: int) -> None:
        """Raise InvalidArgumentError if a finished output has lost or gained rows."""
        wanted = self._read().get(ROWS, n_rows)  # version 0.2.0 did not write it
        if n_rows != wanted:
            raise InvalidArgumentError(
                f"{self._output} was changed after the job: expected {wanted} rows, found "
                f"{n_rows}; decide all rows again with --overwrite"
            )

    def _read(self) -> dict[str, Any]:
        try:
            said = json.loads(self.path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{self.path} is damaged: {error}") from error
        return said if isinstance(said, dict) else {}


class Journal:
    """A growing file of rows, held by one process at a time.

    It is held from here on, and read by :meth:`begin`.

    Parameters
    ----------
    path
        Made where it is not there.
    rows
        Its format.

    Attributes
    ----------
    n_rows : int
        Rows in it; known once it is begun.

    Raises
    ------
    ElizaError
        If another process has it open.
    """

    def __init__(self, path: Path, rows: RowFormat) -> None:
        self.path = path
        self.n_rows = 0
        self._rows = rows
        self._size = 0
        self._hash = hashlib.sha256()
        self._file = self._locked()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the file, or was no file."""
        return os.fstat(self._file).st_size == 0

    def clear(self) -> None:
        """Let what is in the file go."""
        os.ftruncate(self._file, 0)
        self._sync()

    def begin(self) -> None:
        """Find the end of the rows, and cut off what is behind it.

        Raises
        ------
        InvalidArgumentError
            If there is something in the file that is neither a row nor the rest of one.
        """
        os.ftruncate(self._file, self._end_of_rows())
        os.lseek(self._file, 0, os.SEEK_SET)
        while piece := os.read(self._file, 2**20):
            self._note(piece)
        if self._size == 0:
            self._write(self._rows.header)
        self._sync()
        sync_folder(self.path)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def remove(self) -> None:
        """Remove the file, while it is held."""
        self.path.unlink()

    def check(self) -> None:
        """Raise ElizaError if the file on disk does not hold the bytes that were written."""
        self._check_size()
        if content_hash(self.path) != self._hash.hexdigest():
            raise ElizaError(
                f"{self.path} was changed by another program while the job was writing it: start "
                f"again with --overwrite"
            )

    def move_to(self, path: Path) -> None:
        """Check the file and let it take another file's place, while it is held."""
        self._sync()
        self.check()
        replace_file(self.path, path)
        self.path = path

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._sync()
        finally:
            self.close()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Read all rows, from the first."""
        for cells, _ in self._rows.read(self.path):
            assert cells is not None, "they were looked at when the file was opened"
            yield cells

    def append(self, cells: Mapping[str, Any]) -> None:
        """Write one row behind the others."""
        self._write(self._rows.encode(cells))
        self.n_rows += 1
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self._sync()
            self._check_size()

    def _locked(self) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._lock(file)
                # Who held it until now may have removed it, or put another in its place.
                if self._is_at_path(file):
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise ElizaError(f"another process is writing {self.path}") from error
            # Some network file systems have no locks; there nobody watches.

    def _is_at_path(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except FileNotFoundError:
            return False

    def _end_of_rows(self) -> int:
        """Return the offset behind the last whole row, 0 where not even the header is whole."""
        size = os.fstat(self._file).st_size
        begun = os.pread(self._file, len(self._rows.beginning), 0)
        if not self._rows.beginning.startswith(begun):
            raise self._is_other(1)
        end = len(self._rows.header)
        if size < end:
            return 0
        is_broken = False
        for cells, offset in self._rows.read(self.path):
            if cells is None:
                is_broken = True
            elif is_broken or cells[ROW] != self.n_rows + 1:
                # A whole row where none belongs: this is no rest of one that was broken off.
                raise self._is_other(self.n_rows + 1)
            else:
                self.n_rows += 1
                end = offset
        return end

    def _is_other(self, number: int) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self.path} was changed: where row {number} belongs is something else; cut the file "
            f"there to go on, or begin anew with --overwrite"
        )

    def _check_size(self) -> None:
        if not self._is_at_path(self._file):
            raise ElizaError(
                f"{self.path} was deleted, moved or replaced while the job was writing it: run the "
                f"job again"
            )
        size = os.fstat(self._file).st_size
        if size != self._size:
            raise ElizaError(
                f"{self.path} was changed by another program while the job was writing it: "
                f"expected {self._size:,} bytes, found {size:,}; start again with --overwrite"
            )

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            n_written = os.write(self._file, left)
            self._note(left[:n_written])
            left = left[n_written:]

    def _note(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._size += len(data)

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()
