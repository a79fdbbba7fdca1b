"""Counting how many schemas of a folder compile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import schema_coverage

pytestmark = pytest.mark.slow


def test_schemas_are_counted_by_folder_with_the_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.json").write_text('{"type": "string", "maxLength": 9}')
    (tmp_path / "files" / "b.json").write_text('{"properties": {"x": {"pattern": "(?=a)"}}}')
    (tmp_path / "files" / "c.json").write_text("{")
    (tmp_path / "files" / "d.txt").write_text("no schema")
    lines = [
        {"json_schema": json.dumps({"type": "array", "contains": {}}), "unique_id": 1},
        {"json_schema": {"enum": [1, 2]}},
        {"type": "null"},
        {"properties": {"a": {"type": "null"}, "b": {"type": "array", "contains": {}}}},
    ]
    (tmp_path / "lines.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    found = schema_coverage.coverage(tmp_path)
    counts = {name: (each.n_read, each.n_compiled, each.n_broken) for name, each in found.items()}
    assert counts == {"files": (2, 1, 1), ".": (4, 4, 0)}
    assert found["."].n_relaxed == 2
    assert schema_coverage.main([str(tmp_path), "--answers", "2"]) == 0
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if line.startswith("all "))
    assert row.split()[1:5] == ["6", "5", "83.3%", "2"]
    assert (row.split()[-3], row.split()[-1]) == ("10", "0")
    assert "rejected      1  regex parse error" in told
    assert "relaxed       2  contains is not enforced" in told
