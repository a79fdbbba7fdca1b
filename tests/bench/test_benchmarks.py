"""The benchmarks: what they measure and how they show it, on inputs that take no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import instructions as bench_instructions
from bench import peers as bench_peers
from bench import streaming as bench_streaming
from bench import tries as bench_tries
from bench.choosing.cells import Others, Workload, measure_cell
from bench.choosing.other_libraries import Logits, Peer, VocabularyBytes, measure_peer
from bench.choosing.rounds import CHOOSING, ChoiceEffort
from bench.methods import (
    ALONE,
    LOOP,
    OURS,
    SERVER,
)
from bench.model import CHOICES
from bench.model.streams import RandomPrompts
from bench.model.together import OurStreams, Written, write_together
from bench.parts.machine import noting_other_programs
from bench.parts.merging import merged
from bench.parts.pages import fill_sections
from bench.parts.single_steps import is_supported
from bench.parts.workload import MODELS, action_names
from bench.together.batch_loop import UNTOLD, BatchLoop, Expected
from bench.together.cells import PROMPTS, Cell, StreamEffort
from bench.together.llama_server import GREEDY, LlamaServer
from bench.together.report import markdown as stream_markdown
from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

# ---- the comparison with other libraries -------------------------------------------------------


@pytest.mark.parametrize("vocab", [None, "llama-spm"])
def test_the_bytes_of_tokens_spell_what_the_model_spells(
    library: Library, tiny_model: Model, random_model_path: Any, vocab: str | None
) -> None:
    path = None if vocab is None else random_model_path(vocab, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_threads=1) as model:
        vocabulary = VocabularyBytes(model)
        text = "SEND_EMAIL to Grüße 你好 🙂\n\tdone"
        spelled = b"".join(vocabulary.tokens[token] for token in vocabulary.tokenize(text))
        assert spelled.decode() == text


class OneTokenEngine:
    """Allows one token and records what it was asked."""

    compile_seconds = 0.5

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def start(self) -> None:
        self.accepted.clear()

    def fill(self) -> None:
        pass

    def pick(self, logits: NDArray[np.float32]) -> int:
        logits[:] = -np.inf
        return 7

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_a_peer_is_driven_along_our_answer_and_never_harms_the_logits() -> None:
    engine = OneTokenEngine()
    rows = [np.zeros(8, dtype=np.float32) for _ in range(2)]
    cost = measure_peer(engine, [((7, 3), rows)], repeat=2)
    assert engine.accepted == [7, 3]
    assert not np.any(rows)
    assert cost.same_decisions == 0.5
    assert cost.steps == 2.0
    assert cost.compile_ms == 500.0
    assert 0.0 <= cost.mask_us <= cost.step_us


# ---- the comparison, its tables and its pieces ---------------------------------------------------


def cell(**methods: dict[str, Any]) -> dict[str, Any]:
    figures = {
        "choice_ms": 1.0,
        "ms_per_token": 0.5,
        "tokens": 2.0,
        "passes": 1.0,
        "select_us": 3.0,
        "setup_ms": 0.1,
        "agreement": 1.0,
    }
    return {
        "model": "trained 2k",
        "n_vocab": 32000,
        "choices": 30,
        "pass_ms": 2.0,
        "seconds": 60.0,
        "set_token_trie_us_cold": 50.0,
        "set_token_trie_us_cached": 1.0,
        "methods": {
            **dict.fromkeys(CHOOSING, figures),
            "llama.cpp grammar last": {**figures, "ms_per_token": 20.0},
            **methods,
        },
        "problems": {"xgrammar": "ValueError: no"},
    }


def results(*cells: dict[str, Any], date: str = "today") -> dict[str, Any]:
    names = ("cpu", "cores", "threads", "system", "python", "numpy", "eliza_ffi", "llama_cpp")
    peers = [
        {"name": "xgrammar", "version": "1.0", "problem": None},
        {"name": "llguidance", "version": None, "problem": "ModuleNotFoundError: none"},
    ]
    machine = {**dict.fromkeys(names, "?"), "date": date}
    return {"machine": machine, "peers": peers, "plan": {}, "cells": [*(cells or (cell(),))]}


@pytest.fixture
def no_others(hooks_path: Path) -> Others:
    return Others((Peer("llguidance", None, "not wanted here"),), Logits(hooks_path))


def test_a_cell_has_the_figures_of_every_method(no_others: Others) -> None:
    workload = Workload(MODELS[0], action_names(3), ["Next action: "], n_threads=1)
    measured = measure_cell(workload, ChoiceEffort(repeat=1, budget=0.0), no_others)
    assert set(measured["methods"]) == set(CHOOSING)
    assert set(measured) >= set(cell()) - {"model"}
    assert measured["choices"] == 3
    assert measured["strategies_agree"]


@pytest.mark.parametrize("changed", ["machine", "peers", "plan"])
def test_pieces_of_different_states_are_not_put_together(changed: str) -> None:
    other = {**results(), changed: {"cpu": "another"}}
    with pytest.raises(SystemExit, match="another machine"):
        merged(other, results(), "cells", bench_peers.cell_key, [])


# ---- growth ------------------------------------------------------------------------------------


# ---- the methods -------------------------------------------------------------------------------


# ---- streaming, tries, instructions ------------------------------------------------------------


def test_every_consumer_of_a_stream_pulls_the_same(library: Library) -> None:
    measured = bench_streaming.measure(bench_streaming.small_model(), max_tokens=4, rounds=2)
    assert set(measured["consumers"]) == {
        *(bench_streaming.C_LOOP_NAME, "cffi loop", "SyncStreamingRunner", "FfiStreamingRunner")
    }
    shown = bench_streaming.markdown({**results(), "slow": measured, "small": measured})
    assert "| FfiStreamingRunner |" in shown


def test_the_error_of_a_median_is_that_of_normal_values() -> None:
    values = np.random.default_rng(1).normal(5.0, 1.0, 10_000)
    found = bench_streaming.median_and_error("x", values)
    assert found["x_error"] == pytest.approx(np.sqrt(np.pi / 2 / 10_000), rel=0.1)
    assert found["x"] == pytest.approx(5.0, abs=5 * found["x_error"])


def test_tries_are_set_from_one_thread_and_several(library: Library) -> None:
    effort = bench_tries.TrieEffort((3,), shared_leaves=3, calls=3, raced_known=3, raced_new=3)
    run = bench_tries.run(effort)
    assert [(each["threads"], each["known"]) for each in run["race"]] == [
        *((1, True), (2, True), (8, True), (1, False), (2, False), (8, False))
    ]
    assert all(0.0 < each["p50_us"] <= each["p99_us"] for each in run["race"])
    assert "| open and close |" in bench_tries.markdown(run)


@pytest.mark.skipif(not is_supported(), reason="single steps are for Linux on x86-64")
def test_a_decision_is_counted_instruction_by_instruction(library: Library) -> None:
    counted = bench_instructions.count(Path(default_model_path()))
    assert counted["n_vocab"] == 2048
    assert counted["parts"].keys() == bench_instructions.PARTS.keys()
    whole, decision, *parts = (counted["parts"][name] for name in bench_instructions.PARTS)
    assert whole > decision > sum(parts) > 0


# ---- many streams ------------------------------------------------------------------------------


LITTLE = StreamEffort(tokens=3, rounds=1, choice_rounds=1, least_choices=2, choices_beside=1)


@pytest.fixture
def loop(library: Library) -> BatchLoop:
    return BatchLoop.find()


def test_the_batch_loop_writes_what_one_stream_writes(
    loop: BatchLoop, library: Library, random_model_path: Any
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_threads=1, n_ctx=512) as model:
        prompts = RandomPrompts(model, seed=7).draw(3, 16)
        ours = write_together(OurStreams(model, CHOICES), prompts, 6)
    expected = loop.expect(path, prompts, 6, 1)
    assert [len(tokens) for tokens in expected.written.tokens] == [6, 6, 6]
    assert all(list(times) == sorted(times) for times in expected.written.seconds)
    assert all(margin < 0.1 for margin in expected.partings(ours.tokens))
    assert loop.write(path, prompts, 6, 1).tokens == expected.written.tokens


def test_prompts_of_more_than_a_batch_are_decoded_in_several(
    loop: BatchLoop, tiny_model: Model
) -> None:
    prompts = RandomPrompts(tiny_model, seed=8).draw(3, 300)
    together = loop.expect(Path(tiny_model.path), prompts, 2, 1)
    for i, prompt in enumerate(prompts):
        alone = loop.write(Path(tiny_model.path), [prompt], 2, 1)
        assert all(
            margin < 0.1
            for margin in replace(
                together,
                written=Written(together.written.tokens[i : i + 1], ((0.0,),)),
                margins=together.margins[i : i + 1],
            ).partings(alone.tokens)
        )


def test_streams_part_where_their_first_other_token_is() -> None:
    written = Written(((1, 2, 3), (4, 5, 6)), ((0.0,), (0.0,)))
    expected = Expected(written, ((1.0, 0.5, 0.1), (1.0, 1.0, 1.0)))
    assert expected.partings([(1, 9, 9), (4, 5, 6)]) == [0.5]
    assert expected.partings([(1, UNTOLD, 3), (4, 5, 6)]) == []


def test_a_cell_of_streams_is_measured_in_every_way(loop: BatchLoop, tiny_model: Model) -> None:
    cell = Cell(tiny_model, 2, LITTLE, loop, server=None)
    measured = {
        **{"model": "tiny", "streams": 2, "seconds": 1.0, "n_vocab": 2048, "problems": {}},
        "writing": cell.writing(),
        "passes": cell.passes(),
        "choosing": {PROMPTS[0]: cell.choosing(False), PROMPTS[1]: cell.choosing(True)},
        "beside": cell.beside(),
    }
    assert set(measured["writing"]) == {OURS, ALONE, LOOP}
    assert measured["writing"][LOOP]["times_the_loop"] == 1.0
    assert measured["writing"][OURS]["short_streams"] == 0
    assert set(measured["choosing"][PROMPTS[1]]) == {OURS, ALONE}
    shown = stream_markdown(stream_results(measured))
    assert "| tiny | 2 |" in shown
    assert "- llama-server: not there" in shown


def stream_results(*cells: dict[str, Any]) -> dict[str, Any]:
    peers = [{"name": SERVER, "version": None, "problem": "not there"}]
    return {**results(), "peers": peers, "plan": asdict(LITTLE), "cells": [*cells]}


class OneAnswer(BaseHTTPRequestHandler):
    """A server of one answer, streamed where that is asked for; keeps what it was asked."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(asked)
        self.send_response(200)
        self.end_headers()
        if asked.get("stream"):
            for tokens, count in (([5], 1), ([7], 3), ([], 4), ([], 4)):
                came = {"tokens": tokens, "tokens_predicted": count}
                self.wfile.write(b"data: " + json.dumps(came).encode() + b"\n\n")
        else:
            self.wfile.write(json.dumps({"content": "", "stopping_word": "B"}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def fake_server() -> Iterator[LlamaServer]:
    OneAnswer.asked.clear()
    with HTTPServer(("127.0.0.1", 0), OneAnswer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield LlamaServer(server.server_port, ("A", "B"))
        server.shutdown()
        thread.join()


def test_the_server_is_asked_for_tokens_and_for_one_of_the_answers(
    fake_server: LlamaServer,
) -> None:
    assert list(fake_server.write([1, 2], 3)) == [[5], [UNTOLD, 7], [UNTOLD]]
    assert fake_server.choose([1, 2]) == "B"
    wrote, chose = OneAnswer.asked
    assert wrote["ignore_eos"] and wrote["n_predict"] == 3 and not wrote["cache_prompt"]
    assert chose["grammar"] == 'root ::= "A" | "B"'
    assert all(
        {**asked, **GREEDY} == asked and asked["prompt"] == [1, 2] for asked in (wrote, chose)
    )


# ---- what they share ---------------------------------------------------------------------------


def test_texts_go_between_the_markers_of_their_name_however_often(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    edges = "<!-- bench:{0}:begin -->\nold\n<!-- bench:{0}:end -->\n"
    page.write_text(f"a\n{edges.format('x')}m\n{edges.format('y')}z\n", encoding="utf-8")
    fill_sections(page, {"x": "new", "elsewhere": "no"})
    fill_sections(page, {"x": "newer"})
    assert page.read_text(encoding="utf-8") == (
        f"a\n{edges.format('x').replace('old', f'{chr(10)}newer{chr(10)}')}"
        f"m\n{edges.format('y')}z\n"
    )
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match="has no"):
        fill_sections(page, {"x": "new"})


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="Linux alone tells")
def test_what_another_program_computes_meanwhile_is_noted() -> None:
    noted: dict[str, float] = {}
    begin = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            with noting_other_programs(noted):
                while _computed(other.pid) < 0.2:
                    time.sleep(0.02)
        finally:
            other.kill()
    assert noted["other_programs"] * (time.perf_counter() - begin) > 0.1


def _computed(pid: int) -> float:
    """Return the seconds that a process has computed for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
