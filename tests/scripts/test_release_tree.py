"""The notes of a release are the first section of the changelog, with a date or without one."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT
from release_tree import ReleaseError, notes_of, with_absolute_links

DATED = """# Changelog

## [1.2.0] - 2026-05-04

News.

### More

- Other news.

## [1.1.0] - 2026-01-02

Old.
"""
OPEN = DATED.replace("2026-05-04", "not released yet")


@pytest.mark.parametrize(("changelog", "tagged"), [(DATED, True), (DATED, False), (OPEN, False)])
def test_the_notes_are_the_first_section(changelog: str, tagged: bool) -> None:
    assert notes_of(changelog, "1.2.0", tagged) == "News.\n\n### More\n\n- Other news.\n"


@pytest.mark.parametrize(
    ("changelog", "version", "tagged", "message"),
    [
        (DATED, "1.3.0", False, "expected a first section ## [1.3.0]"),
        (DATED, "1.1.0", False, "expected a first section ## [1.1.0]"),
        (OPEN.replace("not released yet", "soon"), "1.2.0", False, "expected a first section"),
        ("## [1.2.0] - 2026-05-04\n", "1.2.0", False, "expected a first section"),
        (OPEN, "1.2.0", True, "has the tag v1.2.0, but its section has no date"),
    ],
)
def test_another_first_section_is_rejected(
    changelog: str, version: str, tagged: bool, message: str
) -> None:
    with pytest.raises(ReleaseError, match=re.escape(message)):
        notes_of(changelog, version, tagged)


def test_this_changelog_begins_with_the_version_of_the_package() -> None:
    version = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version[0], tagged=False)


def test_only_relative_links_become_links_to_the_version() -> None:
    page = "[a](docs/a.md#b) [c](https://other.example) [d](#e)"
    changed = with_absolute_links(page, "https://forge.example/x", "1.2.0")
    assert changed == page.replace("docs/a.md", "https://forge.example/x/blob/v1.2.0/docs/a.md")
