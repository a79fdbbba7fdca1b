"""Models in the caches are found without network access and without huggingface_hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eliza_ffi import Model
from eliza_ffi.errors import ModelError
from eliza_ffi.hub import cached_models, check_exists, find_model
from eliza_ffi.library import Library

Put = Callable[..., Path]


def found(name: str) -> Path:
    return Path(find_model(name))


def test_a_file_in_the_cache_is_found_by_each_of_its_names(put: Put) -> None:
    snapshot = put("org/repo", "m-Q4_K_M.gguf", "m-Q8_0.gguf")
    assert found("org/repo") == snapshot / "m-Q4_K_M.gguf"
    assert found("org/repo:q8_0") == snapshot / "m-Q8_0.gguf"
    assert found("hf://org/repo/m-Q8_0.gguf") == snapshot / "m-Q8_0.gguf"


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE"])
def test_the_cache_follows_the_environment(
    put: Put, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    put("org/repo", "m.gguf")
    cache.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError):
        found("org/repo")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, "~/elsewhere")
    assert found("org/repo").is_relative_to(tmp_path / "elsewhere")


def test_main_comes_first_and_older_snapshots_follow(put: Put) -> None:
    older = put("org/repo", "m-Q4_K_M.gguf", "m-Q8_0.gguf", commit="0" * 40)
    main = put("org/repo", "m-Q4_K_M.gguf")
    os.utime(older)
    assert found("org/repo:Q4_K_M") == main / "m-Q4_K_M.gguf"
    assert found("org/repo:Q8_0") == older / "m-Q8_0.gguf"


def test_a_split_model_with_a_missing_part_is_not_used(put: Put) -> None:
    put("org/repo", "m-00001-of-00002.gguf")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        found("org/repo")
    assert [model.missing for model in cached_models()] == [("m-00002-of-00002.gguf",)]
    snapshot = put("org/repo", "m-00002-of-00002.gguf")
    assert found("org/repo") == snapshot / "m-00001-of-00002.gguf"
    assert [model.missing for model in cached_models()] == [()]


def test_a_link_to_a_removed_file_is_not_used(put: Put) -> None:
    file = put("org/repo", "m.gguf") / "m.gguf"
    file.unlink()
    file.symlink_to("../../blobs/gone")
    with pytest.raises(ModelError):
        found("org/repo")
    assert cached_models() == []


def test_each_cached_model_is_listed_by_a_name_that_opens_it(put: Put, gguf: bytes) -> None:
    put("org/b", "b-Q8_0.gguf", "mmproj-b.gguf", "x/b-Q2_K.gguf", "y/b-Q2_K.gguf")
    put("org/a", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf")
    models = cached_models()
    assert [model.name for model in models] == [
        "hf://org/a/a-00001-of-00002.gguf",
        "hf://org/b/x/b-Q2_K.gguf",
        "hf://org/b/y/b-Q2_K.gguf",
        "org/b:Q8_0",
    ]
    assert [found(model.name) for model in models] == [model.path for model in models]
    assert [model.size_bytes // len(gguf) for model in models] == [2, 1, 1, 1]


def test_a_folder_is_opened_by_the_rules_for_repositories(put: Put, tmp_path: Path) -> None:
    snapshot = put("org/repo", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m.gguf")
    assert find_model(snapshot) == str(snapshot / "m-Q4_K_M.gguf")
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match="has 2 models: pass the path of one: a.gguf, b.gguf"):
        find_model(tmp_path)


@pytest.mark.parametrize("name", ["smollm2", "./SMOLLM2.gguf", "a/b/smollm2", "SmolLM2:135m"])
def test_a_missing_model_is_named_with_similar_ones(
    put: Put, library: Library, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("org/SmolLM2-GGUF", "SmolLM2-Q8_0.gguf")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        Model(name, library=library)
    said = str(caught.value)
    assert said.startswith(f"no such file or directory: {tmp_path / name}; expected a .gguf file, ")
    assert said.endswith("or org/repo:QUANTIZATION; did you mean 'org/SmolLM2-GGUF:Q8_0'?")


def test_a_missing_file_is_named_with_similar_files_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "gemma-Q8_0.gguf").touch()
    with pytest.raises(ModelError) as caught:
        check_exists(str(tmp_path / "gema-Q8_0.gguf"))
    assert str(caught.value).endswith(f"did you mean {str(tmp_path / 'gemma-Q8_0.gguf')!r}?")


@pytest.mark.parametrize("site", ["https://huggingface.co/", "hf.co/", "https://hf.co/"])
def test_an_address_of_hugging_face_is_answered_with_the_name(site: str) -> None:
    with pytest.raises(ModelError, match="a model without its site: 'org/repo', got"):
        check_exists(f"{site}org/repo/tree/main")
