"""Measure the costs of passes, of rows, and of sending rows to workers."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from eliza_ffi.decisions import Predicate
from eliza_ffi.model import Model
from eliza_ffi.ray.table import BATCH_ROWS, LOCAL, TableWorkers
from eliza_ffi.tables import DecidedRow, TableJob, TableRow, open_table
from eliza_ffi.tables.job import input_of

from ..model.streams import RandomPrompts
from ..parts.figures import median

ROW_TOKENS = (8, 16, 32, 64, 128, 256, 448)
"""The lengths of rows. Two rows of the last length fit into the embedded model's context."""

QUESTION = Predicate("The writer needs an answer today.", "urgent")

WORDS = ("order", "refund", "invoice", "team", "today", "late", "price", "again", "thanks", "call")

CROWD_SECONDS = 3.0

COUNTED_TOKENS = 64
"""Tokens of a pass when several processes run passes at the same time."""


def inputs(words: int) -> Iterator[str]:
    """Yield different inputs of `words` words and a number."""
    for i in itertools.count():
        drawn = (WORDS[(i * 7 + j * 3 + i // 10**j) % len(WORDS)] for j in range(words))
        yield f"{i}: {' '.join(drawn)}"


def pass_costs(model: Model, n_rows: int) -> list[dict[str, float]]:
    """Measure passes that several rows share, for rows of several lengths.

    Returns
    -------
    list of dict
        For each length: ``at_once``, the most rows at once; ``row_tokens``, the tokens of a row;
        ``pass_tokens``, the mean tokens of a pass; and ``token_seconds``, the seconds per token,
        where the time of a pass is divided equally among its rows.
    """
    source = RandomPrompts(model, seed=1)
    at_once = model.session.decisions_at_once(None)
    costs = []
    for row_tokens in ROW_TOKENS:
        prompts = source.draw(n_rows, row_tokens)
        before = model.describe()["passes"]["run"]
        chosen = model.choose_many(prompts, ["yes", "no"], max_concurrency=at_once)
        found = [each.stats for each in chosen]
        n_passes = model.describe()["passes"]["run"] - before
        seconds = tokens = 0.0
        for stats in found:
            assert stats is not None
            tokens += stats.prompt_tokens - stats.prompt_tokens_reused
            seconds += stats.decode_us / 1e6 * stats.forward_passes / max(stats.sequences, 1)
        costs.append(
            {
                "at_once": at_once,
                "row_tokens": tokens / n_rows,
                "pass_tokens": tokens / n_passes,
                "token_seconds": seconds / tokens,
            }
        )
    return costs


def rows_here(model: Model, words: int, n_rows: int) -> dict[str, float]:
    """Decide rows in this process and return the costs of a row.

    Returns
    -------
    dict
        ``seconds``; ``cpu_seconds`` on all cores together; ``tokens`` without the shared prefix;
        and ``passes``.
    """
    drawn = list(itertools.islice(inputs(words), n_rows + 8))
    model.decide_many(drawn[n_rows:], QUESTION)  # brings the prefix of the prompts into the slots
    before = model.describe()["passes"]["run"]
    begin, cpu_begin = time.perf_counter(), time.process_time()
    found = model.decide_many(drawn[:n_rows], QUESTION)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    passes = model.describe()["passes"]["run"] - before
    own = sum(each.usage.input_tokens - each.usage.cached_tokens for each in found)
    return {
        "seconds": seconds / n_rows,
        "cpu_seconds": cpu_seconds / n_rows,
        "tokens": own / n_rows,
        "passes": passes / n_rows,
    }


def crowded_token(path: str | None, n_threads: int, n_processes: int) -> float:
    """Return the seconds per token while several processes run passes at the same time.

    Parameters
    ----------
    path
        The path of the model.
    n_threads
        Compute threads of each process.
    """
    command = [sys.executable, "-m", "bench.scaling.crowd", json.dumps([path, n_threads])]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(n_processes)
    ]
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()  # wait until the model is loaded
    for each in running:
        assert each.stdin is not None
        each.stdin.write(f"{COUNTED_TOKENS} {CROWD_SECONDS}\n")
        each.stdin.flush()
    return median([float(each.communicate()[0]) for each in running])


def driver_seconds(words: int, n_rows: int, model: Model) -> float:
    """Return the driver's seconds for a row: reading, sending, receiving and writing it.

    The workers are replaced by a function that takes no time.
    """
    (decision,) = model.decide_many(["a test"], QUESTION)

    def decide_all(rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        unread = iter(rows)
        while batch := list(itertools.islice(unread, BATCH_ROWS)):
            given = pickle.loads(pickle.dumps([input_of(row, "body") for row in batch]))
            found = pickle.loads(pickle.dumps([decision] * len(given)))
            for row, each in zip(batch, found, strict=True):
                yield DecidedRow(row, each)

    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder), words, n_rows)
        job = TableJob(
            open_table(table), "body", [QUESTION], table.with_suffix(".out.jsonl"), settings={}
        )
        begin = time.perf_counter()
        job.run_rows(decide_all)
        return (time.perf_counter() - begin) / n_rows


def ray_rows(path: str | None, words: int, n_rows: int, n_workers: int) -> dict[str, float]:
    """Decide a table with Ray workers on this machine.

    Returns
    -------
    dict
        ``start_seconds``, the time until every worker has loaded the model; and
        ``rows_per_second`` after that.
    """
    options = {"n_threads": 1}
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder), words, n_rows)
        output = table.with_suffix(".out.jsonl")
        job = TableJob(open_table(table), "body", [QUESTION], output, settings={})
        begin = time.perf_counter()
        with TableWorkers(
            LOCAL, n_workers, "body", [QUESTION], {}, model=path, model_options=options
        ) as workers:
            few = open_table(write_table(Path(folder) / "few", words, 8))
            while workers.n_ready < n_workers:
                list(workers.decide_rows(few.rows()))
            started = time.perf_counter()
            job.run_rows(workers.decide_rows)
            taken = time.perf_counter() - started
    return {"start_seconds": started - begin, "rows_per_second": n_rows / taken}


def write_table(folder: Path, words: int, n_rows: int) -> Path:
    """Write a table of inputs and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / "in.jsonl"
    lines: Sequence[str] = [
        json.dumps({"body": text}) for text in itertools.islice(inputs(words), n_rows)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
