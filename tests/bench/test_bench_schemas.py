"""The benchmark of answers of schemas, on few of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.methods import OUR_MASKS, OURS
from bench.parts.workload import MODELS
from bench.schemas.__main__ import markdown, run
from bench.schemas.answering import WrittenAnswer
from bench.schemas.measuring import measure
from bench.schemas.samples import SAMPLES, schemas_in
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

pytest.importorskip("llguidance", reason="the extra schema is not installed")


def test_every_schema_is_counted_and_the_first_are_timed(library: Library) -> None:
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
    assert "| trained 2k | route | " in markdown(results)


def written(text: str, ms: float) -> WrittenAnswer:
    return WrittenAnswer(text, tokens=3, passes=2, compile_ms=1.0, first_ms=2.0, ms=ms)


class Scripted:
    """Answers one after the other, or what is raised."""

    def __init__(self, *answers: WrittenAnswer | None | Exception) -> None:
        self.answers = list(answers)

    def answer(self, schema: Any) -> WrittenAnswer | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


def test_answers_are_compared_by_round_and_looked_at() -> None:
    ways = {
        OURS: Scripted(written("1", 9.0), written("1", 10.0), written("1", 20.0)),
        "twice": Scripted(written("1", 1.0), written("1", 20.0), written("1", 40.0)),
        "wrong": Scripted(*[written('"a"', 10.0)] * 3),
        "refuses": Scripted(ValueError("what is this?")),
        "endless": Scripted(None),
    }
    found = measure(ways, {"type": "integer"}, rounds=2)
    assert found["problems"] == {
        "refuses": "ValueError: what is this?",
        "endless": "it did not end",
    }
    assert found["methods"].keys() == {OURS, "twice", "wrong"}
    assert found["methods"]["twice"]["times_ours"] == (2.0, 2.0, 2.0)
    assert found["methods"]["twice"]["is_valid"] and not found["methods"]["wrong"]["is_valid"]
    assert found["methods"][OURS]["ms"] == 15.0  # without the first round


def test_schemas_are_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "plain.json").write_text('{"type": "string"}', encoding="utf-8")
    inside = {"json_schema": {"type": "null"}, "tests": []}
    (tmp_path / "inside.json").write_text(json.dumps(inside), encoding="utf-8")
    assert dict(schemas_in(tmp_path)) == {"a/plain": {"type": "string"}, "inside": {"type": "null"}}
