"""Store the decided rows of a job in an SQLite database next to the output.

Every row is committed when it is added, so a killed process loses no rows. A power failure can lose
the rows of the last two seconds, which are then decided again.

Only one process at a time opens the database, with an exclusive lock. Its write-ahead log therefore
needs no shared memory, and works on network file systems that support file locks.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import ElizaError, InvalidArgumentError
from .columns import ERROR, ROW
from .rows import json_bytes

SYNC_SECONDS = 2.0
"""Interval at which the rows are flushed to the disk."""

LOCK_SECONDS = 0.5
"""Time limit for locking the database."""

FORMAT = 2
"""The version of the database schema."""

TABLES = f"""
    PRAGMA user_version = {FORMAT};
    CREATE TABLE IF NOT EXISTS job (description TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS rows (
        number INTEGER PRIMARY KEY, failed INTEGER NOT NULL, cells TEXT NOT NULL
    );
    -- Rows that were decided again. They replace the old rows when all of them are decided.
    CREATE TABLE IF NOT EXISTS retried (
        number INTEGER PRIMARY KEY, failed INTEGER NOT NULL, cells TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS priors (text TEXT NOT NULL);
    -- The hash of every output that was written. n_rows is NULL after the rows have changed.
    CREATE TABLE IF NOT EXISTS outputs (hash TEXT PRIMARY KEY, n_rows INTEGER);
"""


class JobStore:
    """The file ``OUTPUT.job``: the `n_rows` rows of one output, and a description of their job.

    `description` has everything that the answers depend on, as JSON. `overwrite` discards the rows
    and the output of an earlier job.

    Raises
    ------
    InvalidArgumentError
        If the output exists and does not belong to this job.
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
                f"{output} exists, but {self.path.name} does not, so the job cannot be resumed: "
                f"give another output, or --overwrite"
            )
        self._database = self._open(overwrite)
        try:
            with self._named_errors():
                self._begin(overwrite)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> JobStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all rows, from the first."""
        with self._named_errors():
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

    def prior(self) -> str | None:
        """Return the prior that :meth:`keep_prior` stored; None if there is none."""
        found = self._execute("SELECT text FROM priors").fetchone()
        return None if found is None else str(found[0])

    def keep_prior(self, text: str) -> None:
        self._execute("INSERT INTO priors VALUES (?)", [text])

    def append(self, cells: Mapping[str, Any]) -> None:
        self._insert("rows", cells)
        self.n_rows = cells[ROW]

    def failed(self, limit: int | None) -> set[int]:
        """Return the numbers of the rows with errors, up to a limit, that are not yet retried."""
        with self._named_errors():
            found = self._database.execute(
                "SELECT number FROM rows WHERE failed AND number <= ?"
                " AND number NOT IN (SELECT number FROM retried)",
                [self.n_rows if limit is None else limit],
            )
            return {number for (number,) in found}

    def add_retried(self, cells: Mapping[str, Any]) -> None:
        """Store a row that was decided again."""
        self._insert("retried", cells)

    def replace_retried(self) -> None:
        """Replace the old rows by the rows that were decided again."""
        with self._named_errors(), self._database:  # commits, or rolls back
            self._database.execute("BEGIN")
            self._database.execute("INSERT OR REPLACE INTO rows SELECT * FROM retried")
            if self._database.execute("DELETE FROM retried").rowcount:
                self._database.execute("UPDATE outputs SET n_rows = NULL")

    def forget_retried(self) -> None:
        self._execute("DELETE FROM retried")

    def invalidate(self) -> None:
        """Change the description of the job, so that no run resumes with these rows."""
        description = json.dumps({**self._description, "input": None})
        self._execute("UPDATE job SET description = ?", [description])

    def note_output(self, part: Path) -> None:
        """Record the hash of a file with all rows, before the file replaces the output."""
        values = [content_hash(part), self.n_rows]
        self._execute("INSERT OR REPLACE INTO outputs VALUES (?, ?)", values)

    def is_written(self) -> bool:
        """Return whether the output exists and has all rows in their current state."""
        with self._named_errors():
            return self._output.exists() and self._noted_output() == (self.n_rows,)

    def _open(self, overwrite: bool) -> sqlite3.Connection:
        """Open the database. With `overwrite`, empty it, or replace it if it is damaged."""
        with self._named_errors():
            try:
                database = self._connect()
                if not overwrite:
                    return database
                try:
                    _drop_tables(database)
                except BaseException:
                    database.close()
                    raise
                return database
            except sqlite3.DatabaseError as error:
                if not (overwrite and _is_damage(error)):
                    raise
        for suffix in ("", "-wal", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return self._open(overwrite=False)

    def _connect(self) -> sqlite3.Connection:
        """Open the database and lock it."""
        end = time.monotonic() + LOCK_SECONDS
        while True:
            database = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            try:
                # Set this before the first access, so that the write-ahead log needs no shared
                # memory.
                database.execute("PRAGMA locking_mode = EXCLUSIVE")
                database.execute("PRAGMA journal_mode = WAL")
                # Flush to the disk at checkpoints, not at every commit.
                database.execute("PRAGMA synchronous = NORMAL")
                database.execute("BEGIN EXCLUSIVE").execute("COMMIT")
                return database
            except BaseException as error:
                database.close()
                if "locked" not in str(error):
                    raise
                if time.monotonic() > end:
                    raise ElizaError(f"another process is writing {self._output}") from None
            # Two processes that start together can block each other. The random delay ends this.
            time.sleep(random.uniform(0.0, 0.05))

    def _begin(self, overwrite: bool) -> None:
        if overwrite:
            self._output.unlink(missing_ok=True)
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
        # Without rows, nothing depends on the settings of the earlier job.
        self._output.unlink(missing_ok=True)
        self._database.execute("DELETE FROM job")
        self._database.execute("DELETE FROM priors")
        self._database.execute("INSERT INTO job VALUES (?)", [json.dumps(self._description)])

    def _check(self) -> None:
        """Raise InvalidArgumentError if the rows belong to another job."""
        (text,) = self._database.execute("SELECT description FROM job").fetchone()
        stored = json.loads(text)
        ours = json.loads(json.dumps(self._description))
        other = [name for name in {*ours, *stored} if stored.get(name) != ours.get(name)]
        if other:
            listed = ", ".join(name.replace("_", " ") for name in sorted(other))
            raise InvalidArgumentError(
                f"{self._output} was started with different settings: {listed}; use the same "
                f"settings, another output, or --overwrite"
            )

    def _noted_output(self) -> tuple[int | None] | None:
        """Return the entry of the table `outputs` for the current output file; None if unknown."""
        found: tuple[int | None] | None = self._database.execute(
            "SELECT n_rows FROM outputs WHERE hash = ?", [content_hash(self._output)]
        ).fetchone()
        return found

    def _insert(self, table: str, cells: Mapping[str, Any]) -> None:
        values = [cells[ROW], cells[ERROR] is not None, json_bytes(cells).decode()]
        self._execute(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self._execute("PRAGMA wal_checkpoint")
            self._synced = time.monotonic()

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self._named_errors():
            return self._database.execute(statement, values)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Add the path of the database to SQLite's errors."""
        try:
            yield
        except sqlite3.Error as error:
            if _is_damage(error):
                raise InvalidArgumentError(
                    f"{self.path} is damaged or from another version of eliza-ffi: expected an "
                    f"SQLite database of decided rows; give another output, or --overwrite"
                ) from error
            raise ElizaError(f"{self.path}: {error}; run the job again") from error


def _drop_tables(database: sqlite3.Connection) -> None:
    with database:
        database.execute("BEGIN")
        for table in ("job", "rows", "retried", "outputs", "priors"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute("PRAGMA user_version = 0")
    database.execute("VACUUM")  # returns the space to the file system


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether a file is not an intact database; a full disk, for example, is no damage."""
    return type(error) is sqlite3.DatabaseError


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
