"""The same names open models everywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from served import served

from eliza_ffi import AsyncModel, Model, Speculation, cli
from eliza_ffi.errors import ModelError
from eliza_ffi.hub import name_for_workers
from eliza_ffi.library import Library
from eliza_ffi.ray.resources import open_worker_model

Put = Callable[..., Path]


@pytest.fixture
def file(put: Put, library: Library) -> Path:
    """Return the only model in the cache, org/repo:Q8_0."""
    return put("org/repo", "m-Q8_0.gguf") / "m-Q8_0.gguf"


@pytest.mark.parametrize("name", ["org/repo", "org/repo:Q8_0", "hf://org/repo/m-Q8_0.gguf"])
def test_a_model_opens_by_name(file: Path, name: str) -> None:
    with Model(name, n_ctx=128, n_threads=1) as model:
        assert model.path == str(file)
        assert model.choose("x", ["a", "b"]).value in ("a", "b")


@pytest.mark.parametrize("filename", [None, "m-Q8_0.gguf", "*Q8_0.gguf"])
def test_from_pretrained_opens_a_file_of_a_repository(file: Path, filename: str | None) -> None:
    with Model.from_pretrained("org/repo", filename, n_ctx=128) as model:
        assert model.path == str(file)

    async def opened() -> str:
        async with await AsyncModel.from_pretrained("org/repo", filename, n_ctx=128) as model:
            return model.path

    assert asyncio.run(opened()) == str(file)


def test_a_drafter_opens_by_name(file: Path, tiny_model: Model) -> None:
    by_name = Speculation(max_tokens=4, drafter="org/repo:Q8_0")
    drafted = tiny_model.generate("hello", 8, speculation=by_name)
    assert drafted.text == tiny_model.generate("hello", 8).text
    assert drafted.stats.tokens_drafted > 0
    with pytest.raises(ModelError, match="no/drafter is neither"):
        tiny_model.generate("hello", 8, speculation=Speculation(drafter="no/drafter"))


def test_a_library_is_loaded_before_a_model_is_looked_up(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no\.so"):
        Model("no/such", library=tmp_path / "no.so")


def test_doctor_opens_a_model_by_name(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json", "--model", "org/repo"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["path"] == str(file)


def test_the_server_answers_under_the_name_of_the_repository(file: Path) -> None:
    with served("--model", "org/repo:Q8_0") as server, server.client() as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == "org/repo:Q8_0"


def test_workers_get_repositories_by_name_and_files_by_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_for_workers("org/repo:Q8_0") == "org/repo:Q8_0"
    assert name_for_workers("hf://org/repo") == "hf://org/repo"
    assert name_for_workers("m.gguf") == str(tmp_path / "m.gguf")


def test_a_worker_opens_a_model_by_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eliza_ffi.ray.resources.actor_resources", dict)
    monkeypatch.setattr("eliza_ffi.ray.resources.node_name", lambda: "n1")
    with open_worker_model("org/repo", {"n_ctx": 128}) as model:
        assert model.path == str(file)
    with pytest.raises(ModelError, match=r"^node n1: no/such is neither .* unset HF_HUB_OFFLINE$"):
        open_worker_model("no/such")
