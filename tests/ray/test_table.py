"""What workers for tables ask of Ray, and what they refuse; test_on_ray.py has a real cluster."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_decider import FakeDecider, work_in_actors
from fake_ray import FakeRay
from table_work import QUESTIONS

from eliza_ffi import __version__
from eliza_ffi.decisions import Decision
from eliza_ffi.errors import ContextFullError, ElizaError, InvalidArgumentError
from eliza_ffi.ray import decider as decider_module
from eliza_ffi.ray import table as table_module
from eliza_ffi.ray.table import BATCH_ROWS, BATCHES_AHEAD, LOCAL, TableWorkers
from eliza_ffi.tables import TableRow

pytestmark = pytest.mark.slow

CLUSTER = {"CPU": 16.0, "GPU": 2.0}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeDecider]:
    """Return a list of the models that workers open, in order."""
    opened: list[FakeDecider] = []

    def open_model(path: str | None, options: Any) -> FakeDecider:
        opened.append(FakeDecider(tmp_path / "model.gguf"))
        return opened[-1]

    monkeypatch.setattr(decider_module, "open_worker_model", open_model)
    work_in_actors(monkeypatch)
    return opened


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[FakeRay, TableWorkers]]:
    def started(
        n_workers: int = 2, ray: FakeRay | None = None, **more: Any
    ) -> tuple[FakeRay, TableWorkers]:
        ray = ray or FakeRay()
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray, TableWorkers(LOCAL, n_workers, "body", QUESTIONS, {}, **more)

    return started


Start = Callable[..., "tuple[FakeRay, TableWorkers]"]


def test_only_a_few_batches_are_read_ahead(
    models: list[FakeDecider], start: Start, tmp_path: Path
) -> None:
    n_read = 0

    def endless() -> Iterator[TableRow]:
        nonlocal n_read
        for number in itertools.count(1):
            n_read = number
            yield TableRow(number, f"row {number}", {"body": f"text {number}"})

    _, workers = start(2)
    with workers:
        decided = workers.decide_rows(endless())
        for number in range(1, 3001):
            assert next(decided).row.number == number
            assert n_read <= number + 2 * BATCHES_AHEAD * BATCH_ROWS
        decided.close()


def test_a_restarted_worker_opens_the_model_again(
    models: list[FakeDecider], start: Start, tmp_path: Path
) -> None:
    """Ray creates the actor again, and calls only the method whose task was lost."""
    settings = {"column": "body", "questions": QUESTIONS}
    described = table_module.TableWorker(__version__, settings).open()
    models.clear()
    worker = table_module.TableWorker(__version__, settings)
    outcomes = worker.decide(described, ["x", "too long"])
    assert [type(each) for each in outcomes] == [Decision, ContextFullError]
    worker.decide(described, ["x"])
    assert len(models) == 1
    with pytest.raises(ElizaError, match=r"has eliza-ffi .*, and the machine .* has 0\.0\.0: "):
        table_module.TableWorker("0.0.0", settings).open()
    other = described.replace("1-abc", "1-abd")
    with pytest.raises(ElizaError, match="differs from the model of the other nodes"):
        table_module.TableWorker(__version__, {**settings, "model": None}).decide(other, ["x"])


def test_workers_reserve_cpus_and_gpus_of_the_cluster(
    models: list[FakeDecider], start: Start
) -> None:
    for n_workers, options, asked in (
        (2, {}, (1, 1.0)),
        (4, {}, (1, 0.5)),
        (3, {}, (1, 0.5)),
        (1, {}, (1, 1.0)),
        (4, {"n_threads": 3, "n_gpu_layers": 0}, (3, 0.0)),
    ):
        ray, workers = start(n_workers, FakeRay(CLUSTER), model_options=options)
        with workers:
            assert json.loads(workers.described)["model"] == "1-abc"
        found = [(each["num_cpus"], each["num_gpus"]) for each in ray.asked_for]
        assert found == [asked] * n_workers


def test_a_local_ray_sends_no_usage_reports(
    models: list[FakeDecider], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    ray, workers = start(1)
    with workers:
        (settings,) = ray.inits
        assert (settings["address"], settings["include_dashboard"]) == (LOCAL, False)
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "locked", "slow"])
def test_an_unreachable_address_is_an_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    with pytest.raises(ElizaError, match=f"cannot connect to Ray at {address}"):
        TableWorkers(address, 1, "body", QUESTIONS, {}).__enter__()


def test_waiting_for_workers_is_reported_once(models: list[FakeDecider], start: Start) -> None:
    reports: list[tuple[int, int]] = []
    with start(3, waiting=lambda *counts: reports.append(counts))[1] as workers:
        rows = (TableRow(i, f"row {i}", {"body": f"text {i}"}) for i in range(1, 400))
        assert [each.row.number for each in workers.decide_rows(rows)] == list(range(1, 400))
    assert reports == [(0, 3)]


def test_the_number_of_workers_must_be_positive(start: Start) -> None:
    with pytest.raises(InvalidArgumentError, match="expected 1 or more workers, got 0"):
        start(0)
