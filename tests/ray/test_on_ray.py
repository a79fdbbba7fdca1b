"""Two workers on a real Ray cluster give a local model's answers, even if workers are killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from job_rows import facts_of, stored_rows
from ray_actors import KilledDecider

from eliza_ffi import cli
from eliza_ffi.decisions import Predicate
from eliza_ffi.errors import ElizaError
from eliza_ffi.model import Model
from eliza_ffi.ray import DeciderActor, choose_dataset, decide_dataset
from eliza_ffi.ray import table as table_module
from eliza_ffi.ray.table import TableWorkers
from eliza_ffi.tables import open_table, run

pytestmark = pytest.mark.slow

QUESTION = Predicate("Is it urgent?", "urgent")

ALONE = {"n_slots": 1, "n_threads": 1}
"""One row at a time on one thread, so that the rounding of an answer depends only on its row."""

DECIDER = {"column": "body", "questions": QUESTION, "model_options": ALONE}
COMMAND = ("--column", "body", "--predicate", "Is it urgent?", "--name", "urgent")
ALONE_HERE = ("--n-slots", "1", "--threads", "1")


def items(n: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "body": f"order {i * 37 % 1000}, {'now' if i % 3 else i}" if i % 50 else None}
        for i in range(n)
    ]


def local_answers(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[Any, Any, Any]]:
    """Return the answers of a local model, by the rows' ids."""
    asked = [row for row in rows if row["body"] is not None]
    with Model(**ALONE) as model:  # type: ignore[arg-type]
        model.decide("a test", QUESTION)
        decided = model.decide_many([row["body"] for row in asked], QUESTION)
    found: dict[int, tuple[Any, Any, Any]] = {
        row["id"]: (None, None, "no value in column 'body'") for row in rows
    }
    for row, decision in zip(asked, decided, strict=True):
        answer = decision["urgent"]
        found[row["id"]] = (answer.value, answer.probability, None)
    return found


def answers_of(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[Any, Any, Any]]:
    found = {row["id"]: (row["urgent"], row["urgent_probability"], row["error"]) for row in rows}
    assert len(found) == len(rows), "an id occurs twice"
    return found


def write_table(path: Path, n: int) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [[row["id"], row["body"] or ""] for row in items(n)]
        csv.writer(file).writerows([["id", "body"], *rows])
    return path


def decide_here(table: Path, output: Path) -> bytes:
    assert cli.main(["decide", str(table), *COMMAND, *ALONE_HERE, "--output", str(output)]) == 0
    return output.read_bytes()


# ---- Ray Data ----------------------------------------------------------------------------------


def test_rows_of_a_dataset_get_the_local_answers(cluster: Any) -> None:
    rows = items(500)
    ds = cluster.data.from_items(rows, override_num_blocks=8)
    decided = decide_dataset(ds, "body", QUESTION, workers=2, model_options=ALONE, batch_size=20)
    assert answers_of(decided.take_all()) == local_answers(rows)


def test_no_row_is_lost_or_repeated_if_an_actor_is_killed(cluster: Any, tmp_path: Path) -> None:
    rows = items(400)
    marker = tmp_path / "killed"
    ds = cluster.data.from_items(rows, override_num_blocks=16)
    killed: Any = {"marker": str(marker), "batch": 3}
    decided = ds.map_batches(
        KilledDecider,
        fn_constructor_kwargs={**DECIDER, **killed},
        compute=cluster.data.ActorPoolStrategy(size=2),
        batch_size=25,
        batch_format="pyarrow",
    )
    found = answers_of(decided.take_all())
    assert marker.exists(), "no actor was killed"
    assert found == local_answers(rows)


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_batches_in_all_formats_are_accepted(cluster: Any, batch_format: str) -> None:
    rows = items(60)
    decided = cluster.data.from_items(rows).map_batches(
        DeciderActor,
        fn_constructor_kwargs=DECIDER,
        compute=cluster.data.ActorPoolStrategy(size=1),
        batch_size=20,
        batch_format=batch_format,
    )
    assert answers_of(decided.take_all()) == local_answers(rows)


def test_choose_dataset_chooses_the_local_labels(cluster: Any) -> None:
    rows = [row for row in items(60) if row["body"] is not None]
    prompt, labels = "Mail: {body}\nTeam: ", ["billing", "sales"]
    ds = choose_dataset(cluster.data.from_items(rows), prompt, labels, model_options=ALONE)
    with Model(**ALONE) as model:  # type: ignore[arg-type]
        model.choose("a test", labels)
        wanted = {row["id"]: model.choose(prompt.format(**row), labels) for row in rows}
    found = {row["id"]: row["choice"] for row in ds.take_all()}
    assert found == {i: choice.value for i, choice in wanted.items()}


def test_the_error_of_a_dataset_names_the_node_without_the_model(
    cluster: Any, tmp_path: Path
) -> None:
    ds = cluster.data.from_items(items(10))
    decided = decide_dataset(ds, "body", QUESTION, model=tmp_path / "no.gguf")
    with pytest.raises(cluster.exceptions.RayActorError) as raised:
        decided.take_all()
    last = str(raised.value).strip().splitlines()[-1]
    assert "ModelError: node " in last
    assert f"no such file or directory: {tmp_path / 'no.gguf'}; " in last
    assert "; every node needs" in last


