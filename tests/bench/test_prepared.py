"""The benchmark of choices that are prepared once, on few of them."""

from __future__ import annotations

import pytest

from bench import prepared
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


def test_every_number_of_names_has_its_row(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "COUNTS", (2, 30))
    monkeypatch.setattr(prepared, "MOST_FROM_PYTHON", 2)
    results = prepared.run(tiny_model)
    assert [cell["names"] for cell in results["cells"]] == [2, 30]
    assert results["cells"][1]["python_ms"] is None
    assert all(cell["chooser_ms"] > 0 and cell["set_us"] > 0 for cell in results["cells"])
    lines = prepared.markdown(results).splitlines()
    assert lines[-2].startswith("| 2 | ") and lines[-1].startswith("| 30 | ")
