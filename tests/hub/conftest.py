"""A server that speaks the API of Hugging Face, and empty caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub

from eliza_ffi._resources import default_model_path

MAIN = "5e" * 20
"""The commit of the branch main in the caches that the tests write."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache of huggingface_hub, which has no files yet."""
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("LLAMA_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "home" / "hub"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Return a running server, which the tests download from."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE")  # for the processes that a test starts
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/")
        yield hub


@pytest.fixture(scope="session")
def gguf() -> bytes:
    """Return the contents of the embedded model's file."""
    return default_model_path().read_bytes()


@pytest.fixture
def put(cache: Path, gguf: bytes) -> Callable[..., Path]:
    """Return a function that writes files into a snapshot of a repository in the cache."""

    def put(repo: str, *files: str, commit: str = MAIN, data: bytes = gguf) -> Path:
        folder = cache / f"models--{repo.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(MAIN)
        for file in files:
            path = folder / "snapshots" / commit / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / "snapshots" / commit

    return put
