"""The site's pages do what they show, lead where there is something, and are in its menu."""

from __future__ import annotations

import code
import re
from pathlib import Path

import draw_explanations
import pytest
from checkout import ROOT
from pages import (
    BUN,
    blocks_of,
    commands_of,
    differences,
    filled,
    headings_of,
    links_of,
    output_shown_by,
    prepare_folder,
    programs_of,
    run_block,
)

from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
PICTURES = DOCS / "explanation"
PAGES = sorted(DOCS.rglob("*.md"))
FOLDERS = ("tutorial", "how-to", "reference", "explanation")
NEW = [
    DOCS / "index.md",
    *(page for name in FOLDERS for page in sorted((DOCS / name).rglob("*.md"))),
]
RUN = [page for page in NEW if blocks_of(page.read_text(encoding="utf-8"))]

"""Why blocks are not run, and how many for each reason: one more is to be added knowingly."""


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_tutorials_programs_can_be_typed_into_python() -> None:
    programs = programs_of(text_of(DOCS / "tutorial" / "route-messages.md"))
    assert len(programs) > 8
    for program in programs:
        typed: list[str] = []
        for line in [*program.splitlines(), ""]:
            typed.append(line)
            if code.compile_command("\n".join(typed)) is not None:  # a SyntaxError names the line
                typed = []
        assert not typed, program


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_a_page_does_what_it_shows(
    page: Path,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    text = text_of(page)
    if any(command.startswith("bun ") for command in commands_of(text)) and not BUN.is_file():
        pytest.skip("bun is not installed: make test-bun does it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setenv("ELIZA_MODEL", "")  # so that it is taken back
    prepare_folder()
    blocks = blocks_of(text)
    namespace = {"__name__": "__main__"}
    for place, block in enumerate(blocks):
        if block.why_not_run is not None:
            continue
        shown = output_shown_by(blocks, place)
        for wanted, came in run_block(block, shown, namespace, lambda: capsys.readouterr().out):
            assert differences(wanted, came) == [], f"behind\n{block.text}\ncame\n{came}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_what_is_there(page: Path) -> None:
    missing = []
    for link in links_of(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        anchors = headings_of(text_of(path)) if path.suffix == ".md" and path.exists() else set()
        if not path.exists() or (anchor and anchors and anchor not in anchors):
            missing.append(link)
    assert missing == []


def test_the_pictures_are_what_their_script_draws() -> None:
    assert sorted(path.name for path in PICTURES.glob("*.svg")) == sorted(
        draw_explanations.PICTURES
    )
    for name, draw in draw_explanations.PICTURES.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == draw()
        assert "prefers-color-scheme: dark" in draw()


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("billing 85.1%", "billing 83.9%"),
        ("a 0.97 ███▌", "a   0.94 ##"),
        ("rows …\n…\nall is well", "rows 12\nmore\n\nall is well"),
        ("87 tokens, …", "87 tokens, 2 passes, 44.6 ms"),
    ],
)
def test_rounding_and_what_is_left_out_are_no_difference(shown: str, came: str) -> None:
    assert differences(shown, came) == []


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("billing 85.1%", "billing 79.9%"),
        ("billing 0.85", "bugs 0.85"),
        ("12 rows", "13 rows"),
        ("one\ntwo", "one"),
        ("one", "one\ntwo"),
        ("…\nlast", "first\nother"),
        ("87 tokens, …", "88 tokens, 2 passes"),
    ],
)
def test_other_texts_and_other_numbers_are_a_difference(shown: str, came: str) -> None:
    assert differences(shown, came) != []


def test_what_comes_now_is_written_into_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    run, left = "```python\nprint(6 * 7)\n```\n\n", "```text\n…\n```\n"
    page = f"{run}```text\nold\n```\n\nAnd\n\n{run}{left}<!-- not run: why -->\n{run}"
    assert filled(page, lambda: capsys.readouterr().out) == page.replace("old", "42")
