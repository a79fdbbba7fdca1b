"""A release is built from committed files, with notes and absolute links."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import release_tree
from checkout import ROOT
from release_tree import ReleaseError, notes_of, with_absolute_links, write_tree

pytestmark = pytest.mark.slow

URL = "https://forge.example/someone/eliza-ffi"
FILES = {
    "pyproject.toml": (
        '[project]\nname = "x"\nversion = "1.2.0"\n\n[project.optional-dependencies]\na = []\n'
    ),
    "CHANGELOG.md": (
        "# Changelog\n\n## [Unreleased]\n\n"
        "## [1.2.0] - 2026-01-01\n\n- new\n\n## [1.1.0]\n\n- old\n"
    ),
    "README.md": "[a](docs/a.md#part), [b](https://b.example), [c](#c), ![d](docs/d.png)\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    git(folder, "init", "-q")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", folder, *author, *words], check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")


def test_the_tree_has_the_committed_files_with_absolute_links(
    checkout: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out" / "tree"
    assert write_tree(checkout, folder, URL) == "1.2.0"
    assert (folder / "README.md").read_text(encoding="utf-8") == (
        f"[a]({URL}/blob/v1.2.0/docs/a.md#part), [b](https://b.example), [c](#c), "
        f"![d]({URL}/blob/v1.2.0/docs/d.png)\n"
    )
    pyproject = (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.urls]\nHomepage = "{URL}"\n' in pyproject
    assert pyproject.endswith("[project.optional-dependencies]\na = []\n")
    assert (tmp_path / "out" / "RELEASE_NOTES.md").read_text(encoding="utf-8") == "- new\n"


def test_uncommitted_files_stop_a_release(checkout: Path, tmp_path: Path) -> None:
    (checkout / "new.py").touch()
    with pytest.raises(ReleaseError, match=r"not committed: new\.py"):
        write_tree(checkout, tmp_path / "tree", URL)
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("## [1.1.0]\n- old\n", r"no section ## \[1\.2\.0\]"),
        ("## [1.2.0]\n\n## [1.1.0]\n- old\n", "is empty"),
        ("## [Unreleased]\n- newer\n## [1.2.0]\n- new\n", "under Unreleased"),
    ],
)
def test_a_version_without_notes_stops_a_release(changelog: str, problem: str) -> None:
    with pytest.raises(ReleaseError, match=problem):
        notes_of(changelog, "1.2.0")


def test_the_readme_has_no_relative_link_after_the_change() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert release_tree._LINK.search(text)
    assert release_tree._LINK.search(with_absolute_links(text, URL, "1.2.0")) is None
