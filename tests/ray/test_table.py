"""Tables on a Ray cluster: batches sent, answers returned in order, and errors of a cluster."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import table_work
from fake_decider import FakeDecider, work_in_actors
from fake_ray import FakeRay
from job_rows import n_decided
from table_work import QUESTIONS

from eliza_ffi import __version__
from eliza_ffi.decisions import Decision
from eliza_ffi.errors import (
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    ModelError,
    NativeFaultError,
)
from eliza_ffi.ray import decider as decider_module
from eliza_ffi.ray import table as table_module
from eliza_ffi.ray.table import BATCH_ROWS, BATCHES_AHEAD, LOCAL, TableWorkers
from eliza_ffi.tables import TableJob, TableRow, decide_rows, open_table

pytestmark = pytest.mark.slow

CLUSTER = {"CPU": 16.0, "GPU": 2.0}


class Breakable(FakeDecider):
    """A fake model. The input ``breaks`` makes the library fail."""

    def decide(self, given: Any, questions: Any, **settings: Any) -> Any:
        if given == "breaks":
            raise NativeFaultError("it broke")
        return super().decide(given, questions, **settings)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Breakable]:
    """Return a list of the models that workers open, in order."""
    opened: list[Breakable] = []

    def open_model(path: str | None, options: Any) -> Breakable:
        if path is not None and not Path(path).exists():
            raise ModelError(f"{path} is not there")
        opened.append(Breakable(tmp_path / "model.gguf"))
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


def write_table(folder: Path, bodies: Sequence[str]) -> Path:
    path = folder / "in.csv"
    path.write_text("body\n" + "".join(f"{body}\n" for body in bodies), encoding="utf-8")
    return path


def bodies(n: int) -> list[str]:
    return [("too long" if i % 9 == 0 else f"text {i}") for i in range(1, n + 1)]


def job(folder: Path, name: str) -> TableJob:
    table = open_table(folder / "in.csv")
    return TableJob(table, "body", QUESTIONS, folder / name, settings=table_work.SETTINGS)


def run(workers: TableWorkers, folder: Path, name: str = "out.jsonl", **settings: Any) -> bytes:
    with workers:
        job(folder, name).run_rows(workers.decide_rows, **settings)
    return (folder / name).read_bytes()


def run_here(folder: Path) -> bytes:
    model = Breakable(folder / "model.gguf")
    decide = lambda given: model.decide(given, QUESTIONS)  # noqa: E731
    job(folder, "here.jsonl").run_rows(lambda rows: decide_rows(decide, rows, "body", at_once=1))
    return (folder / "here.jsonl").read_bytes()


def test_the_output_equals_the_output_of_a_local_model(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(1200))
    ray, workers = start(3)
    assert run(workers, tmp_path) == run_here(tmp_path)
    asked = [given for model in models for given, _ in model.asked if given != "a test"]
    assert len(asked) == 1200
    assert (len(ray.asked_for), ray.n_shutdowns) == (3, 1)
    assert sum(len(model.asked) > 1 for model in models) > 1


def test_only_a_few_batches_are_read_ahead(
    models: list[Breakable], start: Start, tmp_path: Path
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


def test_the_error_names_the_rows_whose_workers_die(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(400))
    ray, workers = start(1, FakeRay(is_lost=lambda method: method == "decide"))
    message = "Ray could not complete rows 1 to 64 in 3 tries: the actor died"
    with pytest.raises(ElizaError, match=f"^{message}$"):
        run(workers, tmp_path)
    assert ray.n_shutdowns == 1
    options = ray.asked_for[0]
    assert (options["max_restarts"], options["max_task_retries"]) == (-1, 2)


def test_a_job_ends_if_workers_die_while_opening_the_model(
    models: list[Breakable], start: Start
) -> None:
    ray, workers = start(2, FakeRay(is_lost=lambda method: method == "open"))
    message = "Ray could not complete opening the model in 3 tries: the actor died"
    with pytest.raises(ElizaError, match=f"^{message}$"):
        workers.__enter__()
    assert ray.n_shutdowns == 1


def test_a_restarted_worker_opens_the_model_again(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    """Ray creates the actor again, and calls only the method whose task was lost."""
    settings = {"column": "body", "questions": QUESTIONS}
    described = table_module.TableWorker(__version__, settings).open()
    models.clear()
    worker = table_module.TableWorker(__version__, settings)
    assert [type(each) for each in worker.decide(described, ["x", "too long"])] == [
        Decision,
        ContextFullError,
    ]
    worker.decide(described, ["x"])
    assert len(models) == 1
    other = described.replace("1-abc", "1-abd")
    with pytest.raises(ElizaError, match="differs from the model of the other nodes"):
        table_module.TableWorker(__version__, {**settings, "model": None}).decide(other, ["x"])


def test_a_library_failure_ends_the_job(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, [*bodies(100), "breaks", *bodies(50)])
    ray, workers = start(1)
    with pytest.raises(NativeFaultError, match="it broke"):
        run(workers, tmp_path)
    assert ray.n_shutdowns == 1
    assert n_decided(tmp_path / "out.jsonl") == BATCH_ROWS


def test_workers_can_be_reused_after_an_unfinished_iteration(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(200))
    table = open_table(tmp_path / "in.csv")
    _, workers = start(2)
    with workers:
        decided = workers.decide_rows(table.rows())
        assert next(decided).row.number == 1
        decided.close()
        assert len(list(workers.decide_rows(table.rows()))) == 200


def test_nodes_with_different_models_are_not_mixed(
    models: list[Breakable], start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = iter(["1-abc", "1-abd", "1-abc"])
    monkeypatch.setattr(decider_module, "fingerprint_of", lambda model: next(names))
    write_table(tmp_path, bodies(1200))
    with pytest.raises(ElizaError, match="differs from the model of the other nodes"):
        run(start(2)[1], tmp_path)
    assert n_decided(tmp_path / "out.jsonl") < 1200
    assert run(start(1)[1], tmp_path) == run_here(tmp_path)


def test_resuming_with_another_model_is_rejected(
    models: list[Breakable], start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(200))

    def run_with_its_fingerprint(**settings: Any) -> None:
        with start(2)[1] as workers:
            table = open_table(tmp_path / "in.csv")
            described = json.loads(workers.described)
            job = TableJob(table, "body", QUESTIONS, tmp_path / "out.jsonl", settings=described)
            job.run_rows(workers.decide_rows, **settings)

    run_with_its_fingerprint(limit=100)
    written = (tmp_path / "out.jsonl").read_bytes()
    monkeypatch.setattr(decider_module, "fingerprint_of", lambda model: "1-abd")
    with pytest.raises(InvalidArgumentError, match="model"):
        run_with_its_fingerprint()
    assert (tmp_path / "out.jsonl").read_bytes() == written


def test_nodes_with_another_version_are_rejected(
    models: list[Breakable], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, workers = start(1)
    monkeypatch.setattr(FakeRay, "get", at_version("0.0.0", FakeRay.get))
    with pytest.raises(ElizaError, match=r"has eliza-ffi 0\.0\.0, and the machine that runs"):
        workers.__enter__()


def at_version(version: str, get: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``ray.get``, so that its tasks run with another version of the package."""

    def called(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_module, "__version__", version)
            return get(*arguments)

    return called


