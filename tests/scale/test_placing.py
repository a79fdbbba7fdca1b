"""What workers get of a cluster, and what they make of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay

from eliza_ffi.errors import LibraryNotFoundError, ModelError, NotSupportedError
from eliza_ffi.library.loading import LIBRARY_VARIABLE
from eliza_ffi.scale.placing import cpus_for_each, gpus_for_each
from eliza_ffi.scale.share import load_ray, open_worker_model, share_of_worker, threads_for

pytestmark = pytest.mark.slow


def nodes(cpus: Sequence[float], gpus: Sequence[float] = ()) -> list[dict[str, Any]]:
    given = [{"Alive": True, "Resources": {"CPU": n}} for n in cpus]
    given += [{"Alive": True, "Resources": {"GPU": n}} for n in gpus]
    return [*given, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]


@pytest.mark.parametrize(
    ("cpus", "n_workers", "each"),
    [
        ((8,), 1, 8),
        ((8,), 3, 2),
        ((8, 8), 2, 8),
        ((8, 8), 3, 4),
        ((8, 4), 2, 4),
        ((16, 2), 3, 5),
        ((2,), 5, 1),
        ((), 2, 1),
    ],
)
def test_cpus_are_shared_out_so_that_all_workers_fit(
    cpus: Sequence[float], n_workers: int, each: int
) -> None:
    assert cpus_for_each(nodes(cpus), n_workers) == each


@pytest.mark.parametrize(
    ("gpus", "n_workers", "each"),
    [
        ((), 2, 0.0),
        ((1,), 1, 1.0),
        ((4,), 2, 1.0),
        ((2,), 3, 0.5),
        ((1, 1), 4, 0.5),
        ((1,), 3, 1 / 3),
    ],
)
def test_a_gpu_is_shared_where_there_are_fewer_than_workers(
    gpus: Sequence[float], n_workers: int, each: float
) -> None:
    assert gpus_for_each(nodes((8,), gpus), n_workers) == each


def test_a_share_of_a_cpu_is_one_thread() -> None:
    assert [threads_for(cpus) for cpus in (0.0, 0.5, 1.0, 4.0, 4.5)] == [1, 1, 1, 4, 4]


def test_a_worker_uses_what_ray_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(is_initialized=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray.resources = {"CPU": 3.0}
    share = share_of_worker()
    assert (share.n_threads, share.n_gpu_layers) == (3, 0)
    assert share.node.endswith("(10.0.0.7)")
    ray.resources = {"GPU": 0.5}
    share = share_of_worker()
    assert (share.n_threads, share.n_gpu_layers) == (1, -1)


def test_where_ray_gave_nothing_the_model_decides_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    share = share_of_worker()
    assert (share.n_threads, share.n_gpu_layers) == (0, -1)


def test_the_extra_is_named_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NotSupportedError, match=r"pip install 'eliza-ffi\[ray\]'"):
        load_ray()


def test_a_model_that_is_missing_names_the_node(
    monkeypatch: pytest.MonkeyPatch, library: object, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_initialized=True))
    with pytest.raises(ModelError, match=r"node .*10\.0\.0\.7.*no\.gguf.*every node needs"):
        open_worker_model(tmp_path / "no.gguf")


def test_a_library_that_is_missing_names_the_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_initialized=True))
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "no.so"))
    with pytest.raises(LibraryNotFoundError, match=r"node .*10\.0\.0\.7"):
        open_worker_model(None)


def test_options_go_before_what_ray_gave(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_initialized=True))
    with open_worker_model(None, {"n_threads": 1, "n_slots": 3}) as model:
        assert model.describe()["passes"]["n_slots"] == 3
