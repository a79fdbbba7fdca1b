"""The README's example with a real model prints the output shown."""

from __future__ import annotations

import pytest
from checkout import ROOT
from fetch_real_models import FetchError, fetch
from pages import blocks_of, differences, output_shown_by, run_block

from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.real


def test_the_readmes_example_with_a_real_model_prints_the_output_shown(
    library: Library, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        model = fetch("smollm2")
    except FetchError as error:
        pytest.skip(f"cannot download the model: {error}")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setenv("MODEL", str(model))
    blocks = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    place = next(i for i, block in enumerate(blocks) if 'environ["MODEL"]' in block.text)
    shown = output_shown_by(blocks, place)
    assert shown
    namespace = {"__name__": "__main__"}
    outputs = run_block(blocks[place], shown, namespace, lambda: capsys.readouterr().out)
    for expected, actual in outputs:
        assert differences(expected, actual) == []
