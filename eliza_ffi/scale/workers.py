"""Workers on a Ray cluster, which rows of a table go out to and come back from in their order."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import __version__
from ..decisions.questions import Question
from ..errors import ElizaError, InvalidArgumentError
from ..session import DEFAULT_SLOTS
from ..tables.job import DecidedRow
from ..tables.rows import TableRow
from .chunks import Chunk, Chunks
from .placing import cpus_for_each, gpus_for_each
from .share import load_ray, threads_for
from .worker import Worker, WorkerFacts

__all__ = ["LOCAL", "RayWorkers"]

LOCAL = "local"
"""The address of a Ray of one's own, on this machine, for as long as the job runs."""

LOCAL_STORE_BYTES = 2**27
"""Of shared memory, for rows on their way."""

IN_FLIGHT = 2
"""Chunks that a worker has been handed: it need not wait for the next one."""

LOOK_AHEAD = 4
"""Chunks for each worker that may have begun before rows in front of them have come back."""

MOST_TRIES = 3
"""Workers that may end over one chunk, or one after the other before they have opened a model."""

PATIENCE = 10.0
"""Seconds after which it is told that not all workers have opened the model."""

Waiting = Callable[[int, int], Any]
"""Takes how many workers there are, and how many there should be."""


class _WorkerEnded(Exception):  # noqa: N818 - an outcome
    """A worker's process is gone, or its node; the text is Ray's."""


@dataclass(eq=False)
class _Handle:
    """A worker, as the driver sees it.

    Attributes
    ----------
    actor : ActorHandle
    facts : WorkerFacts or None
        None until its model is open.
    """

    actor: Any
    facts: WorkerFacts | None = None


