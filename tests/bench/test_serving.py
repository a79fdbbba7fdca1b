"""`bench.serving`: how answers are checked, and the comparisons with llama-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.serving.__main__ import main
from bench.serving.chat import ONE_CACHE, OURS, THEIRS
from bench.serving.clients import Outcome, _difference
from bench.serving.workload import Asked
from bench.together.llama_server import find_llama_server
from eliza_ffi._resources import default_model_path
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


CHAT = Asked(
    "/v1/chat/completions", {"messages": [], "stream": True, "max_tokens": 2}, text="hi there"
)


def chunk(text: str, reason: str | None = None, id: str = "1") -> dict[str, Any]:
    return {"id": id, "choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def test_a_stream_of_chat_is_compared_with_the_expected_text() -> None:
    def problem(*events: dict[str, Any], n_tokens: int = 2) -> str:
        usage = {"id": "1", "choices": [], "usage": {"completion_tokens": n_tokens}}
        return _difference(CHAT, 200, [*events, usage], "me", 0.01, Outcome())

    hi, there = chunk("hi "), chunk("there", "length")
    assert problem(hi, there) == ""
    assert problem(there).startswith("expected 'hi there', got 'there'")
    assert problem(hi, there, n_tokens=3) == "expected 2 tokens, got 3"
    assert problem(hi, chunk("there")).startswith("a stream that does not end")
    assert (
        problem(hi, chunk("there", "length", id="2")) == "a stream with events of several answers"
    )
    assert problem(hi, {"error": {}}).startswith("an error in a stream")


def test_a_choice_in_chat_is_the_most_probable_label() -> None:
    asked = Asked("/v1/chat/completions", {"messages": []}, probabilities=((0.75, 0.25),))
    choice = {"finish_reason": "stop", "probabilities": {"yes": 0.75, "no": 0.25}}
    problems = []
    for text in ("yes", "no"):
        body = {
            "choices": [{**choice, "message": {"content": text}}],
            "usage": {"completion_tokens": 1},
        }
        problems.append(_difference(asked, 200, body, "me", 0.01, Outcome()))
    assert problems[0] == ""
    assert problems[1].startswith("expected the most probable label")


def test_the_server_answers_chat_under_load(library: Library, tmp_path: Path) -> None:
    small = ["--chat", "--clients", "4", "--requests", "5", "--spoilers", "2"]
    assert main([*small, "--out", str(tmp_path)]) == 0
    facts = json.loads((tmp_path / "serving-chat.json").read_text())
    assert facts["held"] == 20 and facts["wrong"] == facts["lost"] == 0 and facts["exact"] > 0


needs_llama_server = pytest.mark.skipif(
    find_llama_server()[0] is None, reason="requires llama-server: run make peers"
)


@needs_llama_server
def test_both_servers_give_the_same_answers(library: Library, tmp_path: Path) -> None:
    small = ["--clients", "2", "--inputs", "4", "--out", str(tmp_path)]
    assert main(["--beside", "--only", "small decision model", *small]) == 0
    (cell,) = json.loads((tmp_path / "serving-beside.json").read_text())["cells"]
    assert cell["inputs"] == 12
    assert all(each["a_second"] > 0 for each in cell["ways"].values())
    # With random weights, the ten options have similar probabilities, and llama-server's attention
    # rounds to half precision, so some of the 36 answers differ. By chance, a tenth would be the
    # same.
    assert cell["same_answers"] >= 0.75


@needs_llama_server
def test_chat_compares_our_server_with_two_llama_servers(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(default_model_path())
    quick = ["--chat", "--beside", "--quick", "--model", model, "--out", str(tmp_path)]
    assert main(quick) == 0
    results = json.loads((tmp_path / "serving-chat-beside.json").read_text())
    assert [cell["clients"] for cell in results["cells"]] == [1, 4]
    for cell in (*results["cells"], results["arriving"]):
        assert set(cell["ways"]) == {OURS, THEIRS, ONE_CACHE}
        assert set(cell["times_theirs"]) == {THEIRS, ONE_CACHE}
        for figures in cell["ways"].values():
            assert figures["tokens_per_second"] > 0 and figures["first_text_ms_p50"] > 0
    page = capsys.readouterr().out
    assert main([*quick, "--render"]) == 0
    assert capsys.readouterr().out.strip() in page
