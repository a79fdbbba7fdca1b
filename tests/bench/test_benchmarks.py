"""The benchmarks: what they measure and how they show it, on inputs that take no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import instructions as bench_instructions
from bench import streaming as bench_streaming
from bench.choosing.cells import Others, Workload, measure_cell
from bench.choosing.other_libraries import Logits, Peer, VocabularyBytes, measure_peer
from bench.choosing.rounds import CHOOSING, ChoiceEffort
from bench.model import CHOICES
from bench.model.streams import RandomPrompts
from bench.model.together import OurStreams, Written, write_together
from bench.parts.pages import fill_sections
from bench.parts.single_steps import is_supported
from bench.parts.workload import MODELS, action_names
from bench.together.batch_loop import BatchLoop
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


@pytest.mark.skipif(not is_supported(), reason="single steps are for Linux on x86-64")
def test_a_decision_is_counted_instruction_by_instruction(library: Library) -> None:
    counted = bench_instructions.count(Path(default_model_path()))
    assert counted["n_vocab"] == 2048
    assert counted["parts"].keys() == bench_instructions.PARTS.keys()
    whole, decision, *parts = (counted["parts"][name] for name in bench_instructions.PARTS)
    assert whole > decision > sum(parts) > 0


# ---- many streams ------------------------------------------------------------------------------


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