def test_workers_reserve_cpus_and_gpus_of_the_cluster(
    models: list[Breakable], start: Start
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
        assert [(each["num_cpus"], each["num_gpus"]) for each in ray.asked_for] == [
            asked
        ] * n_workers


def test_an_existing_connection_is_used_and_kept_open(
    models: list[Breakable], start: Start
) -> None:
    ray, workers = start(2, FakeRay(is_initialized=True))
    with workers:
        assert workers.n_ready == 1  # the other worker opens its model while rows are decided
    assert (ray.inits, ray.n_shutdowns, ray.n_killed) == ([], 0, 2)


def test_a_local_ray_sends_no_usage_reports(
    models: list[Breakable], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    ray, workers = start(1)
    with workers:
        (settings,) = ray.inits
        assert (settings["address"], settings["include_dashboard"]) == (LOCAL, False)
        assert __import__("os").environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "locked", "slow"])
def test_an_unreachable_address_is_an_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    with pytest.raises(ElizaError, match=f"cannot connect to Ray at {address}"):
        TableWorkers(address, 1, "body", QUESTIONS, {}).__enter__()


def test_waiting_for_workers_is_reported_once(
    models: list[Breakable], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(50))
    reports: list[tuple[int, int]] = []
    _, workers = start(3, waiting=lambda *counts: reports.append(counts))
    assert run(workers, tmp_path) == run_here(tmp_path)
    assert reports == [(0, 3)]


def test_the_number_of_workers_must_be_positive(start: Start) -> None:
    with pytest.raises(InvalidArgumentError, match="expected 1 or more workers, got 0"):
        start(0)
