"""Decide the rows of a table on a Ray cluster.

Ray schedules the workers, restarts a worker that dies, and runs its task again. This module groups
the rows into batches and puts the answers into the order of the table. It uses actors of Ray Core
instead of Ray Data. A Ray Data source must be in memory as a whole or be read by Ray's own
processes, but the rows of a table come one by one from an iterator in this process.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from .. import __version__
from ..decisions.questions import Question
from ..errors import ElizaError, InvalidArgumentError
from ..hub import name_for_workers
from ..tables.job import DecidedRow, input_of
from ..tables.rows import TableRow
from .batch import or_error
from .decider import DeciderActor, Outcome
from .resources import load_ray, node_name

LOCAL = "local"
"""The address that starts Ray on this machine for the duration of the job."""

BATCH_ROWS = 64
"""Rows per task: enough to fill the model's slots, and few enough to repeat if a worker dies."""

BATCHES_AHEAD = 4
"""The maximum number of batches per worker that are sent before the oldest batch has returned."""

MOST_TRIES = 3
"""The number of times that Ray tries a task whose worker dies."""

LOCAL_STORE_BYTES = 2**27
"""The size of the object store of a local Ray, in bytes."""

TIMEOUT_SECONDS = 10.0
"""The time limit for connecting, and the delay after which missing workers are reported."""

Waiting = Callable[[int, int], Any]
"""Called with the number of workers that have opened the model and the total number of workers."""


class TableWorker:
    """An actor that answers the same questions about batches of inputs.

    The constructor only stores its arguments, because Ray buries a constructor's error in a long
    message. A method's error reaches the driver as the original exception. `version` is the
    driver's version of this package, and `settings` are arguments of :class:`DeciderActor`.
    """

    def __init__(self, version: str, settings: Mapping[str, Any]) -> None:
        self._version = version
        self._settings = settings
        self._decider: DeciderActor | None = None
        self._described = ""

    def open(self) -> str:
        """Load the model; return its fingerprint and the settings as JSON text."""
        if self._version != __version__:
            raise ElizaError(
                f"node {node_name()} has eliza-ffi {__version__}, and the machine that runs the "
                f"command has {self._version}: install the same version on both"
            )
        self._decider = DeciderActor(**self._settings)
        self._described = json.dumps(self._decider.described)
        return self._described

    def decide(self, described: str, inputs: Sequence[Any]) -> list[Outcome]:
        """Return a decision or an error for each input; exceptions among them stay as they are.

        The job's model and settings, `described`, are checked because a restarted worker may be on
        another node.
        """
        if self._decider is None:  # Ray has restarted the worker
            self.open()
        assert self._decider is not None
        if self._described != described:
            raise ElizaError(
                f"the model of node {node_name()} differs from the model of the other nodes: "
                f"{self._settings['model']}; copy the same file to every node"
            )
        return self._decider.decide(inputs)


