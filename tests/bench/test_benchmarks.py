"""Short runs of the benchmarks of choices, rankings and answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from backend_suite.cases import PROMPTS
from backend_suite.comparing import Subject

from bench.backend import NO_CONSTRAINT, SKIP_AHEAD, WAYS, measure
from bench.choosing.cells import CHOOSING, ChoiceEffort, Others, measure_cell
from bench.choosing.other_libraries import Logits, Peer
from bench.eliza_1.answers import answer, prompt_of
from bench.eliza_1.cases import TASKS, cases_of
from bench.parts.modes import MODES
from bench.parts.pages import RESULTS
from bench.parts.workload import EMBEDDED, action_names
from bench.pictures import main as draw_pictures
from bench.ranking import ALL, CHOOSE, RANK, product_names, ways_of
from bench.ranking import WAYS as RANKING_WAYS
from bench.sizes import CACHED, NEW
from bench.sizes import measure_cell as measure_size
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

# No token of this vocabulary has both letters and digits. So each code has a single tokenization,
# and a grammar of the codes allows exactly the same tokens as a trie.
CODES = ["Q7Z4", "Q7X4", "Q2Z4", "Q2X4", "B3K9", "B5K9", "B5M9"]


@pytest.mark.slow
def test_a_choice_is_measured_with_every_method(hooks_path: Path) -> None:
    others = Others((Peer.find("llguidance"),), Logits(hooks_path))
    effort = ChoiceEffort(repeat=1, budget=0.0)
    measured = measure_cell(EMBEDDED, action_names(3), ["Next action: "], effort, others)
    assert measured["problems"] == {}
    assert set(measured["methods"]) == {*CHOOSING, "llguidance"}
    assert measured["choices"] == 3
    assert all(each["choice_ms"] > 0.0 for each in measured["methods"].values())


@pytest.fixture(scope="module")
def path(random_model_path: Callable[..., Path]) -> Path:
    return random_model_path("llama-bpe", n_embd=64, n_layers=2, seed=1)


@pytest.mark.slow
def test_all_methods_of_a_backend_choose_the_same_labels(library: Library, path: Path) -> None:
    subject = Subject(library.path, n_gpu_layers=0)
    ways: dict[str, Any] = measure(subject, path, CODES, ChoiceEffort(2, budget=60))["ways"]
    expected = ways[SKIP_AHEAD]["texts"]
    assert len(expected) == len(PROMPTS)
    assert set(expected) <= set(CODES)
    choosing = [name for name in WAYS if name != NO_CONSTRAINT]
    assert {name: ways[name]["texts"] for name in choosing} == dict.fromkeys(choosing, expected)


@pytest.mark.slow
def test_a_backend_that_gets_no_layers_is_rejected(library: Library, path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected layers on a device"):
        measure(Subject(library.path, n_gpu_layers=-1), path, CODES, ChoiceEffort(1, budget=1))


@pytest.mark.slow
def test_all_ways_return_labels_and_exact_ways_the_same(tiny_model: Model) -> None:
    labels = tiny_model.prepare_labels(product_names(27))
    ways = ways_of(tiny_model, labels)
    assert tuple(ways) == RANKING_WAYS
    found = {name: way("Message: a warm blanket\nProduct: ") for name, way in ways.items()}
    assert {each.label for each in found.values()} <= set(labels.texts)
    assert found[RANK].label == found[CHOOSE].label == found[ALL].label
    assert found[RANK].probability == pytest.approx(found[ALL].probability, rel=0.1)


def test_new_and_cached_prompts_are_measured(library: Library) -> None:
    cell = measure_size(EMBEDDED, program=None)
    assert cell["problems"] == {}
    assert all(cell["ways"][way]["ms"] > 0.0 for way in (NEW, CACHED))


def test_every_mark_of_the_pictures_lies_in_its_panel(tmp_path: Path) -> None:
    for results in RESULTS.glob("*.json"):
        shutil.copy(results, tmp_path)
    draw_pictures(["--results", str(tmp_path)])
    for name, n_panels in (("performance", 4), ("time-of-a-choice", 1)):
        svg = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        panels = svg.findall("{*}g")
        assert len(panels) == n_panels
        for panel in panels:
            dots = [
                (float(dot.attrib["cx"]), float(dot.attrib["cy"]))
                for dot in panel.findall("{*}circle")
            ]
            assert dots
            assert all(60 < x < 456 and 56 < y < 252 for x, y in dots)


@pytest.mark.parametrize("task", TASKS)
def test_filled_answers_match_the_skeleton(tiny_model: Model, task: str) -> None:
    """Both orders of the grammar generate the same tokens, because decoding is greedy."""
    for case in list(cases_of(task))[:3]:
        prompt = prompt_of(tiny_model, case, chat=False)
        made = {mode: answer(tiny_model, case, prompt, mode, 60) for mode in MODES}
        filled, strict, guided = (
            made[mode] for mode in ("strict-trie-ffi", "strict-guided", "guided")
        )
        assert case.skeleton.matches(filled.text)
        assert guided.text == strict.text
        assert guided.tokens == 60 or case.skeleton.matches(guided.text)
        if filled.text == strict.text:
            assert filled.forward_passes < strict.forward_passes
