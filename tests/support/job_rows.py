"""Kill a table job, and read its files while it runs or after it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import table_work
from checkout import ROOT

PATHS = os.pathsep.join([str(ROOT), str(Path(table_work.__file__).parent)])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS}


def facts_of(output: Path) -> list[dict[str, Any]]:
    """Return the facts of the whole lines of a job's file; none if there is no file."""
    path = output.with_name(output.name + ".job")
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line[9:]) for line in lines if line.endswith(b"\n")]


def stored_rows(output: Path) -> list[int]:
    """Return the numbers of the rows in a job's file, in the order in which they were decided."""
    return [fact["cells"]["row"] for fact in facts_of(output) if "cells" in fact]


def content(path: Path) -> Any:
    return pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes()


def kill_after(command: list[str], n_rows: int, seconds: float) -> int:
    """Kill a job `seconds` after it reported `n_rows` rows; return the last number it reported."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= n_rows:
            break
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    rest = process.stdout.read().splitlines(keepends=True)
    return max([n_rows, *(int(line) for line in rest if line.endswith("\n"))])
