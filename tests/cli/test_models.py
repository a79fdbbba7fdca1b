"""``eliza-ffi models``: the models in the caches, and the facts in their headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import pytest
from command import Run
from fetch_llama_cpp import source_tree

from eliza_ffi._resources import default_model_path


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a snapshot of the repository org/repo in an empty cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    snapshot = tmp_path / "models--org--repo" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    return snapshot


def write_header(file: Path, **entries: Any) -> None:
    """Write a .gguf file without tensors; two underscores in a name stand for a dot."""
    writer = gguf.GGUFWriter(file, entries.pop("architecture", "llama"))
    for name, value in entries.items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def listed(eliza: Run) -> dict[str, dict[str, Any]]:
    return {facts["name"]: facts for facts in eliza("models", "--json").json}


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_models_names_incomplete_files(share: float, eliza: Run, snapshot: Path) -> None:
    data = default_model_path().read_bytes()
    (snapshot / "whole-Q8_0.gguf").write_bytes(data)
    (snapshot / "part-F16.gguf").write_bytes(data[: int(len(data) * share)])
    facts = listed(eliza)
    assert facts["org/repo:Q8_0"]["problem"] is None
    assert facts["org/repo:F16"]["problem"] == "the file is incomplete: download it again"


def test_models_lists_what_each_model_can_do(eliza: Run, snapshot: Path) -> None:
    templates = source_tree(with_models=True) / "models" / "templates"
    template = (templates / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text(encoding="utf-8")
    (snapshot / "tiny-Q8_0.gguf").symlink_to(default_model_path())
    write_header(snapshot / "calls-Q4_K_M.gguf", tokenizer__chat_template=template)
    write_header(snapshot / "embed-F16.gguf", architecture="bert", bert__pooling_type=1)
    write_header(snapshot / "rank-F32.gguf", architecture="bert", bert__pooling_type=4)
    write_header(snapshot / "decide-BF16.gguf", llama__decision__type="lev")
    write_header(snapshot / "lora-Q2_K.gguf", general__type="adapter")
    facts = listed(eliza)
    kinds = ("chat_template", "tools", "embedding", "decision_type")
    assert {name: tuple(each[kind] for kind in kinds) for name, each in facts.items()} == {
        "org/repo:Q4_K_M": (True, True, False, None),
        "org/repo:Q8_0": (True, False, False, None),
        "org/repo:F16": (False, False, True, None),
        "org/repo:F32": (False, False, False, None),
        "org/repo:BF16": (False, False, False, "lev"),
        "org/repo:Q2_K": (False, False, False, None),
    }
    assert facts["org/repo:F16"]["architecture"] == "bert"
    assert facts["org/repo:Q8_0"]["path"] == str(snapshot / "tiny-Q8_0.gguf")
    assert facts["org/repo:Q8_0"]["size_bytes"] == default_model_path().stat().st_size
    lines = [re.split(r"  +", line) for line in eliza("models").out.splitlines()]
    assert lines[0] == ["model", "use", "size"]
    assert {name: use for name, use, _ in lines[1:]} == {
        "org/repo:Q4_K_M": "chat, tools",
        "org/repo:Q8_0": "chat",
        "org/repo:F16": "embeddings",
        "org/repo:F32": "text",
        "org/repo:BF16": "decisions (lev)",
        "org/repo:Q2_K": "adapter",
    }


def test_models_reports_damaged_and_incomplete_models(eliza: Run, snapshot: Path) -> None:
    (snapshot / "cut-Q8_0.gguf").write_bytes(default_model_path().read_bytes()[:1000])
    write_header(snapshot / "split-F16-00001-of-00002.gguf")
    facts = listed(eliza)
    assert "cut-Q8_0.gguf is damaged at byte " in facts["org/repo:Q8_0"]["problem"]
    problem = "1 of its files missing, such as split-F16-00002-of-00002.gguf"
    assert facts["org/repo:F16"]["problem"] == problem
    assert facts["org/repo:F16"]["architecture"] == "llama"


def test_models_without_a_model_says_so(eliza: Run, snapshot: Path) -> None:
    out = eliza("models").out
    assert out == "no models found in the caches of Hugging Face and llama.cpp\n"
    assert listed(eliza) == {}
