"""JSONSchemaBench is sorted by family, and untrusted archives cannot write elsewhere."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from fetch_json_schema_bench import SourceError, lay_out

STRING = {"type": "string"}
WITH_TESTS = json.dumps({"schema": STRING, "tests": [], "meta": {}}).encode()
LINES = (
    {"json_schema": json.dumps(STRING), "unique_id": "Kubernetes---kb_1"},
    {"json_schema": "{", "unique_id": "Kubernetes---kb_2"},
    {"json_schema": STRING, "unique_id": "../../Kubernetes---../kb/3"},
)
FILES = {
    "set/README.md": b"not a schema",
    "set/data/Github_easy/o1.json": json.dumps(STRING).encode(),
    "set/data/GlaiveAI-2K/call.json": json.dumps({"enum": [1, 2]}).encode(),
    "set/data/Github_hard/broken.json": b"{",
    "set/data/Other/o9.json": json.dumps(STRING).encode(),
    "set/maskbench/data/Github_easy---o1.json": WITH_TESTS,
    "set/maskbench/data/Snowplow---sp_1.json": WITH_TESTS,
    "set/lines.jsonl": b"\n".join(json.dumps(line).encode() for line in LINES),
}
EXPECTED = {
    "Github_easy/o1.json": STRING,
    "Glaiveai2K/call.json": {"enum": [1, 2]},
    "Kubernetes/kb_1.json": STRING,
    "Kubernetes/_kb_3.json": STRING,
    "Snowplow/sp_1.json": STRING,
}


def write(path: Path, files: dict[str, bytes]) -> Path:
    """Write an archive of the kind that the path's suffix names."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_schemas_are_sorted_by_family(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "out"
    counts = lay_out(write(tmp_path / f"set.{kind}", FILES), folder)
    found = {
        file.relative_to(folder).as_posix(): json.loads(file.read_text())
        for file in folder.rglob("*.json")
    }
    assert found == EXPECTED
    assert counts == {"Github_easy": 1, "Glaiveai2K": 1, "Kubernetes": 2, "Snowplow": 1}


@pytest.mark.parametrize("name", ["../outside/a.json", "/a.json", "..\\Github_easy\\a.json"])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_with_a_path_outside_of_it_is_rejected(
    tmp_path: Path, name: str, kind: str
) -> None:
    files = {"data/Github_easy/fine.json": b"{}", name: b"{}"}
    source = write(tmp_path / "inside" / f"set.{kind}", files)
    with pytest.raises(SourceError, match="unsafe member"):
        lay_out(source, tmp_path / "inside" / "out")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["inside", source.name]


def test_an_archive_with_a_link_is_rejected(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        member = tarfile.TarInfo("data/Github_easy/a.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(SourceError, match="unsafe member"):
        lay_out(tmp_path / "set.tar", tmp_path / "out")
