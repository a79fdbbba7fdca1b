"""The decided rows of a job, in an SQLite database beside the output.

Every row is committed when it is added, so a killed process loses none. After a loss of power the
rows of the last two seconds can be missing; they are decided again.

One process at a time holds the database. Its write-ahead log therefore needs no shared memory, and
works on network file systems that have file locks, too.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import ElizaError, InvalidArgumentError
from .columns import ROW, has_error
from .files import content_hash

__all__ = ["JobStore"]

SYNC_SECONDS = 2.0
"""How often the rows are forced onto the disk."""

LOCK_SECONDS = 0.5
"""How long to try to lock the database."""

FORMAT = 2
"""The version of the tables below."""

TABLES = f"""
    PRAGMA user_version = {FORMAT};
    CREATE TABLE IF NOT EXISTS job (description TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS rows (
        number INTEGER PRIMARY KEY, failed INTEGER NOT NULL, cells TEXT NOT NULL
    );
    -- Rows decided again. They replace the others when all of them are there.
    CREATE TABLE IF NOT EXISTS retried (
        number INTEGER PRIMARY KEY, failed INTEGER NOT NULL, cells TEXT NOT NULL
    );
    -- The hash of every output that was written, and its number of rows while these are the same.
    CREATE TABLE IF NOT EXISTS outputs (hash TEXT PRIMARY KEY, n_rows INTEGER);
"""


class JobStore:
    """The rows of one output and what they are the rows of: ``OUTPUT.job``.

    Parameters
    ----------
    output
    description
        All that the answers depend on, as JSON.
    overwrite
        Forget the rows of an earlier job, and remove its output.

    Attributes
    ----------
    n_rows : int
        Rows in it.

    Raises
    ------
    InvalidArgumentError
        If there is an output that is not of this job.
    ElizaError
        If another process is running the job, or the database cannot be written.
    """

    def __init__(self, output: Path, description: Mapping[str, Any], *, overwrite: bool) -> None:
        self.path = output.with_name(output.name + ".job")
        self.n_rows = 0
        self._output = output
        self._description = description
        self._synced = time.monotonic()
        if output.exists() and not self.path.exists() and not overwrite:
            raise InvalidArgumentError(
                f"{output} exists, and {self.path.name} is not beside it to say what it is of: "
                f"give another output, or --overwrite"
            )
        self._database = self._open(overwrite)
        try:
            with self._told_errors():
                self._begin(overwrite)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> JobStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read all rows, from the first."""
        with self._told_errors():
            found = self._database.execute("SELECT number, cells FROM rows ORDER BY number")
            n_read = 0
            for n_read, (number, cells) in enumerate(found, 1):
                if number != n_read:
                    break
                yield json.loads(cells)
            if n_read != self.n_rows:
                raise ElizaError(
                    f"{self.path} was changed by another program: row {n_read + 1} is missing"
                )

    def append(self, cells: Mapping[str, Any]) -> None:
        """Add the row behind the others."""
        self._insert("rows", cells)
        self.n_rows = cells[ROW]

    def failed(self, limit: int | None) -> set[int]:
        """Return the numbers of the rows up to a limit that have an error and are not retried."""
        with self._told_errors():
            found = self._database.execute(
                "SELECT number FROM rows WHERE failed AND number <= ?"
                " AND number NOT IN (SELECT number FROM retried)",
                [self.n_rows if limit is None else limit],
            )
            return {number for (number,) in found}

    def add_retried(self, cells: Mapping[str, Any]) -> None:
        """Note a row that was decided again."""
        self._insert("retried", cells)

    def take_retried(self) -> None:
        """Let the rows that were decided again take the place of the others."""
        with self._told_errors(), self._transaction():
            self._database.execute("INSERT OR REPLACE INTO rows SELECT * FROM retried")
            if self._database.execute("DELETE FROM retried").rowcount:
                self._database.execute("UPDATE outputs SET n_rows = NULL")

    def forget_retried(self) -> None:
        """Forget the rows that were decided again."""
        with self._told_errors():
            self._database.execute("DELETE FROM retried")

    def make_useless(self) -> None:
        """See to it that no run goes on with these rows."""
        with self._told_errors():
            said = json.dumps({**self._description, "input": None})
            self._database.execute("UPDATE job SET description = ?", [said])

    def note_output(self, part: Path) -> None:
        """Note a file with all rows, before it takes the output's place."""
        with self._told_errors():
            self._database.execute(
                "INSERT OR REPLACE INTO outputs VALUES (?, ?)", [content_hash(part), self.n_rows]
            )

    def is_written(self) -> bool:
        """Return whether the output has all rows, as they are now."""
        with self._told_errors():
            return self._output.exists() and self._noted_output() == (self.n_rows,)

    def _open(self, overwrite: bool) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if "not a database" not in str(error):
                raise ElizaError(f"{self.path}: {error}") from error
        if not overwrite:
            raise InvalidArgumentError(
                f"{self.path} is damaged, or of another version of eliza-ffi: expected an SQLite "
                f"database of decided rows; give another output, or --overwrite"
            )
        self.path.unlink()
        return self._open(overwrite=False)

    def _connect(self) -> sqlite3.Connection:
        """Open the database and hold it."""
        end = time.monotonic() + LOCK_SECONDS
        while True:
            database = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            try:
                # Before the first access, so that the write-ahead log needs no shared memory.
                database.execute("PRAGMA locking_mode = EXCLUSIVE")
                database.execute("PRAGMA journal_mode = WAL")
                # Forced onto the disk at a checkpoint, not at every commit.
                database.execute("PRAGMA synchronous = NORMAL")
                database.execute("BEGIN EXCLUSIVE").execute("COMMIT")
                return database
            except BaseException as error:
                database.close()
                if "locked" not in str(error):
                    raise
                if time.monotonic() > end:
                    raise ElizaError(f"another process is writing {self._output}") from None
            # Two that begin together can lock each other out, but not again and again.
            time.sleep(random.uniform(0.0, 0.05))

    def _begin(self, overwrite: bool) -> None:
        if overwrite:
            self._output.unlink(missing_ok=True)
            self._drop_tables()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT):
            raise InvalidArgumentError(
                f"{self.path} has another format: expected {FORMAT}, found {version}; give "
                f"another output, or --overwrite"
            )
        self._database.executescript(TABLES)
        if self._output.exists() and self._noted_output() is None:
            raise InvalidArgumentError(
                f"{self._output} was changed after the job wrote it: give another output, or "
                f"--overwrite"
            )
        (last,) = self._database.execute("SELECT max(number) FROM rows").fetchone()
        if last is not None:
            self.n_rows = last
            self._check()
            return
        # Where there is no row yet, no other job's settings have answered any.
        self._output.unlink(missing_ok=True)
        self._database.execute("DELETE FROM job")
        self._database.execute("INSERT INTO job VALUES (?)", [json.dumps(self._description)])

    def _drop_tables(self) -> None:
        with self._transaction():
            for table in ("job", "rows", "retried", "outputs"):
                self._database.execute(f"DROP TABLE IF EXISTS {table}")
            self._database.execute("PRAGMA user_version = 0")
        self._database.execute("VACUUM")  # which gives the disk their space back

    def _check(self) -> None:
        """Raise InvalidArgumentError if the rows are those of another job."""
        (text,) = self._database.execute("SELECT description FROM job").fetchone()
        said = json.loads(text)
        wanted = json.loads(json.dumps(self._description))
        other = [name for name in {*wanted, *said} if said.get(name) != wanted.get(name)]
        if other:
            listed = ", ".join(name.replace("_", " ") for name in sorted(other))
            raise InvalidArgumentError(
                f"{self._output} was begun with other settings: {listed}; give those, another "
                f"output, or --overwrite"
            )

    def _noted_output(self) -> tuple[int | None] | None:
        """Return the row of the table of outputs that is of the file there is now."""
        found: tuple[int | None] | None = self._database.execute(
            "SELECT n_rows FROM outputs WHERE hash = ?", [content_hash(self._output)]
        ).fetchone()
        return found

    def _insert(self, table: str, cells: Mapping[str, Any]) -> None:
        text = json.dumps(cells, ensure_ascii=False, allow_nan=False)
        text = text.encode("utf-8", "backslashreplace").decode()  # an escape of JSON, too
        with self._told_errors():
            self._database.execute(
                f"INSERT INTO {table} VALUES (?, ?, ?)", [cells[ROW], has_error(cells), text]
            )
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                self._database.execute("PRAGMA wal_checkpoint")
                self._synced = time.monotonic()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        """Say of which file an error of SQLite is."""
        try:
            yield
        except sqlite3.Error as error:
            raise ElizaError(f"{self.path}: {error}; run the job again") from error
