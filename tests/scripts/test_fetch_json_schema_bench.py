"""Laying out JSONSchemaBench by families, of small archives and folders made here."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import fetch_json_schema_bench
import pytest
from fetch_json_schema_bench import SourceError, lay_out, main

pytestmark = pytest.mark.slow

STRING = {"type": "string"}
NEVER_SAID = {"type": "array", "contains": {}}
FILES = {
    "set/README.md": b"not a schema",
    "set/data/Github_easy/o1.json": json.dumps(STRING).encode(),
    "set/data/Github_easy/o2.json": json.dumps(NEVER_SAID).encode(),
    "set/data/GlaiveAI-2K/call.json": json.dumps({"enum": [1, 2]}).encode(),
    "set/data/Github_hard/broken.json": b"{",
    "set/data/Github_hard/list.json": b"[1]",
    "set/data/Other/o9.json": json.dumps(STRING).encode(),
    "set/maskbench/data/Github_easy---o1.json": json.dumps(
        {"schema": STRING, "tests": [], "meta": {}}
    ).encode(),
    "set/maskbench/data/Snowplow---sp_1.json": json.dumps(
        {"schema": STRING, "tests": [], "meta": {}}
    ).encode(),
    "set/lines.jsonl": b"\n".join(
        json.dumps(line).encode()
        for line in (
            {"json_schema": json.dumps(STRING), "unique_id": "Kubernetes---kb_1"},
            {"json_schema": "{", "unique_id": "Kubernetes---kb_2"},
            {"json_schema": STRING, "unique_id": "../../Kubernetes---../kb/3"},
        )
    ),
}
EXPECTED = {
    "Github_easy/o1.json": STRING,
    "Github_easy/o2.json": NEVER_SAID,
    "Glaiveai2K/call.json": {"enum": [1, 2]},
    "Kubernetes/kb_1.json": STRING,
    "Kubernetes/_kb_3.json": STRING,
    "Snowplow/sp_1.json": STRING,
}


def as_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def as_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def as_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def laid_out(folder: Path) -> dict[str, object]:
    return {
        file.relative_to(folder).as_posix(): json.loads(file.read_text())
        for file in folder.rglob("*.json")
    }


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz"])
def test_schemas_are_laid_out_by_family(tmp_path: Path, kind: str) -> None:
    source = tmp_path / f"set.{kind}"
    if kind == "folder":
        as_folder(source, FILES)
    elif kind == "zip":
        as_zip(source, FILES)
    else:
        as_tar(source, FILES, "w:gz" if kind == "tar.gz" else "w")
    counts = lay_out(source, tmp_path / "out")
    assert laid_out(tmp_path / "out") == EXPECTED
    assert counts == {"Github_easy": 2, "Glaiveai2K": 1, "Kubernetes": 2, "Snowplow": 1}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize(
    "name",
    [
        "../outside/Github_easy/a.json",
        "/Github_easy/a.json",
        "data/Github_easy/../../../a.json",
        "..\\Github_easy\\a.json",
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_name_that_leads_out_of_the_archive_refuses_all_of_it(
    tmp_path: Path, name: str, kind: str
) -> None:
    files = {"data/Github_easy/fine.json": b"{}", name: b"{}"}
    source = tmp_path / "inside" / f"set.{kind}"
    source.parent.mkdir()
    if kind == "zip":
        as_zip(source, files)
    else:
        as_tar(source, files, "w")
    with pytest.raises(SourceError, match="unsafe member"):
        lay_out(source, tmp_path / "inside" / "out")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["inside", source.name]


def test_a_link_refuses_all_of_the_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        member = tarfile.TarInfo("data/Github_easy/a.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    link = zipfile.ZipInfo("data/Github_easy/a.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    for name in ("set.tar", "set.zip"):
        with pytest.raises(SourceError, match="unsafe member"):
            lay_out(tmp_path / name, tmp_path / "out")


def test_links_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"const": "secret"}')
    source = as_folder(tmp_path / "set", {"Github_easy/a.json": b"{}"})
    (source / "Github_easy" / "b.json").symlink_to(tmp_path / "secret.json")
    assert lay_out(source, tmp_path / "out") == {"Github_easy": 1}


def test_what_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = as_zip(tmp_path / "set.zip", {"Github_easy/a.json": b" " * 10_000 + b"{}"})
    monkeypatch.setattr(fetch_json_schema_bench, "LARGEST_FILE", 1000)
    with pytest.raises(SourceError, match="10002 bytes, more than 1000"):
        lay_out(source, tmp_path / "out")
    monkeypatch.setattr(fetch_json_schema_bench, "LARGEST_FILE", 2**20)
    monkeypatch.setattr(fetch_json_schema_bench, "MOST_FILES", 0)
    with pytest.raises(SourceError, match="more than 0 files"):
        lay_out(source, tmp_path / "out")


def test_a_broken_archive_leaves_nothing_behind(tmp_path: Path) -> None:
    data = as_tar(tmp_path / "whole.tar.gz", FILES).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match="truncated or broken|is no folder"):
        lay_out(tmp_path / "cut.tar.gz", tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cut.tar.gz", "whole.tar.gz"]


def test_another_hash_a_folder_that_exists_and_no_schemas_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = as_zip(tmp_path / "set.zip", FILES)
    assert main([str(source), str(tmp_path / "out"), "--sha256", "0" * 64]) == 1
    assert "sha256 expected 0000" in capsys.readouterr().err
    assert main([str(tmp_path), str(tmp_path / "out"), "--sha256", "0" * 64]) == 1
    assert "is no file" in capsys.readouterr().err
    assert main([str(source), str(tmp_path)]) == 1
    assert "exists" in capsys.readouterr().err
    other = as_zip(tmp_path / "other.zip", {"Other/a.json": b"{}"})
    assert main([str(other), str(tmp_path / "out")]) == 1
    assert "has no schema of a family of epfl-dlab/JSONSchemaBench" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
