"""`bench.serving`: how answers are checked, and the comparison with llama-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.serving.__main__ import main
from bench.serving.clients import Outcome, _difference
from bench.serving.workload import Asked
from bench.together.llama_server import find_llama_server
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow


TWO = Asked(
    "/v1/decisions",
    {"input": "hi", "questions": [{"type": "predicate", "instructions": "?"}]},
    probabilities=((0.75, 0.25),),
)


def problem(answer: Any, status: int = 200, rounding: float = 0.01) -> str:
    return _difference(TWO, status, answer, "me", rounding, Outcome())


def answer(probability: float, name: str = "me 0") -> dict[str, Any]:
    return {"answers": [{"type": "predicate", "name": name, "probability": probability}]}


def test_answers_are_compared_with_a_model_in_this_process() -> None:
    assert problem(answer(0.75)) == "" and problem(answer(0.745)) == ""
    assert "off by 0.0500" in problem(answer(0.7))
    assert problem(answer(0.75, "you 0")) == "the answer to another request"
    assert problem({"answers": []}) == "wrong number of probabilities"
    assert problem({"error": {}}, status=500).startswith("expected status 200, got 500")


@pytest.mark.skipif(find_llama_server()[0] is None, reason="requires llama-server: run make peers")
@pytest.mark.parametrize("name", ["small decision model", "small 32k"])
def test_both_servers_give_the_same_answers(library: Library, tmp_path: Path, name: str) -> None:
    small = ["--clients", "2", "--inputs", "4", "--out", str(tmp_path)]
    assert main(["--beside", "--only", name, *small]) == 0
    (cell,) = json.loads((tmp_path / "serving-beside.json").read_text())["cells"]
    assert cell["inputs"] == 12
    assert all(each["a_second"] > 0 for each in cell["ways"].values())
    if name == "small decision model":
        # With random weights, the ten options have similar probabilities, and llama-server's
        # attention rounds to half precision, so some of the 36 answers differ. By chance, a tenth
        # would be the same.
        assert cell["same_answers"] >= 0.75
    else:  # eliza-ffi takes the most probable label, llama-server the most probable tokens
        assert cell["same_answers"] is None
