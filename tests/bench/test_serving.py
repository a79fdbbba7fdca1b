"""`bench.serving`: the server under load, and the comparisons with llama-server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.serving.__main__ import main
from bench.serving.chat import ONE_CACHE, OURS, THEIRS
from bench.together.llama_server import find_llama_server
from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow


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
