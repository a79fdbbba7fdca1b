"""The examples with a real model in README and on the home page print the output shown."""

from __future__ import annotations

import pytest
from checkout import ROOT
from fetch_real_models import FetchError, fetch
from pages import blocks_of, differences, output_shown_by, run_block

from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.real


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_an_example_with_a_real_model_prints_the_output_shown(
    page: str,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        model = fetch("smollm2")
    except FetchError as error:
        pytest.skip(f"cannot download the model: {error}")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setenv("MODEL", str(model))
    monkeypatch.chdir(model.parent)
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    (place,) = (i for i, block in enumerate(blocks) if block.language == "python")
    shown = output_shown_by(blocks, place)
    assert shown
    namespace = {"__name__": "__main__"}
    outputs = run_block(blocks[place], shown, namespace, lambda: capsys.readouterr().out)
    for expected, actual in outputs:
        assert differences(expected, actual) == []
