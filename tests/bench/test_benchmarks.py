"""The comparison with other libraries, and the batch loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.choosing.cells import Others, Workload, measure_cell
from bench.choosing.other_libraries import Logits, Peer
from bench.choosing.rounds import CHOOSING, ChoiceEffort
from bench.model import CHOICES
from bench.model.streams import RandomPrompts
from bench.model.together import OurStreams, Written, write_together
from bench.parts.workload import MODELS, action_names
from bench.together.batch_loop import DEFAULTS, EQUAL, BatchLoop
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


def test_all_strategies_agree_in_a_cell(hooks_path: Path) -> None:
    others = Others((Peer("llguidance", None, "not needed here"),), Logits(hooks_path))
    workload = Workload(MODELS[0], action_names(3), ["Next action: "], n_threads=1)
    measured = measure_cell(workload, ChoiceEffort(repeat=1, budget=0.0), others)
    assert set(measured["methods"]) == set(CHOOSING)
    assert measured["choices"] == 3
    assert measured["strategies_agree"]


@pytest.fixture
def loop(library: Library) -> BatchLoop:
    return BatchLoop.find()


@pytest.mark.parametrize("settings", [DEFAULTS, EQUAL])
def test_the_batch_loop_generates_the_requested_number_of_tokens(
    loop: BatchLoop, tiny_model: Model, settings: str
) -> None:
    prompts = RandomPrompts(tiny_model, seed=7).draw(3, 16)
    expected = replace(loop, settings=settings).expect(Path(tiny_model.path), prompts, 6, 1)
    for made in (expected.written.tokens, expected.written.seconds, expected.margins):
        assert [len(one) for one in made] == [6, 6, 6]


def test_the_batch_loop_rejects_unknown_settings(loop: BatchLoop, tiny_model: Model) -> None:
    with pytest.raises(RuntimeError, match="expected defaults or equal"):
        replace(loop, settings="fast").write(Path(tiny_model.path), [[1]], 1, 1)


def test_the_batch_loop_generates_the_tokens_of_our_streams(
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


def test_prompts_longer_than_a_batch_do_not_change_tokens(
    loop: BatchLoop, tiny_model: Model
) -> None:
    path = Path(tiny_model.path)
    prompts = RandomPrompts(tiny_model, seed=8).draw(3, 300)
    together = loop.expect(path, prompts, 2, 1)
    for i, prompt in enumerate(prompts):
        expected = replace(
            together,
            written=Written(together.written.tokens[i : i + 1], ((0.0,),)),
            margins=together.margins[i : i + 1],
        )
        alone = loop.write(path, [prompt], 2, 1)
        assert all(margin < 0.1 for margin in expected.partings(alone.tokens))
