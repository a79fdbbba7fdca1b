"""`bench.schemas`: counted schemas, and valid answers of all methods."""

from __future__ import annotations

import pytest

from bench.methods import OUR_MASKS, OURS
from bench.parts.workload import MODELS
from bench.schemas.__main__ import run
from bench.schemas.samples import SAMPLES
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

pytest.importorskip("llguidance", reason="llguidance is not installed")


def test_all_schemas_are_counted_and_the_first_are_timed(library: Library) -> None:
    schemas = {
        "route": SAMPLES["route"],
        "wrong": {"type": "strin"},
        "other": {"enum": ["a", "b"]},
        "flag": True,
    }
    results = run(MODELS[:1], schemas.items(), most=1, rounds=1)
    assert results["counts"] == {"schemas": 4, "closed": 2, "compiled": 2}
    (cell,) = results["cells"]
    assert (cell["model"], cell["schema"]) == ("trained 2k", "route")
    assert cell["methods"].keys() >= {OURS, OUR_MASKS}
    assert cell["mask_us"] > 0
    for each in cell["methods"].values():
        assert each["ms"] > 0 and each["tokens"] > 0 and each["is_valid"]
    assert cell["methods"][OURS]["times_ours"] == (1.0, 1.0, 1.0)