class RayWorkers:
    """Workers with a model each, on a Ray cluster, that answer questions about rows.

    They are there within a ``with`` block. Rows go out in chunks, to whichever worker has room.
    A worker that ends is replaced by another one, and its chunks go out again; they have brought
    nothing back, so no row is there twice.

    Parameters
    ----------
    address
        Of a cluster, as ``ray.init`` takes it, or ``"local"``. Where this process is connected to
        one already, that is used.
    n_workers
    questions
    settings
        Of :meth:`~eliza_ffi.Model.decide`.
    model
        A path that is the same on every node; None = the embedded model.
    model_options
        More arguments of :class:`~eliza_ffi.Model`. ``n_threads`` are the CPUs that a worker asks
        Ray for; without it, the cluster's are shared out. ``n_gpu_layers`` of 0 asks for no GPU.
    waiting
        Called once where Ray has not placed all workers after ten seconds.

    Attributes
    ----------
    fingerprint : str
        Of the model, which is the same with all workers; known within the block.

    Raises
    ------
    NotSupportedError
        If Ray is not installed.
    ElizaError
        If there is no cluster at the address, or workers end before they have opened the model.
    ModelError, InvalidArgumentError
        What a worker raises where it opens the model, or asks it for the first time.
    """

    def __init__(
        self,
        address: str,
        n_workers: int,
        questions: Sequence[Question],
        settings: Mapping[str, Any],
        *,
        model: str | None = None,
        model_options: Mapping[str, Any] | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        if n_workers < 1:
            raise InvalidArgumentError(f"there must be 1 or more workers, not {n_workers}")
        if address == LOCAL:
            # It listens on every address and runs what it is sent. Ray reads this when imported.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        self._ray = load_ray()
        self._address = address
        self._n_workers = n_workers
        self._options = dict(model_options or {})
        path = None if model is None else str(Path(model).absolute())
        self._made_with = (path, self._options, tuple(questions), dict(settings))
        self._waiting = waiting
        self._handles: list[_Handle] = []
        self._opening: dict[Any, _Handle] = {}
        self._n_failed = 0
        self._is_connected_here = False
        self.fingerprint = ""

    @property
    def facts(self) -> tuple[WorkerFacts, ...]:
        """Of the workers whose model is open."""
        return tuple(each.facts for each in self._handles if each.facts is not None)

    def __enter__(self) -> RayWorkers:
        self._connect()
        try:
            self._actor_class = self._class_of_actors()
            self._begin = time.monotonic()
            for _ in range(self._n_workers):
                self._start()
            while not self.facts:
                self._wait([])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def decide_rows(
        self, rows: Iterable[TableRow], column: str
    ) -> Generator[DecidedRow, None, None]:
        """Ask about rows, and yield them in their order.

        Parameters
        ----------
        rows
        column
            The column whose values are the inputs.

        Raises
        ------
        ElizaError
            What a worker raises that is no row's own failure; or if three workers have ended over
            the same rows.
        """
        chunks = Chunks(rows, column, 2 * int(self._options.get("n_slots") or DEFAULT_SLOTS))
        out: dict[Any, tuple[_Handle, Chunk]] = {}
        while True:
            self._hand_out(chunks, out)
            if not out and chunks.is_done:
                return
            for came_back in self._wait(out):
                handle, chunk = out.pop(came_back)
                try:
                    outcomes, seconds = self._result(came_back)
                except _WorkerEnded as error:
                    chunks.out_again(chunk)
                    if chunk.n_tries == MOST_TRIES:
                        raise ElizaError(
                            f"{MOST_TRIES} workers have ended over {chunk.place}: {error}"
                        ) from error
                    self._replace(handle)
                else:
                    chunks.take(chunk, outcomes, seconds)
            yield from chunks.in_order()

    def _hand_out(self, chunks: Chunks, out: dict[Any, tuple[_Handle, Chunk]]) -> None:
        """Give every worker that has room a chunk, as far as there are some."""
        n_out = Counter(handle for handle, _ in out.values())
        ready = [each for each in self._handles if each.facts is not None]
        while True:
            handle = min(ready, key=lambda each: n_out[each], default=None)
            if handle is None or n_out[handle] == IN_FLIGHT:
                return
            chunk = chunks.next(LOOK_AHEAD * self._n_workers)
            if chunk is None:
                return
            out[handle.actor.decide.remote(chunk.inputs)] = handle, chunk
            n_out[handle] += 1

    def _wait(self, out: Iterable[Any]) -> list[Any]:
        """Wait for something to happen, and return which of the chunks that are out came back."""
        timeout = None
        if self._waiting is not None and self._opening:
            timeout = max(self._begin + PATIENCE - time.monotonic(), 0.0)
        happened, _ = self._ray.wait([*out, *self._opening], timeout=timeout)
        if not happened and self._waiting is not None:
            self._waiting(len(self.facts), self._n_workers)
            self._waiting = None
        for opened in self._opening.keys() & set(happened):
            self._take_opened(opened)
            happened.remove(opened)
        return list(happened)

    def _take_opened(self, opened: Any) -> None:
        """Note that a worker has opened its model, or has ended over it."""
        handle = self._opening.pop(opened)
        try:
            facts = self._result(opened)
        except _WorkerEnded as error:
            self._n_failed += 1
            if self._n_failed == MOST_TRIES:
                raise ElizaError(
                    f"{MOST_TRIES} workers have ended before they had opened the model: {error}"
                ) from error
            self._replace(handle)
            return
        if facts.version != __version__:
            raise ElizaError(
                f"node {facts.node} has eliza-ffi {facts.version}, and this machine {__version__}: "
                f"install the same on both"
            )
        self.fingerprint = self.fingerprint or facts.fingerprint
        if facts.fingerprint != self.fingerprint:
            raise ElizaError(
                f"node {facts.node} has another model at {self._made_with[0]} than the others"
            )
        self._n_failed = 0
        handle.facts = facts

    def _result(self, reference: Any) -> Any:
        """Return what a worker returned, or raise what it raised."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
        ) as error:
            raise _WorkerEnded(str(error).strip()) from error

    def _start(self) -> None:
        handle = _Handle(self._actor_class.remote(*self._made_with))
        self._handles.append(handle)
        self._opening[handle.actor.open.remote()] = handle

    def _replace(self, handle: _Handle) -> None:
        """Start another worker, once, for one that has ended."""
        if handle in self._handles:
            self._handles.remove(handle)
            self._kill(handle)
            self._start()

    def _kill(self, handle: _Handle) -> None:
        with suppress(Exception):  # it is gone, or nobody can say: that is what is wanted
            self._ray.kill(handle.actor)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        _check_reachable(self._address)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address == LOCAL:
                # Ray would tell its makers of every start.
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                wanted = self._n_workers * threads_for(self._options.get("n_threads") or 1)
                self._ray.init(
                    address=LOCAL,
                    num_cpus=wanted if wanted > (os.cpu_count() or 1) else None,
                    object_store_memory=LOCAL_STORE_BYTES,
                    include_dashboard=False,
                    **quiet,
                )
            else:
                self._ray.init(address=self._address, **quiet)
        except Exception as error:  # Ray raises what it likes, a bare Exception among it
            raise ElizaError(f"cannot connect to Ray at {self._address}: {error}") from error
        self._is_connected_here = True

    def _class_of_actors(self) -> Any:
        nodes = self._ray.nodes()
        return self._ray.remote(Worker).options(
            num_cpus=self._options.get("n_threads") or cpus_for_each(nodes, self._n_workers),
            num_gpus=0.0
            if self._options.get("n_gpu_layers") == 0
            else gpus_for_each(nodes, self._n_workers),
            scheduling_strategy="SPREAD",
        )

    def _end(self) -> None:
        for handle in self._handles:
            self._kill(handle)
        self._handles.clear()
        self._opening.clear()
        if self._is_connected_here:
            self._ray.shutdown()
            self._is_connected_here = False


def _check_reachable(address: str) -> None:
    """Raise ElizaError if nobody listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ElizaError(f"cannot connect to Ray at {address}: {error}") from error
