#!/usr/bin/env python3
"""Write the tree that a release is built from, and its notes: the first step of ``make release``.

    scripts/release_tree.py --url https://forge.example/eliza-ffi build/release

The folder gets what the last commit holds, with two changes: the links of the README lead to the
release's own pages at the URL, since a package index shows the README alone, and pyproject.toml
says where the project lives. The notes are the section of CHANGELOG.md about the version that
pyproject.toml states; beside the folder they are written to ``RELEASE_NOTES.md``.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """The tree is not fit to be released; the text says why."""


def version_of(pyproject: str) -> str:
    """Return the version that a pyproject.toml states."""
    found = _VERSION.search(pyproject)
    if found is None:
        raise ReleaseError('pyproject.toml states no version = "..."')
    return found[1]


def notes_of(changelog: str, version: str) -> str:
    """Return what a change log says of a version, without the heading."""
    parts = re.split(r"^## \[([^\]]+)\].*$", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if version not in sections:
        raise ReleaseError(f"CHANGELOG.md has no section ## [{version}]")
    notes = sections[version].strip()
    if not notes:
        raise ReleaseError(f"CHANGELOG.md says nothing about {version}")
    if sections.get("Unreleased", "").strip():
        raise ReleaseError(f"CHANGELOG.md has changes above {version} that are not released")
    return notes + "\n"


def with_absolute_links(readme: str, url: str, version: str) -> str:
    """Return a README whose links lead to the version's own files."""
    return _LINK.sub(rf"]({url}/blob/v{version}/\1)", readme)


def with_urls(pyproject: str, url: str, version: str) -> str:
    """Return a pyproject.toml that says where the project lives."""
    urls = {
        "Homepage": url,
        "Documentation": f"{url}/tree/v{version}/docs",
        "Changelog": f"{url}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    lines = "".join(f'{name} = "{each}"\n' for name, each in urls.items())
    head, table, rest = pyproject.partition("[project.optional-dependencies]")
    if not table:
        raise ReleaseError("pyproject.toml has no [project.optional-dependencies]")
    return f"{head}[project.urls]\n{lines}\n{table}{rest}"


def write_tree(checkout: Path, folder: Path, url: str) -> str:
    """Write the tree and its notes; return the version.

    Raises
    ------
    ReleaseError
        If something is not committed, or the version has no notes.
    """
    changed = _git(checkout, "status", "--porcelain").decode().splitlines()
    if changed:
        raise ReleaseError(f"not committed: {changed[0][3:]}" + (" ..." if changed[1:] else ""))
    version = version_of((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    notes = notes_of((checkout / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", "HEAD"))) as archive:
        archive.extractall(folder)  # our own
    readme, pyproject = folder / "README.md", folder / "pyproject.toml"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_absolute_links(text, url, version), encoding="utf-8")
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(with_urls(text, url, version), encoding="utf-8")
    (folder.parent / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    return version


def _git(checkout: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", checkout, *words], check=True, capture_output=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the tree that a release is built from.")
    parser.add_argument("--url", required=True, help="where the project lives, https://...")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    try:
        if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)*", options.url):
            raise ReleaseError(
                f"--url: {options.url!r} is not https://host/path without a / at the end"
            )
        version = write_tree(ROOT, options.folder, options.url)
    except ReleaseError as error:
        print(f"release_tree: {error}", file=sys.stderr)
        return 1
    print(f"{options.folder}: {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
