"""`bench.backend`: the counts of passes, decisions and copied bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backend_suite.cases import PROMPTS
from backend_suite.comparing import Subject

from bench.backend import WAYS, measure
from bench.choosing.rounds import ChoiceEffort
from bench.methods import (
    GRAMMAR_FIRST,
    NO_CONSTRAINT,
    SKIP_AHEAD,
    SKIP_AHEAD_HEAD,
    TREE_HEAD,
    workbench_settings,
)
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

# No token of this vocabulary has both letters and digits. So each code has a single tokenization,
# and a grammar of the codes allows exactly the same tokens as a trie.
CODES = ["Q7Z4", "Q7X4", "Q2Z4", "Q2X4", "B3K9", "B5K9", "B5M9"]
N_EMBD = 64
ROW_BYTES = 4 * 128_256

CHOOSING = [name for name in WAYS if name != NO_CONSTRAINT]
SKIPPING = [name for name in CHOOSING if workbench_settings(name).method.strategy == "skip-ahead"]


@pytest.fixture(scope="module")
def path(random_model_path: Callable[..., Path]) -> Path:
    return random_model_path("llama-bpe", n_embd=N_EMBD, n_layers=2, seed=1)


@pytest.fixture(scope="module")
def cell(library: Library, path: Path) -> dict[str, Any]:
    subject = Subject(library.path, n_gpu_layers=0)
    return measure(subject, path, CODES, ChoiceEffort(repeat=2, budget=60))


def test_all_methods_choose_the_same_labels(cell: dict[str, Any]) -> None:
    expected = cell["ways"][SKIP_AHEAD]["texts"]
    assert len(expected) == len(PROMPTS)
    assert set(expected) <= set(CODES)
    choosing = {name: each["texts"] for name, each in cell["ways"].items() if name in CHOOSING}
    assert choosing == dict.fromkeys(CHOOSING, expected)


def test_tries_run_passes_only_for_decisions(cell: dict[str, Any]) -> None:
    """A grammar, and no constraint, run a pass for every token except the first."""

    def deciding(text: str) -> list[int]:
        """Return the indices of a code's characters, each a token, at which codes differ."""
        return [i for i in range(4) if len({code[i] for code in CODES if code[:i] == text[:i]}) > 1]

    texts = cell["ways"][SKIP_AHEAD]["texts"]
    decided = sum(len(deciding(text)) for text in texts) / len(texts)
    assert 1 < decided < 4
    for name in [*SKIPPING, TREE_HEAD]:
        figures = cell["ways"][name]
        assert figures["tokens"] == 4
        assert figures["decisions"] == pytest.approx(decided)
        # The prompt's own pass has the logits of the first decision.
        assert figures["passes"] == pytest.approx(decided - 1 if name in SKIPPING else 1)
    for name in (GRAMMAR_FIRST, NO_CONSTRAINT):
        figures = cell["ways"][name]
        assert (figures["tokens"], figures["decisions"], figures["passes"]) == (4, 4, 3)


def test_copied_bytes_per_decision(cell: dict[str, Any]) -> None:
    copied = {name: each["decision_bytes"] for name, each in cell["ways"].items()}
    for name in (SKIP_AHEAD, GRAMMAR_FIRST, NO_CONSTRAINT):
        assert copied[name] == ROW_BYTES
    # llama.cpp copies its row of logits even if the pass stopped before computing them.
    assert copied[SKIP_AHEAD_HEAD] == ROW_BYTES + 4 * N_EMBD
    # A tree also copies the rows of branches that were not taken.
    assert copied[TREE_HEAD] > copied[SKIP_AHEAD_HEAD]


def test_a_backend_that_gets_no_layers_is_rejected(library: Library, path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected layers on a device"):
        measure(Subject(library.path, n_gpu_layers=-1), path, CODES, ChoiceEffort(1, budget=1))
