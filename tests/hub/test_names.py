"""Names of models, and the files that they select."""

from __future__ import annotations

from pathlib import Path

import pytest

from eliza_ffi.errors import InvalidArgumentError, ModelError
from eliza_ffi.hub import HubName, hub_path, read_name
from eliza_ffi.hub.names import parts_of, pick_file

MODELS = ["m-BF16.gguf", "m-Q3_K_M.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"]
FILES = ["README.md", "imatrix.gguf", *MODELS, "mmproj-m-Q4_K_M.gguf"]
PARTS = [f"m-F16-0000{i}-of-00002.gguf" for i in (1, 2)]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("org/repo", HubName("org/repo")),
        ("org/Repo-1.5_x:Q4_K_M", HubName("org/Repo-1.5_x", "Q4_K_M")),
        ("hf://org/repo", HubName("org/repo")),
        ("hf://org/repo:UD-Q4_K_XL", HubName("org/repo", "UD-Q4_K_XL")),
        ("hf://org/repo/a/b.gguf", HubName("org/repo", file="a/b.gguf")),
        (hub_path("org/repo", "*Q4_K_M.gguf"), HubName("org/repo", file="*Q4_K_M.gguf")),
        ("org/file.gguf", "org/file.gguf"),
        ("./org/repo", "./org/repo"),
        ("../repo", "../repo"),
        ("a/b/c", "a/b/c"),
        ("repo", "repo"),
        (Path("org/repo"), str(Path("org/repo"))),
    ],
)
def test_repositories_and_paths_are_told_apart(name: str | Path, read: str | HubName) -> None:
    assert read_name(name) == read


@pytest.mark.parametrize(
    "name", ["hf://", "hf://repo", "hf://org/repo:", "hf://org/repo:Q8_0/a.gguf", "hf://a b/c"]
)
def test_a_malformed_name_is_rejected_with_the_expected_forms(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="path must be hf://org/repo, ") as caught:
        read_name(name)
    assert repr(name) in str(caught.value)


def test_an_existing_file_wins_over_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_name("org/repo") == HubName("org/repo")
    (tmp_path / "org" / "repo").mkdir(parents=True)
    assert read_name("org/repo") == "org/repo"
    assert read_name("hf://org/repo") == HubName("org/repo")


def test_a_tilde_stands_for_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_name("~/models/a.gguf") == f"{tmp_path}/models/a.gguf"
    assert read_name(Path("~/a.gguf")) == f"{tmp_path}/a.gguf"


@pytest.mark.parametrize(
    ("name", "files", "picked"),
    [
        ("org/m:q3_k_m", FILES, "m-Q3_K_M.gguf"),
        ("org/m", FILES, "m-Q4_K_M.gguf"),
        ("org/m", ["m.Q2_K.gguf", "m.Q8_0.gguf"], "m.Q8_0.gguf"),
        ("org/m", ["m.gguf", "mmproj-m.gguf"], "m.gguf"),
        ("org/m:Q8_0", ["Q8_0/m.gguf", "Q2_K/m.gguf"], "Q8_0/m.gguf"),
        ("org/m:Q4_K_XL", ["m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf"], "m-UD-Q4_K_XL.gguf"),
        ("hf://org/m/mmproj-m-Q4_K_M.gguf", FILES, "mmproj-m-Q4_K_M.gguf"),
        ("hf://org/m/*BF16*", FILES, "m-BF16.gguf"),
        ("org/m:F16", PARTS[::-1], PARTS[0]),
    ],
)
def test_a_name_selects_one_file(name: str, files: list[str], picked: str) -> None:
    read = read_name(name)
    assert isinstance(read, HubName)
    assert pick_file(read, files) == picked


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("org/m:Q5_0", FILES, f"org/m has no model 'Q5_0'; its models are: {', '.join(MODELS)}"),
        ("org/m:K_M", ["m-Q4_K_M.gguf"], "has no model 'K_M'; its models are: m-Q4_K_M.gguf"),
        ("hf://org/m/x.gguf", ["a.gguf"], "has no .gguf file 'x.gguf'; its models are: a.gguf"),
        ("hf://org/m/README.md", ["README.md"], "has no .gguf file 'README.md'"),
        ("org/m", ["model.safetensors"], "the repository org/m has no model in the GGUF format"),
        (
            "org/m",
            ["a-Q2_K.gguf", "a-Q3_K.gguf"],
            "org/m names 2 models: add a quantization, as in org/m:Q8_0, or write "
            "hf://org/m/FILE with one of these files: a-Q2_K.gguf, a-Q3_K.gguf",
        ),
        ("hf://org/m/*.gguf", ["a.gguf", "b.gguf"], "one of these files: a.gguf, b.gguf"),
        ("org/m", [f"{i:03}.gguf" for i in range(40)], "028.gguf, 029.gguf and 10 more"),
    ],
)
def test_an_unclear_name_is_rejected_with_the_models(
    name: str, files: list[str], said: str
) -> None:
    read = read_name(name)
    assert isinstance(read, HubName)
    with pytest.raises(ModelError) as caught:
        pick_file(read, files)
    assert str(caught.value).endswith(said)


def test_the_parts_of_a_split_model_follow_from_its_first_file() -> None:
    assert parts_of("a/m-00001-of-00003.gguf") == [f"a/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert parts_of("m.gguf") == ["m.gguf"]
