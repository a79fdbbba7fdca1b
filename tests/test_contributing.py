"""CONTRIBUTING.md, SECURITY.md and the issue templates name only things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checkout import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEMPLATES = sorted((ROOT / ".github").rglob("*.*"))
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")]

SUFFIXES = (".cmake", ".cpp", ".h", ".html", ".md", ".py", ".sh", ".toml", ".ts")
ROOMS = {
    "native/src/engine": ROOT / "native" / "src" / "engine",
    "eliza_ffi": ROOT / "eliza_ffi",
}
"""The folders whose contents the first two tables list."""


def section(heading: str) -> str:
    """Return a section of CONTRIBUTING.md with its subsections."""
    level = heading.partition(" ")[0]
    rest = PAGE.partition(f"\n{heading}\n")[2]
    assert rest, heading
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def paths_in(text: str) -> list[str]:
    """Return the quoted names that are paths relative to the checkout's root."""
    tops = {each.name for each in ROOT.iterdir()}
    return [
        name
        for name in quoted(text)
        if re.fullmatch(r"[\w.][\w./-]*", name)
        and (name.partition("/")[0] in tops if "/" in name else name.endswith(SUFFIXES))
    ]


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table's rows, without the header."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def test_every_change_in_the_map_has_files_and_tests() -> None:
    changes = rows(section("## What to open").partition("### ")[0])
    assert len(changes) >= 20
    for change, files, tests in changes:
        assert paths_in(files), change
        assert any("test" in path for path in paths_in(tests)), change


@pytest.mark.parametrize("heading", ["## What to open", "## The path of a call"])
def test_every_path_of_the_map_exists(heading: str) -> None:
    paths = paths_in(section(heading))
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_function_of_a_pass_is_in_the_named_file() -> None:
    steps = re.findall(r"`([\w:.]+)`\s+\(`([\w./]+)`\)", section("## The path of a call"))
    assert len(steps) > 15
    for name, path in steps:
        last = re.split(r"::|\.", name)[-1]
        qualified = name if path.endswith(".cpp") and "::" in name else last
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\b{re.escape(qualified)}\(", text), f"{name} is not in {path}"


def test_every_identifier_of_the_map_is_in_a_named_file() -> None:
    """An identifier in a row or a step occurs in a file that the same row or step names."""
    map_ = section("## What to open")
    places = [line for line in map_.splitlines() if line.startswith("| ")][2:]
    places += re.split(r"^- \[ \] ", map_, flags=re.MULTILINE)[1:]
    for place in places:
        files = [ROOT / path for path in paths_in(place) if (ROOT / path).is_file()]
        texts = "\n".join(file.read_text(encoding="utf-8") for file in files)
        names = [n for n in quoted(place) if re.fullmatch(r"[A-Za-z_][\w:]*_?\w*", n)]
        for name in names:
            last = name.split("::")[-1]
            if not (ROOT / name).exists() and files:
                assert re.search(rf"\b{last}\b", texts), f"{name} is in none of {files}"


@pytest.mark.parametrize("room", ROOMS)
def test_the_tables_list_exactly_the_existing_rooms(room: str) -> None:
    folder = ROOMS[room]
    heading = "### The engine" if room == "native/src/engine" else "### The package"
    table = section(heading)
    named = {name.rstrip("/") for cells in rows(table) for name in quoted(cells[0])}
    there = {f.name for f in folder.iterdir() if f.is_dir() and any(f.glob("*.*"))}
    there -= {"__pycache__", "fixtures"}
    assert there <= named
    assert [name for name in named if not (folder / name).exists()] == []
    for cells in rows(table):
        for name in quoted(cells[1]):
            if name.endswith((".py", ".h", ".html")):
                assert list(folder.rglob(name)), name


@pytest.mark.parametrize("file", [*PAGES, *TEMPLATES], ids=lambda file: file.name)
def test_links_are_relative_and_their_targets_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "://" not in text
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        assert (file.parent / link).exists(), link


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_a_template_names_existing_files_and_has_no_links(file: Path) -> None:
    """A template is copied into an issue, where relative links do not work."""
    text = file.read_text(encoding="utf-8")
    assert "](" not in text
    assert [path for path in paths_in(text) if not (ROOT / path).exists()] == []
