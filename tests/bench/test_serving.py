"""The load program: it finds what is wrong with answers, and its table says so."""

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


def said(answer: Any, status: int = 200, rounding: float = 0.01) -> str:
    return _difference(TWO, status, answer, "me", rounding, Outcome())


def answer(probability: float, name: str = "me 0") -> dict[str, Any]:
    return {"answers": [{"type": "predicate", "name": name, "probability": probability}]}


def test_an_answer_is_held_against_the_one_in_process() -> None:
    assert said(answer(0.75)) == "" and said(answer(0.745)) == ""
    assert "off by 0.0500" in said(answer(0.7))
    assert said(answer(0.75, "you 0")) == "somebody else's answer"
    assert said({"answers": []}) == "another number of probabilities"
    assert said({"error": {}}, status=500).startswith("500 instead of 200")


@pytest.mark.skipif(find_llama_server()[0] is None, reason="needs llama-server: make peers")
@pytest.mark.parametrize("name", ["small decision model", "small 32k"])
def test_both_servers_answer_alike(library: Library, tmp_path: Path, name: str) -> None:
    small = ["--clients", "2", "--inputs", "4", "--out", str(tmp_path)]
    assert main(["--beside", "--only", name, *small]) == 0
    (cell,) = json.loads((tmp_path / "serving-beside.json").read_text())["cells"]
    assert cell["inputs"] == 12
    assert all(each["a_second"] > 0 for each in cell["ways"].values())
    if name == "small decision model":
        # Not all of 36: ten options of random weights are near each other, and llama-server's
        # attention rounds to half precision. By chance it would be a tenth.
        assert cell["same_answers"] >= 0.75
    else:  # the likeliest label here, and the likeliest token at each step there
        assert cell["same_answers"] is None
