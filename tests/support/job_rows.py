"""Read the database of a table job while the job runs, or after it was killed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any


def stored(output: Path, query: str) -> list[tuple[Any, ...]]:
    """Run a query on a copy of the database, so that the original does not change."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(output.parent.glob(f"{output.name}.job*")):
            shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / f"{output.name}.job")) as database:
            return database.execute(query).fetchall()


def n_decided(output: Path) -> int:
    """Return how many rows a job has decided; 0 if the copy of its database is inconsistent."""
    try:
        ((n_rows,),) = stored(output, "SELECT count(*) FROM rows")
    except (sqlite3.Error, FileNotFoundError):
        return 0
    return int(n_rows)