def test_actors_have_one_thread_per_assigned_cpu(cluster: Any) -> None:
    from eliza_ffi.ray.resources import actor_resources

    class Reporter:
        def resources(self) -> Any:
            return actor_resources()

    for cpus in (1, 2):
        actor = cluster.remote(Reporter).options(num_cpus=cpus).remote()
        given = cluster.get(actor.resources.remote())
        assert given == {"n_threads": cpus, "n_gpu_layers": 0}
        cluster.kill(actor)


# ---- tables ------------------------------------------------------------------------------------


def test_a_job_begun_on_ray_can_be_resumed_locally_and_back(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "in.csv", 400)
    output = tmp_path / "out.jsonl"
    command = ["decide", str(table), *COMMAND, *ALONE_HERE, "--output", str(output)]
    on_ray = [*command, "--ray", "local", "--workers", "2"]
    assert cli.main([*on_ray, "--limit", "150"]) == 0
    assert output.read_bytes().count(b"\n") == 150
    assert cli.main([*command, "--limit", "250"]) == 0
    capsys.readouterr()
    assert cli.main([*on_ray, "--json"]) == 0
    # Ray may still report a worker of the first command that had not opened the model at its end.
    lines = capsys.readouterr().out.splitlines()
    assert json.loads("".join(each for each in lines if "(raylet)" not in each))["new_rows"] == 150
    assert output.read_bytes() == decide_here(table, tmp_path / "here.jsonl")
    assert facts_of(output)[0] == facts_of(tmp_path / "here.jsonl")[0]


def killed_worker(folder: Path) -> type[table_module.TableWorker]:
    """Return a class of workers that kill their own processes. Each leaves a file.

    One process is killed while it opens the model, and two with their second batches. The class is
    local, so that Ray sends its code to the workers.
    """

    def kill_in(method: str, times: int) -> None:
        if len(list(folder.glob(f"{method} *"))) < times:
            (folder / f"{method} {os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    class KilledWorker(table_module.TableWorker):
        n_batches = 0

        def open(self) -> dict[str, Any]:
            kill_in("open", 1)
            return super().open()

        def decide(self, described: dict[str, Any], rows: Sequence[Any]) -> list[Any]:
            self.n_batches += 1
            if self.n_batches == 2:
                kill_in("decide", 2)
            return super().decide(described, rows)

    return KilledWorker


def test_a_table_is_complete_even_if_workers_are_killed(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    monkeypatch.setattr(table_module, "TableWorker", killed_worker(killed))
    table = write_table(tmp_path / "in.csv", 600)
    with TableWorkers("local", 2, "body", [QUESTION], {}, model_options=ALONE) as workers:
        result = run(open_table(table), workers, tmp_path / "out.csv")
    assert list(killed.glob("open *")), "no worker was killed while it opened the model"
    assert len(list(killed.glob("decide *"))) >= 2, "no worker was killed with a batch"
    assert (result.counts.rows, result.new_rows, result.is_whole) == (600, 600, True)
    assert (tmp_path / "out.csv").read_bytes() == decide_here(table, tmp_path / "here.csv")


def test_a_batch_that_kills_every_worker_ends_the_job(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doomed(table_module.TableWorker):
        def decide(self, described: dict[str, Any], rows: Sequence[Any]) -> list[Any]:
            if any("order 444," in str(row) for row in rows):  # row 13
                os.kill(os.getpid(), signal.SIGKILL)
            return super().decide(described, rows)

    monkeypatch.setattr(table_module, "TableWorker", Doomed)
    rows = open_table(write_table(tmp_path / "in.csv", 64)).rows()
    with (
        TableWorkers("local", 1, "body", [QUESTION], {}, model_options=ALONE) as workers,
        pytest.raises(ElizaError, match="^Ray could not complete rows 1 to 64 in 3 tries: "),
    ):
        list(workers.decide_rows(rows))


def test_the_error_of_a_table_names_the_node_without_the_model(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "in.csv", 10)
    command = ["decide", str(table), *COMMAND, "--output", str(tmp_path / "out.csv")]
    command += ["--ray", "local", "--workers", "2", "--model", str(tmp_path / "no.gguf")]
    assert cli.main(command) == 1
    error = capsys.readouterr().err.splitlines()[-1]  # a progress message may come first
    assert error.startswith("eliza-ffi: node ")
    assert "no such file or directory: " in error and "no.gguf; expected a " in error
    assert error.endswith("; every node needs the model's file at the same path")
    assert not (tmp_path / "out.csv").exists()


def test_an_interrupted_command_can_be_resumed_on_another_ray(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(tmp_path / "in.csv", 3000)
    output = tmp_path / "out.jsonl"
    command = ["decide", str(table), *COMMAND, *ALONE_HERE, "--output", str(output)]
    command += ["--ray", "local", "--workers", "2"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    running = subprocess.Popen(
        [sys.executable, "-m", "eliza_ffi", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while len(stored_rows(output)) < 50:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "no rows were written"
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert (running.returncode, "interrupted; the rows decided so far" in said) == (130, True)
    assert 50 <= len(stored_rows(output)) < 3000
    assert cli.main(command) == 0  # on the cluster of the tests
    assert output.read_bytes() == decide_here(table, tmp_path / "here.jsonl")
