"""What workers for tables ask of Ray, and what they refuse; test_on_ray.py has a real cluster."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_decider import FakeDecider, work_in_actors
from fake_ray import FakeRay
from table_work import KIND, QUESTIONS, LearningDecider

from eliza_ffi import __version__
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.ray import table as table_module
from eliza_ffi.ray.table import BATCH_ROWS, BATCHES_AHEAD, LOCAL, TableWorkers
from eliza_ffi.tables import TableRow, open_table, run

pytestmark = pytest.mark.slow

CLUSTER = {"CPU": 16.0, "GPU": 2.0}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeDecider]:
    """Return a list of the models that workers open, in order."""
    opened: list[FakeDecider] = []

    def open_model(path: str | None, options: Any) -> FakeDecider:
        opened.append(FakeDecider(tmp_path / "model.gguf"))
        return opened[-1]

    monkeypatch.setattr(table_module, "open_worker_model", open_model)
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
    arguments: Any = (__version__, None, {}, ("body", QUESTIONS, {}, None))
    described = table_module.TableWorker(*arguments).open()
    models.clear()
    worker = table_module.TableWorker(*arguments)
    rows = [TableRow(i, "x.csv", {"body": text}) for i, text in enumerate(["x", "too long"])]
    decided = worker.decide(described, rows)
    assert [each.error for each in decided] == [None, "x.csv: it does not fit"]
    worker.decide(described, rows)
    assert len(models) == 1
    with pytest.raises(ElizaError, match=r"has eliza-ffi .*, and the machine .* has 0\.0\.0: "):
        table_module.TableWorker("0.0.0", *arguments[1:]).open()
    other = {**described, "model": "another"}
    with pytest.raises(ElizaError, match="differs from the model of the other nodes"):
        table_module.TableWorker(*arguments).decide(other, rows)


def test_rows_of_workers_teach_as_those_of_one_machine(
    models: list[FakeDecider], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def made(model: Any, *settings: Any) -> LearningDecider:
        asked.append(settings[-1])
        return LearningDecider(described={"model": "none", "learn": [0]})

    monkeypatch.setattr(table_module, "RowDecider", made)
    table = tmp_path / "in.csv"
    table.write_text("body\n" + "".join(f"text {i}\n" for i in range(300)))
    _, workers = start(2, learn=True)
    workers.questions = (KIND,)
    with workers:
        result = run(open_table(table), workers, tmp_path / "ray.jsonl")
    assert asked == [True, True]
    assert result.learned["kind"].is_accepted
    run(open_table(table), LearningDecider(), tmp_path / "here.jsonl")
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


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
            assert workers.described["model"] == "none"
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


def test_waiting_for_workers_is_reported_once(
    models: list[FakeDecider], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, int]] = []
    reported = threading.Event()

    def waiting(*counts: int) -> None:
        reports.append((counts[0], counts[1]))
        reported.set()

    class SlowWorker(table_module.TableWorker):
        def open(self) -> dict[str, Any]:
            assert reported.wait(60)
            return super().open()

    monkeypatch.setattr(table_module, "TableWorker", SlowWorker)
    monkeypatch.setattr(table_module, "TIMEOUT_SECONDS", 0.01)
    with start(3, waiting=waiting)[1] as workers:
        rows = (TableRow(i, f"row {i}", {"body": f"text {i}"}) for i in range(1, 400))
        assert [each.row.number for each in workers.decide_rows(rows)] == list(range(1, 400))
    assert reports == [(0, 3)]


def test_the_error_of_a_worker_ends_the_job(
    models: list[FakeDecider], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenWorker(table_module.TableWorker):
        def decide(self, described: dict[str, Any], rows: Any) -> Any:
            if rows[0].number > 128:
                raise OSError("gone")
            return super().decide(described, rows)

    monkeypatch.setattr(table_module, "TableWorker", BrokenWorker)
    rows = (TableRow(i, f"row {i}", {"body": f"text {i}"}) for i in itertools.count(1))
    with start(2)[1] as workers, pytest.raises(OSError, match="gone"):
        for n, decided in enumerate(workers.decide_rows(rows), 1):
            assert decided.row.number == n <= 128


def test_the_number_of_workers_must_be_positive(start: Start) -> None:
    with pytest.raises(InvalidArgumentError, match="expected 1 or more workers, got 0"):
        start(0)
