"""The programs and commands in docs/ give the shown output, and links lead to existing places."""

from __future__ import annotations

import code
import re
from pathlib import Path

import pytest
from checkout import ROOT
from pages import (
    BUN,
    blocks_of,
    commands_of,
    differences,
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
PAGES = sorted(DOCS.rglob("*.md"))
ELSEWHERE = (
    "elizaos/replace-the-library.md",
    "guides/gpus.md",
    "guides/scale.md",
    "guides/serve.md",
    "guides/tables.md",
    "reference/c.md",
    "reference/http.md",
)
"""The pages whose programs have tests of their own, or need another machine."""


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


RUN = [page for page in PAGES if name_of(page) not in ELSEWHERE and blocks_of(text_of(page))]


def test_the_tutorials_programs_can_be_pasted_into_interactive_python() -> None:
    for program in programs_of(text_of(DOCS / "start" / "tutorial.md")):
        typed: list[str] = []
        for line in [*program.splitlines(), ""]:
            typed.append(line)
            if code.compile_command("\n".join(typed)) is not None:  # raises SyntaxError
                typed = []
        assert not typed, program


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_a_page_shows_the_output_of_its_programs(
    page: Path,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    text = text_of(page)
    if any(command.startswith("bun ") for command in commands_of(text)) and not BUN.is_file():
        pytest.skip("bun is not installed: run make check CHECK=bun")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setenv("ELIZA_MODEL", "")  # so that the test's end restores the variable
    prepare_folder()
    blocks = blocks_of(text)
    namespace = {"__name__": "__main__"}
    for place, block in enumerate(blocks):
        if block.why_not_run is not None:
            continue
        shown = output_shown_by(blocks, place)
        for expected, got in run_block(block, shown, namespace, lambda: capsys.readouterr().out):
            assert differences(expected, got) == [], f"after\n{block.text}\ngot\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_existing_files_and_headings(page: Path) -> None:
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


@pytest.mark.parametrize(
    ("shown", "got", "is_same"),
    [
        ("billing 85.1%", "billing 83.9%", True),
        ("a 0.97 ███▌", "a   0.94 ##", True),
        ("rows …\n…\nall is well", "rows 12\nmore\n\nall is well", True),
        ("billing 85.1%", "billing 79.9%", False),
        ("billing 0.85", "bugs 0.85", False),
        ("12 rows", "13 rows", False),
        ("one\ntwo", "one", False),
        ("…\nlast", "first\nother", False),
    ],
)
def test_only_rounding_and_omitted_parts_may_differ(shown: str, got: str, is_same: bool) -> None:
    assert (differences(shown, got) == []) == is_same
