"""Measured tables name the versions that they were measured with."""

from __future__ import annotations

from pathlib import Path

import check_figures
import pytest
from checkout import ROOT

MEASURED = "| a |\n| --: |\n| 1 |\n\nXeon; eliza-ffi {} over llama.cpp b11549; 2026-11-22.\n"


@pytest.mark.parametrize(
    ("measured", "is_right"),
    [("0.2", True), ("0.1.0", False), ("0.20.1", False)],
)
def test_readme_tables_must_be_measured_with_the_minor_version(
    tmp_path: Path, measured: str, is_right: bool
) -> None:
    table = MEASURED.format(measured)
    text = f"<!-- bench:x:begin -->\n\n{table}\n<!-- bench:x:end -->\n"
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.2.1"\n')
    assert (list(check_figures.problems(tmp_path)) == []) == is_right


def test_every_measured_table_names_its_versions() -> None:
    assert [each for each in check_figures.problems(ROOT) if "name its versions" in each] == []
