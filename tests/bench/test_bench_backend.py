"""`python -m bench.backend`: all methods choose the same labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backend_suite.cases import PROMPTS
from backend_suite.comparing import Subject

from bench.backend import NO_CONSTRAINT, SKIP_AHEAD, WAYS, measure
from bench.choosing.cells import ChoiceEffort
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

# No token of this vocabulary has both letters and digits. So each code has a single tokenization,
# and a grammar of the codes allows exactly the same tokens as a trie.
CODES = ["Q7Z4", "Q7X4", "Q2Z4", "Q2X4", "B3K9", "B5K9", "B5M9"]
N_EMBD = 64

CHOOSING = [name for name in WAYS if name != NO_CONSTRAINT]


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


def test_a_backend_that_gets_no_layers_is_rejected(library: Library, path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected layers on a device"):
        measure(Subject(library.path, n_gpu_layers=-1), path, CODES, ChoiceEffort(1, budget=1))