class TableWorkers:
    """Workers on a Ray cluster that answer questions about the rows of a table.

    The workers exist within a ``with`` block, each with the model in memory. If a worker dies, Ray
    restarts it and repeats its batch. A batch returns all of its answers or none, so that no row is
    lost or repeated. The job starts when the first worker has opened the model; `waiting` is called
    once if some workers have not opened it after ten seconds.

    `address` is that of a cluster, for ``ray.init``, or ``"local"``; if this process is already
    connected to a cluster, that cluster is used. `settings` and `model_options` are arguments of
    :class:`DeciderActor`. Each worker reserves ``n_threads`` CPUs of Ray (default 1), and a GPU or
    a fraction of one if the cluster has GPUs and ``n_gpu_layers`` is not 0.

    Within the block, `described` has the model's fingerprint and the settings that affect the
    answers, as JSON text.
    """

    def __init__(
        self,
        address: str,
        n_workers: int,
        column: str,
        questions: Sequence[Question],
        settings: Mapping[str, Any],
        *,
        model: str | None = None,
        model_options: Mapping[str, Any] | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        if n_workers < 1:
            raise InvalidArgumentError(f"expected 1 or more workers, got {n_workers}")
        if address == LOCAL:
            # A local Ray listens on all addresses and runs any code that it receives, so it needs a
            # token. Ray reads this variable when it is imported.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        self._ray = load_ray()
        self._address = address
        self._n_workers = n_workers
        self._column = column
        options = dict(model_options or {})
        self._n_cpus = options.get("n_threads") or 1
        self._uses_gpu = options.get("n_gpu_layers") != 0
        self._decider_settings = {
            **settings,
            "column": column,
            "questions": tuple(questions),
            "model": None if model is None else name_for_workers(model),
            "model_options": options,
        }
        self._waiting = waiting
        self._ready: list[Any] = []
        self._opening: dict[Any, Any] = {}
        self._is_connected_here = False
        self.described = ""

    @property
    def n_ready(self) -> int:
        return len(self._ready)

    def __enter__(self) -> TableWorkers:
        self._connect()
        try:
            self._start()
            while not self._ready:
                self._take_opened(self._wait([]))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        """Decide rows, which are read only when a worker needs them, and yield them in order."""
        unread = iter(rows)
        idle = list(self._ready)
        running: dict[Any, tuple[Any, int, list[TableRow]]] = {}
        decided: dict[int, list[DecidedRow]] = {}
        n_sent = n_yielded = 0
        while True:
            while idle and n_sent < n_yielded + BATCHES_AHEAD * self._n_workers:
                batch = list(islice(unread, BATCH_ROWS))
                if not batch:
                    break
                worker = idle.pop()
                inputs = [or_error(input_of, row, self._column) for row in batch]
                task = worker.decide.remote(self.described, inputs)
                running[task] = worker, n_sent, batch
                n_sent += 1
            if not running:
                return
            done = self._wait(running)
            if done in self._opening:
                idle.append(self._take_opened(done))
                continue
            worker, number, batch = running.pop(done)
            outcomes = self._result(done, f"rows {batch[0].number:,} to {batch[-1].number:,}")
            decided[number] = [
                DecidedRow.failed(row, each)
                if isinstance(each, Exception)
                else DecidedRow(row, each)
                for row, each in zip(batch, outcomes, strict=True)
            ]
            idle.append(worker)
            while n_yielded in decided:
                yield from decided.pop(n_yielded)
                n_yielded += 1

    def _wait(self, running: Iterable[Any]) -> Any:
        """Wait for one task to end, and return it."""
        tasks = [*self._opening, *running]
        timeout = None
        if self._waiting is not None and self._opening:
            timeout = max(self._begin + TIMEOUT_SECONDS - time.monotonic(), 0.0)
        done, _ = self._ray.wait(tasks, timeout=timeout)
        if not done:
            assert self._waiting is not None
            self._waiting(self.n_ready, self._n_workers)
            self._waiting = None
            done, _ = self._ray.wait(tasks)
        return done[0]

    def _take_opened(self, task: Any) -> Any:
        """Return the worker that has opened the model."""
        worker = self._opening.pop(task)
        described = self._result(task, "opening the model")
        self.described = self.described or described
        self._ready.append(worker)
        return worker

    def _result(self, task: Any, what: str) -> Any:
        """Return a task's result, or raise the exception that its method raised."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            reason = str(error).strip().splitlines()[-1]  # the other lines may be a traceback
            if "No module named 'eliza_ffi" in reason:
                reason += f"; install eliza-ffi {__version__} on every node"
            raise ElizaError(
                f"Ray could not complete {what} in {MOST_TRIES} tries: {reason}"
            ) from error

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        _check_reachable(self._address)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address == LOCAL:
                # Otherwise Ray reports each start to its developers.
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                n_cpus = self._n_workers * self._n_cpus
                self._ray.init(
                    address=LOCAL,
                    num_cpus=n_cpus if n_cpus > (os.cpu_count() or 1) else None,
                    object_store_memory=LOCAL_STORE_BYTES,
                    include_dashboard=False,
                    **quiet,
                )
            else:
                self._ray.init(address=self._address, **quiet)
        except Exception as error:  # Ray raises many types, even a bare Exception
            raise ElizaError(f"cannot connect to Ray at {self._address}: {error}") from error
        self._is_connected_here = True

    def _start(self) -> None:
        n_gpus = int(self._ray.cluster_resources().get("GPU", 0)) if self._uses_gpu else 0
        actor = self._ray.remote(TableWorker).options(
            num_cpus=self._n_cpus,
            num_gpus=1 / math.ceil(self._n_workers / n_gpus) if n_gpus else 0,
            max_restarts=-1,
            max_task_retries=MOST_TRIES - 1,
            scheduling_strategy="SPREAD",
        )
        self._begin = time.monotonic()
        for _ in range(self._n_workers):
            worker = actor.remote(__version__, self._decider_settings)
            self._opening[worker.open.remote()] = worker

    def _end(self) -> None:
        if self._is_connected_here:
            self._ray.shutdown()  # this also ends the workers
            self._is_connected_here = False
        else:
            for worker in [*self._ready, *self._opening.values()]:
                with suppress(Exception):  # the cluster and the workers may be gone already
                    self._ray.kill(worker)
        self._ready.clear()
        self._opening.clear()


def _check_reachable(address: str) -> None:
    """Raise ElizaError if no process listens at HOST:PORT. Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ElizaError(f"cannot connect to Ray at {address}: {error}") from error
