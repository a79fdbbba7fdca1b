"""The benchmark of answers of schemas, on few of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.schemas.__main__ import markdown, run
from bench.schemas.samples import SAMPLES, schemas_in
from eliza_ffi.model import Model

pytest.importorskip("llguidance", reason="the extra schema is not installed")


def test_every_schema_is_counted_and_the_first_are_timed(tiny_model: Model) -> None:
    schemas = {
        "route": SAMPLES["route"],
        "wrong": {"type": "strin"},
        "other": {"enum": ["a", "b"]},
        "flag": True,
    }
    results = run(tiny_model, schemas.items(), most=1, rounds=1)
    assert results["counts"] == {"schemas": 4, "skeleton": 2, "llguidance": 2, "either": 2}
    (cell,) = results["cells"]
    assert cell["methods"].keys() == {"skeleton", "masks", "grammar"}
    assert cell["mask_us"] > 0
    assert all(each["ms"] > 0 and each["tokens"] > 0 for each in cell["methods"].values())
    assert markdown(results).splitlines()[-1].startswith("| route | ")


def test_schemas_are_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "plain.json").write_text('{"type": "string"}', encoding="utf-8")
    inside = {"json_schema": {"type": "null"}, "tests": []}
    (tmp_path / "inside.json").write_text(json.dumps(inside), encoding="utf-8")
    assert dict(schemas_in(tmp_path)) == {"a/plain": {"type": "string"}, "inside": {"type": "null"}}
