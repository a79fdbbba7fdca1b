"""Decide the rows of a table with actors of Ray Core. A source of Ray Data must be in memory or be
read by Ray's own processes, but the rows of a table come one by one from an iterator."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Timer
from typing import Any

from .. import __version__
from ..decisions.questions import Question
from ..errors import ElizaError, InvalidArgumentError
from ..hub import name_for_workers
from ..session.batches import run_in_order
from ..tables import DecidedRow, Decider, RowDecider, TableRow
from .resources import load_ray, node_name, open_worker_model

LOCAL = "local"
"""The address that starts Ray on this machine for the duration of the job."""

BATCH_ROWS = 64
"""Rows per task: enough to fill the model's slots, and few enough to repeat if a worker dies."""

BATCHES_AHEAD = 4
"""The maximum number of batches per worker that are sent before the oldest batch has returned."""

MAX_TRIES = 3
"""The number of times that Ray tries a task whose worker dies."""

LOCAL_STORE_BYTES = 2**27
"""The size of the object store of a local Ray, in bytes."""

TIMEOUT_SECONDS = 10.0
"""The time limit for connecting, and the delay after which missing workers are reported."""

Waiting = Callable[[int, int], Any]
"""Called with the number of workers that have opened the model and the total number of workers."""


class TableWorker:
    """An actor that answers the same questions about batches of rows. `asked` has arguments of
    :class:`RowDecider`, or of what `makes` another decider. The model is opened by a method, whose
    error reaches the driver unchanged."""

    def __init__(
        self,
        version: str,
        model: str | None,
        options: Mapping[str, Any],
        asked: tuple[Any, ...],
        makes: Callable[..., Decider] | None = None,
    ) -> None:
        self._version, self._model, self._options = version, model, options
        self._asked, self._makes = asked, makes
        self._decider: Decider | None = None

    def open(self) -> dict[str, Any]:
        """Load the model; return its fingerprint and the settings."""
        if self._version != __version__:
            raise ElizaError(
                f"node {node_name()} has eliza-ffi {__version__}, and the machine that runs the "
                f"command has {self._version}: install the same version on both"
            )
        makes = self._makes or RowDecider
        self._decider = makes(open_worker_model(self._model, self._options), *self._asked)
        return self._decider.described

    def decide(self, described: dict[str, Any], rows: Sequence[TableRow]) -> list[DecidedRow]:
        """Decide rows. The job's model and settings, `described`, are checked, because a restarted
        worker may be on another node."""
        if self._decider is None:  # Ray has restarted the worker
            self.open()
        assert self._decider is not None
        if self._decider.described != described:
            raise ElizaError(
                f"the model of node {node_name()} differs from the model of the other nodes: "
                f"{self._model}; copy the same file to every node"
            )
        return list(self._decider.decide_rows(rows))


