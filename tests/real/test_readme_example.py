"""The examples with a real model in README and in docs/ print the output shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ROOT
from fetch_real_models import FetchError, fetch
from pages import blocks_of, differences, output_shown_by, run_block

from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.real


MARK = "tests/real/test_readme_example.py"
"""In the comment above a block: the block needs the downloaded model, and this test runs it."""

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if MARK in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("page", PAGES)
def test_an_example_with_a_real_model_prints_the_output_shown(
    page: str,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    try:
        model = fetch("smollm2")
    except FetchError as error:
        pytest.skip(f"cannot download the model: {error}")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setenv("MODEL", str(model))
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    namespace = {"__name__": "__main__"}
    for place, block in enumerate(blocks):
        is_marked = block.why_not_run is not None and MARK in block.why_not_run
        if block.language != "python" or not (is_marked or block.why_not_run is None):
            continue  # the unmarked programs define names that the marked ones use
        shown = output_shown_by(blocks, place)
        outputs = [*run_block(block, shown, namespace, lambda: capsys.readouterr().out)]
        if is_marked:
            ((expected, actual),) = outputs
            assert differences(expected, actual) == []
