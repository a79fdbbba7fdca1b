"""Counting how many schemas of a folder a skeleton says."""

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
    (tmp_path / "files" / "a.json").write_text('{"type": "string"}')
    (tmp_path / "files" / "b.json").write_text('{"properties": {"x": {"contains": {}}}}')
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
    counts = {name: (each.n_read, each.n_said, each.n_broken) for name, each in found.items()}
    assert counts == {"files": (2, 1, 1), ".": (4, 3, 0)}
    assert found["."].n_less == 1
    assert schema_coverage.main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "all                                    6       4  66.7%       1       1" in told
    assert "refused       2  contains is not supported" in told
    assert "left out      1  contains is not supported" in told


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        schema_coverage.main([str(tmp_path / "none")])
