"""The pages show how to install the package, and name the same extras as its messages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT
from install_commands import PAGES, is_published, with_commands

from eliza_ffi.cli.doctor import EXTRAS

PAGE = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")


def texts() -> list[Path]:
    """Return the committed and new text files in which somebody may read about an extra."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    endings = (".md", ".py", ".html", ".yml")
    return [
        ROOT / name
        for name in listed
        if name.endswith(endings) and not name.startswith("tests/") and (ROOT / name).is_file()
    ]


def extras_in(text: str) -> set[str]:
    """Return the extras in the text's requirements, such as ``eliza-ffi[serve,cli]``."""
    lists = re.findall(r"(?:eliza-ffi|'\.)\[([a-z, -]+)\]", text)
    return {name.strip() for each in lists for name in each.split(",")}


def extras_of_the_tables(text: str) -> dict[str, str]:
    """Return the purposes of the extras in the page's two tables."""
    section = text.partition("## Extras")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([a-z]+)` \| (.+?) \|$", section, flags=re.MULTILINE))


def test_every_file_names_only_existing_extras() -> None:
    unknown = {
        str(path.relative_to(ROOT)): names
        for path in texts()
        if (names := extras_in(path.read_text(encoding="utf-8")) - set(EXTRAS))
    }
    assert unknown == {}


def test_the_installation_page_describes_extras_as_doctor_does() -> None:
    assert extras_of_the_tables(PAGE) == {name: purpose for name, (purpose, _) in EXTRAS.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_commands_that_work_now(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    published = is_published((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert with_commands(page, published) == page
    after = with_commands(page, published=True)
    assert "$ pip install eliza-ffi\n" in after
    assert "There is no release yet" not in after
    assert with_commands(after, published) == page
