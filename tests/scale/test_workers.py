"""Workers that hold a model each: what goes out, what comes back, and what becomes of the dead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import table_work
from fake_decider import FakeDecider
from fake_ray import FakeRay
from table_work import QUESTIONS

from eliza_ffi.errors import ElizaError, InvalidArgumentError, ModelError, NativeFault
from eliza_ffi.scale import worker as worker_module
from eliza_ffi.scale.workers import LOCAL, MOST_TRIES, RayWorkers
from eliza_ffi.tables import TableJob, open_table

pytestmark = pytest.mark.slow

NODE = {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}


class ManyDecider(FakeDecider):
    """Also answers about many inputs; one of them breaks the library."""

    def decide_many(
        self, inputs: Sequence[Any], questions: Any, *, return_exceptions: bool, **settings: Any
    ) -> list[Any]:
        assert return_exceptions
        found: list[Any] = []
        for given in inputs:
            try:
                found.append(self.decide(given, questions, **settings))
            except ElizaError as error:
                found.append(error)
        return found

    def decide(self, given: Any, questions: Any, **settings: Any) -> Any:
        if given == "breaks":
            raise NativeFault("it broke")
        return super().decide(given, questions, **settings)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ManyDecider]:
    """The models that workers open, in that order."""
    opened: list[ManyDecider] = []

    def open_model(path: str | None, options: Any) -> ManyDecider:
        if path is not None and not Path(path).exists():
            raise ModelError(f"{path} is not there")
        opened.append(ManyDecider(tmp_path / "model.gguf"))
        return opened[-1]

    monkeypatch.setattr(worker_module, "open_worker_model", open_model)
    monkeypatch.setattr(worker_module, "fingerprint_of", lambda model: "1-abc")
    return opened


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[FakeRay, RayWorkers]]:
    def started(
        n_workers: int = 2, ray: FakeRay | None = None, **more: Any
    ) -> tuple[FakeRay, RayWorkers]:
        ray = ray or FakeRay([NODE])
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray, RayWorkers(LOCAL, n_workers, QUESTIONS, {}, **more)

    return started


Start = Callable[..., "tuple[FakeRay, RayWorkers]"]


def write_table(folder: Path, bodies: Sequence[str]) -> Path:
    path = folder / "in.csv"
    path.write_text("body\n" + "".join(f"{body}\n" for body in bodies), encoding="utf-8")
    return path


def bodies(n: int) -> list[str]:
    return [("too long" if i % 9 == 0 else f"text {i}") for i in range(1, n + 1)]


def job(folder: Path, name: str) -> TableJob:
    table = open_table(folder / "in.csv")
    return TableJob(table, "body", QUESTIONS, folder / name, settings=table_work.SETTINGS)


def run(workers: RayWorkers, folder: Path, name: str = "out.jsonl", **settings: Any) -> bytes:
    with workers:
        job(folder, name).run_rows(lambda rows: workers.decide_rows(rows, "body"), **settings)
    return (folder / name).read_bytes()


def run_here(folder: Path) -> bytes:
    model = ManyDecider(folder / "model.gguf")
    decide = lambda given: model.decide(given, QUESTIONS)  # noqa: E731
    job(folder, "here.jsonl").run(decide, at_once=1)
    return (folder / "here.jsonl").read_bytes()


def deaths(*at: tuple[int, str, int]) -> Callable[[int, str], bool]:
    """Let an actor, by its number, end over the nth call of a method, from 0."""
    seen: dict[tuple[int, str], int] = {}

    def dies(actor: int, method: str) -> bool:
        n = seen[actor, method] = seen.get((actor, method), -1) + 1
        return (actor, method, n) in at

    return dies


def test_the_output_is_that_of_one_model_here(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(1200))
    ray, workers = start(3)
    assert run(workers, tmp_path) == run_here(tmp_path)
    asked = [given for model in models for given, _ in model.asked if given != "a test"]
    assert len(asked) == 1200
    assert (len(ray.asked_for), ray.n_killed, ray.n_shutdowns) == (3, 3, 1)
    assert sum(len(model.asked) > 1 for model in models) > 1


@pytest.mark.parametrize(
    "at",
    [
        [(0, "decide", 0)],
        [(1, "decide", 1), (2, "decide", 0)],
        [(0, "open", 0), (1, "decide", 1)],
        [(0, "decide", 1), (1, "decide", 0)],
    ],
)
def test_what_a_worker_that_ended_had_is_decided_by_another_and_nothing_twice(
    at: list[tuple[int, str, int]], models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(1200))
    ray, workers = start(2, FakeRay([NODE], deaths(*at)))
    assert run(workers, tmp_path) == run_here(tmp_path)
    assert len(ray.asked_for) == 2 + len(at)


def test_rows_over_which_three_workers_end_are_named(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(40))
    ray, workers = start(1, FakeRay([NODE], lambda actor, method: method == "decide"))
    with pytest.raises(ElizaError, match=r"3 workers have ended over rows 1 to 16: the actor died"):
        run(workers, tmp_path)
    assert len(models) == MOST_TRIES
    assert ray.n_shutdowns == 1


def test_workers_that_end_before_they_have_a_model_are_not_replaced_for_ever(
    models: list[ManyDecider], start: Start
) -> None:
    ray, workers = start(2, FakeRay([NODE], lambda actor, method: method == "open"))
    with pytest.raises(ElizaError, match="3 workers have ended before they had opened the model"):
        workers.__enter__()
    assert ray.n_shutdowns == 1


def test_a_model_that_is_missing_ends_it_before_the_first_row(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    ray, workers = start(2, model=str(tmp_path / "no.gguf"))
    with pytest.raises(ModelError, match=r"no\.gguf is not there"):
        workers.__enter__()
    assert ray.n_shutdowns == 1


def test_a_failure_that_is_no_rows_own_ends_the_run(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, [*bodies(50), "breaks", *bodies(50)])
    ray, workers = start(1)
    with pytest.raises(NativeFault, match="it broke"):
        run(workers, tmp_path)
    assert ray.n_shutdowns == 1
    n_written = len((tmp_path / "out.jsonl").read_bytes().splitlines())
    assert 0 < n_written < 51


def test_a_run_goes_on_where_another_was_broken_off(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(200))

    def interrupt(step: Any) -> None:
        if step.rows == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(start(2)[1], tmp_path, progress=interrupt)
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 70
    assert run(start(2)[1], tmp_path) == run_here(tmp_path)


def test_rows_can_be_asked_about_again_after_some_were_given_up(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(200))
    table = open_table(tmp_path / "in.csv")
    _, workers = start(2)
    with workers:
        decided = workers.decide_rows(table.rows(), "body")
        assert next(decided).row.number == 1
        decided.close()
        assert len(list(workers.decide_rows(table.rows(), "body"))) == 200


def test_nodes_with_different_models_are_not_mixed(
    models: list[ManyDecider], start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = iter(["1-abc", "1-abd"])
    monkeypatch.setattr(worker_module, "fingerprint_of", lambda model: next(names))
    write_table(tmp_path, bodies(50))
    with pytest.raises(ElizaError, match="has another model"):
        run(start(2)[1], tmp_path)


def test_nodes_with_another_version_are_refused(
    models: list[ManyDecider], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "__version__", "0.0.0")
    with pytest.raises(ElizaError, match=r"has eliza-ffi 0\.0\.0, and this machine"):
        start(1)[1].__enter__()


def test_workers_ask_for_a_share_of_the_cluster(models: list[ManyDecider], start: Start) -> None:
    nodes = [NODE, NODE]
    for n_workers, options, asked in (
        (2, {}, (8, 1.0)),
        (4, {}, (4, 0.5)),
        (4, {"n_threads": 3, "n_gpu_layers": 0}, (3, 0.0)),
    ):
        ray, workers = start(n_workers, FakeRay(nodes), model_options=options)
        with workers:
            assert workers.fingerprint == "1-abc"
        assert [(each["num_cpus"], each["num_gpus"]) for each in ray.asked_for] == [
            asked
        ] * n_workers


def test_a_connection_that_is_there_is_used_and_left_alone(
    models: list[ManyDecider], start: Start
) -> None:
    ray, workers = start(2, FakeRay([NODE], is_initialized=True))
    with workers:
        assert len(workers.facts) == 1  # the others open theirs while rows are asked about
    assert (ray.inits, ray.n_shutdowns, ray.n_killed) == ([], 0, 2)


def test_a_ray_of_ones_own_tells_nobody(
    models: list[ManyDecider], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    ray, workers = start(1)
    with workers:
        (settings,) = ray.inits
        assert (settings["address"], settings["include_dashboard"]) == (LOCAL, False)
        assert __import__("os").environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "locked", "slow"])
def test_an_address_where_nobody_is_says_so_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    with pytest.raises(ElizaError, match=f"cannot connect to Ray at {address}"):
        RayWorkers(address, 1, QUESTIONS, {}).__enter__()


def test_it_is_told_once_that_workers_are_waited_for(
    models: list[ManyDecider], start: Start, tmp_path: Path
) -> None:
    write_table(tmp_path, bodies(50))
    told: list[tuple[int, int]] = []
    _, workers = start(3, waiting=lambda *counts: told.append(counts))
    assert run(workers, tmp_path) == run_here(tmp_path)
    assert told == [(0, 3)]


def test_there_must_be_a_worker(start: Start) -> None:
    with pytest.raises(InvalidArgumentError, match="1 or more workers, not 0"):
        start(0)
