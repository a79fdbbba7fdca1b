"""The resources that Ray assigns to an actor, and the model opened with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fake_ray import FakeRay

from eliza_ffi.errors import LibraryNotFoundError, NotSupportedError
from eliza_ffi.library.loading import LIBRARY_VARIABLE
from eliza_ffi.ray.resources import actor_resources, load_ray, node_name, open_worker_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("given", "n_threads", "n_gpu_layers"),
    [
        ({}, 1, 0),
        ({"CPU": 0.5}, 1, 0),
        ({"CPU": 1.0}, 1, 0),
        ({"CPU": 4.5}, 4, 0),
        ({"GPU": 0.5}, 1, -1),
    ],
)
def test_an_actor_uses_the_resources_that_ray_assigned(
    given: dict[str, float], n_threads: int, n_gpu_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(is_initialized=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray.resources = given
    assert actor_resources() == {"n_threads": n_threads, "n_gpu_layers": n_gpu_layers}
    assert node_name().endswith("(10.0.0.7)")


def test_outside_an_actor_the_model_uses_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    assert actor_resources() == {}


def test_the_error_for_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NotSupportedError, match=r"pip install 'eliza-ffi\[ray\]'"):
        load_ray()


def test_the_error_for_a_missing_library_names_the_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_initialized=True))
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "no.so"))
    with pytest.raises(LibraryNotFoundError, match=r"node .*10\.0\.0\.7"):
        open_worker_model(None)


def test_model_options_override_assigned_resources(
    monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_initialized=True))
    with open_worker_model(None, {"n_threads": 1, "n_slots": 3}) as model:
        assert model.describe()["passes"]["n_slots"] == 3
