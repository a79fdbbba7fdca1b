"""Downloads from a local server that speaks the API of Hugging Face."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_hub import COMMIT, TOKEN, FakeHub

from eliza_ffi.errors import ModelError, NotSupportedError
from eliza_ffi.hub import find_model


def snapshot_of(cache: Path, repo: str) -> Path:
    return cache / f"models--{repo.replace('/', '--')}" / "snapshots" / COMMIT


def test_a_missing_model_is_downloaded_once(hub: FakeHub, cache: Path, gguf: bytes) -> None:
    hub.repos["org/repo"] = {"README.md": b"#", "m-Q4_K_M.gguf": gguf, "m-Q8_0.gguf": b"GGUF"}
    path = Path(find_model("org/repo"))
    assert path == snapshot_of(cache, "org/repo") / "m-Q4_K_M.gguf"
    assert path.read_bytes() == gguf
    sent = len(hub.requests)
    assert Path(find_model("org/repo:q4_k_m")) == path
    assert len(hub.requests) == sent
    assert hub.ranges("m-Q8_0.gguf") == []


def test_a_cached_model_is_used_before_a_preferred_one_is_downloaded(
    hub: FakeHub, put: Callable[..., Path]
) -> None:
    hub.repos["org/repo"] = {"m-Q4_K_M.gguf": b"GGUF"}
    snapshot = put("org/repo", "m-Q8_0.gguf")
    assert Path(find_model("org/repo")) == snapshot / "m-Q8_0.gguf"
    assert hub.requests == []


def test_a_broken_download_resumes_where_it_stopped(
    hub: FakeHub, gguf: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    hub.repos["org/repo"] = {"m.gguf": gguf}
    hub.breaks["m.gguf"] = 550_000
    assert Path(find_model("org/repo")).read_bytes() == gguf
    assert hub.ranges("m.gguf") == [None, "bytes=500000-"]


def test_progress_reports_the_fraction_of_all_files(hub: FakeHub, gguf: bytes) -> None:
    parts = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.repos["org/repo"] = dict.fromkeys(parts, gguf)
    hub.repos["org/repo"][parts[1]] += b"second"  # equal files would be downloaded once
    told: list[tuple[str, float]] = []
    path = Path(find_model("org/repo", lambda stage, done: told.append((stage, done))))
    assert path.name == parts[0]
    assert (path.parent / parts[1]).is_file()
    assert {stage for stage, _ in told} == {"download"}
    fractions = [done for _, done in told]
    assert fractions == sorted(fractions)
    assert 0.5 in fractions
    assert fractions[-1] == 1.0


def test_a_missing_part_is_downloaded(hub: FakeHub, gguf: bytes) -> None:
    parts = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.repos["org/repo"] = {parts[0]: gguf, parts[1]: gguf + b"second"}
    first = Path(find_model("org/repo"))
    (first.parent / parts[1]).resolve().unlink()
    assert Path(find_model("org/repo")) == first
    assert (first.parent / parts[1]).read_bytes() == gguf + b"second"
    assert len(hub.ranges(parts[0])) == 1


def test_an_unknown_repository_is_reported(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="no/such is neither a local file nor a repository on"):
        find_model("no/such")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("gated", "org/repo is gated: accept its conditions on its page at Hugging Face, and set"),
        ("private", "if the repository is private, set HF_TOKEN to your access token"),
    ],
)
def test_a_repository_that_needs_a_token_is_opened_with_it(
    hub: FakeHub, gguf: bytes, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    hub.repos["org/repo"] = {"m.gguf": gguf}
    getattr(hub, kind).add("org/repo")
    with pytest.raises(ModelError, match=said):
        find_model("org/repo")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert Path(find_model("org/repo")).read_bytes() == gguf


def test_without_a_server_the_error_names_the_model(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.__exit__()
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between tries
    with pytest.raises(ModelError, match="cannot download org/repo: "):
        find_model("org/repo")
    hub.__enter__()


def test_offline_mode_sends_nothing_and_lists_the_cached_models(
    hub: FakeHub, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos["org/repo"] = {"m-Q5_0.gguf": b"GGUF"}
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    put("org/repo", "a-Q5_0.gguf", "b-Q5_0.gguf", "mmproj.gguf")
    expected = "in the caches, which have a-Q5_0.gguf, b-Q5_0.gguf .*; to .*, unset HF_HUB_OFFLINE$"
    with pytest.raises(ModelError, match=expected):
        find_model("org/repo:Q5_0")
    assert hub.requests == []


def test_without_huggingface_hub_the_error_names_the_extra(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NotSupportedError, match=r"to download it: pip install 'eliza-ffi\[hub\]'$"):
        find_model("org/repo")


def test_two_threads_that_need_a_model_download_it_once(hub: FakeHub, gguf: bytes) -> None:
    hub.repos["org/repo"] = {"m.gguf": gguf}
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(find_model, ["org/repo"] * 2)
    assert one == other
    assert len(hub.ranges("m.gguf")) == 1


def test_the_command_line_downloads_with_the_variables_of_huggingface_hub(
    hub: FakeHub, cache: Path, gguf: bytes
) -> None:
    """This test starts a process, because huggingface_hub reads its variables once."""
    hub.repos["org/repo"] = {"m-Q8_0.gguf": gguf}
    hub.private.add("org/repo")
    command = [sys.executable, "-m", "eliza_ffi", "choose", "--prompt", "x", "--json"]
    command += ["--label", "a", "--label", "b", "--model", "org/repo:Q8_0"]

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    done = run(HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    path = snapshot_of(cache, "org/repo") / "m-Q8_0.gguf"
    assert json.loads(done.stdout)["model"] == str(path)
    shutil.rmtree(cache)
    done = run(HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert "to download it, unset HF_HUB_OFFLINE" in done.stderr