class TableWorkers(Decider):
    """Workers on a Ray cluster that decide the rows of a table, within a ``with`` block.

    If a worker dies, Ray restarts it and repeats its batch, which returns all of its answers or
    none. The job starts when the first worker has opened the model; `waiting` is called once if
    some have not opened it after ten seconds. `address` is for ``ray.init``, or ``"local"``; an
    existing connection is used. Each worker reserves ``n_threads`` CPUs (default 1), and a GPU or a
    fraction of one if the cluster has GPUs and ``n_gpu_layers`` is not 0.
    """

    def __init__(
        self,
        address: str,
        n_workers: int,
        column: str,
        questions: Sequence[Question],
        settings: Mapping[str, Any],
        sample: Sequence[Any] | None = None,
        learn: bool = False,
        *,
        model: str | None = None,
        model_options: Mapping[str, Any] | None = None,
        waiting: Waiting | None = None,
        makes: Callable[..., Decider] | None = None,
    ) -> None:
        if n_workers < 1:
            raise InvalidArgumentError(f"expected 1 or more workers, got {n_workers}")
        if address == LOCAL:
            # A local Ray listens on all addresses and runs any code that it receives, so it needs a
            # token. Ray reads this variable when it is imported.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        self._ray = load_ray()
        self._address, self._n_workers = address, n_workers
        self.column, self.questions, self.settings = column, tuple(questions), settings
        options = dict(model_options or {})
        self._n_cpus = options.get("n_threads") or 1
        self._uses_gpu = options.get("n_gpu_layers") != 0
        name = None if model is None else name_for_workers(model)
        asked = (column, self.questions, settings, sample, learn)
        self._arguments = (__version__, name, options, asked, makes)
        # Workers, each after it has opened the model; and at the end an exception.
        self._idle: SimpleQueue[Any] = SimpleQueue()
        self._workers: list[Any] = []
        self._n_ready = 0
        self._timer = Timer(TIMEOUT_SECONDS, self._report, [waiting])
        self._timer.daemon = True
        self._is_connected_here = False
        self.described = {}

    def __enter__(self) -> TableWorkers:
        self._connect()
        try:
            self._start()
            self._idle.put(self._next_worker())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        """Decide rows, which are read only when a worker needs them, and yield them in order."""
        left = iter(rows)
        batches = iter(lambda: list(islice(left, BATCH_ROWS)), [])
        ahead = BATCHES_AHEAD * self._n_workers
        with closing(
            run_in_order(
                batches, self._decide, self._kill, at_once=self._n_workers, look_ahead=ahead
            )
        ) as decided:
            for batch in decided:
                yield from batch

    def _decide(self, batch: Sequence[TableRow]) -> list[DecidedRow]:
        worker = self._next_worker()
        # The columns that are only copied need not travel.
        sent = [
            replace(row, fields={name: row.fields[name] for name in {self.column} & {*row.fields}})
            for row in batch
        ]
        what = f"rows {batch[0].number:,} to {batch[-1].number:,}"
        found = self._result(worker.decide.remote(self.described, sent).future(), what)
        self._idle.put(worker)
        return [replace(each, row=row) for each, row in zip(found, batch, strict=True)]

    def _next_worker(self) -> Any:
        """Wait for a worker that has nothing to do; raise the error of one that cannot begin."""
        worker = self._idle.get()
        if isinstance(worker, Exception):
            self._idle.put(worker)  # for the other threads
            raise worker
        return worker

    def _opened(self, worker: Any, done: Future[dict[str, Any]]) -> None:
        try:
            described = self._result(done, "opening the model")
        except Exception as error:
            self._idle.put(error)
        else:
            self.described = self.described or described
            self.learns = tuple(self.described.get("learn", ()))
            self._n_ready += 1
            self._idle.put(worker)

    def _report(self, waiting: Waiting | None) -> None:
        if waiting is not None and self._n_ready < self._n_workers:
            waiting(self._n_ready, self._n_workers)

    def _result(self, done: Future[Any], what: str) -> Any:
        """Return a task's result, or raise the exception that its method raised."""
        errors = self._ray.exceptions
        try:
            return done.result()
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            reason = str(error).strip().splitlines()[-1]  # the other lines may be a traceback
            if "No module named 'eliza_ffi" in reason:
                reason += f"; install eliza-ffi {__version__} on every node"
            raise ElizaError(
                f"Ray could not complete {what} in {MAX_TRIES} tries: {reason}"
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
            max_task_retries=MAX_TRIES - 1,
            scheduling_strategy="SPREAD",
        )
        self._timer.start()
        for _ in range(self._n_workers):
            worker = actor.remote(*self._arguments)
            self._workers.append(worker)
            worker.open.remote().future().add_done_callback(partial(self._opened, worker))

    def _kill(self) -> None:
        """End the workers, and the threads that wait for them."""
        self._idle.put(ElizaError("the workers have ended"))
        while self._workers:
            with suppress(Exception):  # the cluster and the workers may be gone already
                self._ray.kill(self._workers.pop())

    def _end(self) -> None:
        self._timer.cancel()
        self._kill()
        if self._is_connected_here:
            self._ray.shutdown()
            self._is_connected_here = False


def _check_reachable(address: str) -> None:
    """Raise ElizaError if no process listens at HOST:PORT. Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ElizaError(f"cannot connect to Ray at {address}: {error}") from error
