"""Measured tables: what they were measured with, and whether README's are up to date."""

from __future__ import annotations

from pathlib import Path

import check_figures
import pytest
from checkout import ROOT

MEASURED = "| a |\n| --: |\n| 1 |\n\nXeon; eliza-ffi {} over llama.cpp b11549; 2026-11-22.\n"


def checkout(folder: Path, readme: str, docs: str = "") -> Path:
    """Write a project of version 0.2.1 with a table in README and one in docs."""
    (folder / "docs" / "how-to").mkdir(parents=True)
    for path, text in (("README.md", readme), ("docs/how-to/page.md", docs)):
        marked = f"Before.\n\n<!-- bench:x:begin -->\n\n{text}\n<!-- bench:x:end -->\n\nAfter.\n"
        (folder / path).write_text(marked, encoding="utf-8")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.2.1"\n')
    return folder


@pytest.mark.parametrize("version", ["0.2.1", "0.2.0", "0.2"])
def test_a_table_of_the_same_minor_version_is_right(tmp_path: Path, version: str) -> None:
    root = checkout(tmp_path, MEASURED.format(version), MEASURED.format("0.1.0"))
    assert list(check_figures.problems(root)) == []


@pytest.mark.parametrize("version", ["0.1.0", "0.20.1", "1.2.1"])
def test_a_readme_table_of_another_minor_version_is_named(tmp_path: Path, version: str) -> None:
    root = checkout(tmp_path, MEASURED.format(version), MEASURED.format("0.2.1"))
    (problem,) = check_figures.problems(root)
    minor = version.rpartition(".")[0]
    assert problem.startswith("README.md: the table 'x' must be measured with eliza-ffi 0.2, and")
    assert f"was measured with {minor}: run python -m bench.peers --docs README.md" in problem


def test_a_table_that_names_no_versions_is_named(tmp_path: Path) -> None:
    root = checkout(tmp_path, MEASURED.format("0.2.0"), "| a |\n| --: |\n| 1 |\n")
    (problem,) = check_figures.problems(root)
    assert problem.startswith("docs/how-to/page.md: the table 'x' must say 'eliza-ffi VERSION over")


def test_the_command_names_each_problem_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_figures, "ROOT", checkout(tmp_path, "| 1 |\n", "| 2 |\n"))
    assert check_figures.main() == 1
    assert capsys.readouterr().err.count("check_figures: ") == 2


def test_every_measured_table_names_its_versions() -> None:
    assert [each for each in check_figures.problems(ROOT) if "must say" in each] == []
