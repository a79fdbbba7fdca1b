#!/usr/bin/env python3
"""Write the source tree and the notes of a release: the first step of ``make release``.

    scripts/release_tree.py --url https://forge.example/eliza-ffi build/release

The folder gets the files of the last commit, with two changes. The README's relative links become
links to the release's files at the URL, because package indexes show the README without the other
files. pyproject.toml gets the project's URLs. The notes are the section of CHANGELOG.md for the
version in pyproject.toml; they are written to ``RELEASE_NOTES.md`` in the parent folder.
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
    """The tree cannot be released; the message says why."""


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a changelog for a version, without the heading."""
    parts = re.split(r"^## \[([^\]]+)\].*$", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if version not in sections:
        raise ReleaseError(f"CHANGELOG.md has no section ## [{version}]")
    notes = sections[version].strip()
    if not notes:
        raise ReleaseError(f"CHANGELOG.md: the section ## [{version}] is empty")
    if sections.get("Unreleased", "").strip():
        raise ReleaseError(
            f"CHANGELOG.md: move the entries under Unreleased to the section ## [{version}]"
        )
    return notes + "\n"


def with_absolute_links(readme: str, url: str, version: str) -> str:
    """Turn a README's relative links into links to the files of the version."""
    return _LINK.sub(rf"]({url}/blob/v{version}/\1)", readme)


def with_urls(pyproject: str, url: str, version: str) -> str:
    """Add the project's URLs to a pyproject.toml."""
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
    """Write the tree and the notes; return the version.

    Raises
    ------
    ReleaseError
        If a change is not committed, or the version has no notes.
    """
    changed = _git(checkout, "status", "--porcelain").decode().splitlines()
    if changed:
        raise ReleaseError(f"not committed: {changed[0][3:]}" + (" ..." if changed[1:] else ""))
    version = str(_VERSION.findall((checkout / "pyproject.toml").read_text(encoding="utf-8"))[0])
    notes = notes_of((checkout / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", "HEAD"))) as archive:
        archive.extractall(folder)  # safe: git made the archive
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
    parser = argparse.ArgumentParser(
        description="Write the source tree and the notes of a release."
    )
    parser.add_argument("--url", required=True, help="URL of the project, https://...")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    try:
        if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)*", options.url):
            raise ReleaseError(
                f"--url: expected https://host/path without a trailing slash, got {options.url!r}"
            )
        version = write_tree(ROOT, options.folder, options.url)
    except ReleaseError as error:
        print(f"release_tree: {error}", file=sys.stderr)
        return 1
    print(f"{options.folder}: {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
