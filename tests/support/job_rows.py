"""What the database of a table's job has in it, while the job runs or after it was killed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any


def stored(output: Path, query: str) -> list[tuple[Any, ...]]:
    """Ask a copy of the database, which is thereby left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(output.parent.glob(f"{output.name}.job*")):
            shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / f"{output.name}.job")) as database:
            return database.execute(query).fetchall()


def n_decided(output: Path) -> int:
    """Return how many rows a job has decided; 0 if its database was copied in mid-change."""
    try:
        ((n_rows,),) = stored(output, "SELECT count(*) FROM rows")
    except (sqlite3.Error, FileNotFoundError):
        return 0
    return int(n_rows)
