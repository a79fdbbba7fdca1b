#!/usr/bin/env python3
"""Write the source tree and the notes of a release: the first step of ``make release``.

    scripts/release_tree.py --url https://forge.example/eliza-ffi build/release/tree

The folder gets the files of the last commit, with two changes. The README's relative links become
links to the release's files at the URL, because package indexes show the README without the other
files. pyproject.toml gets the project's URLs. The notes are the first section of CHANGELOG.md; they
are written to ``RELEASE_NOTES.md`` in the parent folder. If the commit has the tag of the version,
the section needs a date, and pyproject.toml needs ``published = true``.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_RELEASED = "not released yet"

_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_SECTION = re.compile(
    rf"^## \[([^\]]+)\] - ({NOT_RELEASED}|\d{{4}}-\d\d-\d\d)$(.*?)(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)


class ReleaseError(Exception):
    """The tree cannot be released; the message says why."""


def notes_of(changelog: str, version: str, tagged: bool) -> str:
    """Return the first section of a changelog, which must be that of the version."""
    section = _SECTION.search(changelog)
    if section is None or section[1] != version or not section[3].strip():
        raise ReleaseError(
            f"CHANGELOG.md: expected a first section ## [{version}] - with the date of the release "
            f"or the words {NOT_RELEASED!r}"
        )
    if tagged and section[2] == NOT_RELEASED:
        raise ReleaseError(f"CHANGELOG.md: the tag v{version} needs a section with a date")
    return section[3].strip() + "\n"


def with_absolute_links(page: str, url: str, version: str) -> str:
    return _LINK.sub(rf"]({url}/blob/v{version}/\1)", page)


def with_urls(pyproject: str, url: str, version: str) -> str:
    urls = f"""[project.urls]
Homepage = "{url}"
Documentation = "{url}/tree/v{version}/docs"
Changelog = "{url}/blob/v{version}/CHANGELOG.md"
Issues = "{url}/issues"

"""
    return pyproject.replace("[project.opt", f"{urls}[project.opt", 1)


def write_tree(checkout: Path, folder: Path, url: str) -> str:
    """Write the tree and the notes; return the version."""
    changed = _git(checkout, "status", "--porcelain").decode().splitlines()
    if changed:
        raise ReleaseError(f"not committed: {changed[0][3:]}" + (" ..." if changed[1:] else ""))
    settings = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    version = str(_VERSION.findall(settings)[0])
    tagged = f"v{version}" in _git(checkout, "tag", "--points-at", "HEAD").decode().split()
    if tagged and "\npublished = true\n" not in settings:
        raise ReleaseError(f"pyproject.toml: the tag v{version} needs published = true")
    changelog = (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = with_absolute_links(notes_of(changelog, version, tagged), url, version)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", "HEAD"))) as archive:
        archive.extractall(folder)  # safe: git made the archive
    readme, pyproject = folder / "README.md", folder / "pyproject.toml"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_absolute_links(text, url, version), encoding="utf-8")
    pyproject.write_text(with_urls(settings, url, version), encoding="utf-8")
    (folder.parent / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    return version


def _git(checkout: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", checkout, *words], check=True, capture_output=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tree and the notes of a release.")
    parser.add_argument("--url", required=True, help="URL of the project, https://...")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)*", options.url):
        parser.error(f"--url: expected https://host/path, got {options.url!r}")
    try:
        print(f"{options.folder}: {write_tree(ROOT, options.folder, options.url)}")
    except ReleaseError as error:
        sys.exit(f"release_tree: {error}")


if __name__ == "__main__":
    main()
