"""``decide --ray``: its output, and the arguments for the workers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_decider import FakeDecider, take_place, work_in_actors
from fake_ray import FakeRay

from eliza_ffi import cli
from eliza_ffi.ray import table as table_module

pytestmark = pytest.mark.slow

QUESTION = ("--ask", "Which?", "--option", "a", "--option", "b", "--name", "which")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("body\n" + "".join(f"text {i}\n" for i in range(40)), encoding="utf-8")
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, Any, FakeDecider]]:
    """Return a list of the models opened by workers: path, options and model."""
    found: list[tuple[Any, Any, FakeDecider]] = []

    def open_model(path: Any, options: Any) -> FakeDecider:
        found.append((path, options, FakeDecider(tmp_path / "model.gguf")))
        return found[-1][2]

    monkeypatch.setattr(table_module, "open_worker_model", open_model)
    work_in_actors(monkeypatch)
    take_place(monkeypatch, FakeDecider(tmp_path / "model.gguf"))
    return found


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_model_options_are_passed_to_the_workers(
    opened: list[tuple[Any, Any, FakeDecider]], ray: FakeRay, table: Path, tmp_path: Path
) -> None:
    command = ["decide", str(table), "--column", "body", *QUESTION, "--output"]
    command += [str(tmp_path / "out.csv"), "--ray", "local", "--workers", "1", "--threads", "3"]
    command += ["--model", "m.gguf", "--n-slots", "5", "--n-ctx", "512", "--gpu-layers", "0"]
    command += ["--device", "none", "--batching", "off", "--orders", "2", "--allowed-probability"]
    assert cli.main(command) == 0
    ((path, options, model),) = opened
    assert Path(path) == Path("m.gguf").absolute()
    assert options == {
        "n_threads": 3,
        "n_slots": 5,
        "n_ctx": 512,
        "n_gpu_layers": 0,
        "options": {"device": "none", "batching": "off"},
    }
    assert all(asked["orders"] == 2 and asked["allowed_probability"] for _, asked in model.asked)
    assert (ray.asked_for[0]["num_cpus"], ray.asked_for[0]["num_gpus"]) == (3, 0.0)
