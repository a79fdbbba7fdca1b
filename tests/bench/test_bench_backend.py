"""bench/backend.py: what it counts on a backend, and the table it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backend_suite.cases import PROMPTS
from backend_suite.comparing import Subject

from bench import backend as bench_backend
from bench.backend import WAYS, main, measure
from bench.choosing.rounds import ChoiceEffort
from bench.methods import (
    GRAMMAR_FIRST,
    NO_CONSTRAINT,
    SKIP_AHEAD,
    SKIP_AHEAD_BOTH,
    SKIP_AHEAD_HEAD,
    SKIP_AHEAD_SAMPLING,
    TREE_BOTH,
    workbench_settings,
)
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.slow

# No token of this vocabulary has letters and digits both, so each of these can be spelled in one
# way only, and a grammar of them allows the very tokens that a trie does.
CODES = ["Q7Z4", "Q7X4", "Q2Z4", "Q2X4", "B3K9", "B5K9", "B5M9"]
N_EMBD = 64
N_VOCAB = 128_256
ROW_BYTES = 4 * N_VOCAB
ROUNDS = 2

CHOOSING = [name for name in WAYS if name != NO_CONSTRAINT]
SKIPPING = [name for name in CHOOSING if workbench_settings(name).method.strategy == "skip-ahead"]


@pytest.fixture(scope="module")
def path(random_model_path: Callable[..., Path]) -> Path:
    return random_model_path("llama-bpe", n_embd=N_EMBD, n_layers=2, seed=1)


@pytest.fixture(scope="module")
def cell(library: Library, path: Path) -> dict[str, Any]:
    subject = Subject(library.path, n_gpu_layers=0)
    return measure(subject, path, CODES, ChoiceEffort(ROUNDS, budget=60))


def test_all_that_choose_choose_the_same(cell: dict[str, Any]) -> None:
    expected = cell["ways"][SKIP_AHEAD]["texts"]
    assert len(expected) == len(PROMPTS)
    assert set(expected) <= set(CODES)
    choosing = {name: each["texts"] for name, each in cell["ways"].items() if name in CHOOSING}
    assert choosing == dict.fromkeys(CHOOSING, expected)


def test_tries_pass_only_where_they_decide_and_the_others_for_every_token(
    cell: dict[str, Any],
) -> None:
    def parting(text: str) -> list[int]:
        """Return at which of a code's characters, each a token, there is a choice."""
        return [i for i in range(4) if len({code[i] for code in CODES if code[:i] == text[:i]}) > 1]

    texts = cell["ways"][SKIP_AHEAD]["texts"]
    decided = sum(len(parting(text)) for text in texts) / len(texts)
    assert 1 < decided < 4
    for name in [*SKIPPING, TREE_BOTH]:
        figures = cell["ways"][name]
        assert figures["tokens"] == 4
        assert figures["decisions"] == pytest.approx(decided)
        # The first is decided by what the prompt's own pass has left.
        assert figures["passes"] == pytest.approx(decided - 1 if name in SKIPPING else 1)
    for name in (GRAMMAR_FIRST, NO_CONSTRAINT):
        figures = cell["ways"][name]
        assert (figures["tokens"], figures["decisions"], figures["passes"]) == (4, 4, 3)


def test_bytes_are_a_row_a_decision_and_few_where_legal_tokens_are_gathered(
    cell: dict[str, Any],
) -> None:
    copied = {name: each["decision_bytes"] for name, each in cell["ways"].items()}
    for name in (SKIP_AHEAD, GRAMMAR_FIRST, NO_CONSTRAINT):
        assert copied[name] == ROW_BYTES
    assert 4 * 2 <= copied[SKIP_AHEAD_SAMPLING] < ROW_BYTES / 100
    # llama.cpp copies its row of logits although the pass has stopped before it computes them.
    assert copied[SKIP_AHEAD_HEAD] == ROW_BYTES + 4 * N_EMBD
    # On the CPU a pass that stops before the head has nothing to gather from.
    assert copied[SKIP_AHEAD_BOTH] == copied[SKIP_AHEAD_HEAD]
    # The rows of ways that were not taken are copied, too.
    assert copied[TREE_BOTH] > copied[SKIP_AHEAD_BOTH]


def test_a_backend_without_a_device_is_refused(library: Library, path: Path) -> None:
    with pytest.raises(RuntimeError, match="all layers are on the CPU"):
        measure(Subject(library.path, n_gpu_layers=-1), path, CODES, ChoiceEffort(1, budget=1))


def figures(**changed: Any) -> dict[str, Any]:
    return {
        "choice_ms": 2.5,
        "passes": 3.0,
        "decisions": 4.0,
        "decision_bytes": 1e6,
        "tokens": 12.0,
        "texts": ["A", "B", "C"],
        "rounds": 9,
        **changed,
    }


def test_a_backend_that_was_not_built_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, "set back after the test")
    monkeypatch.setattr(bench_backend, "cached_model", lambda *_, **__: path)
    assert main(["no-such-backend", "--quick", "--out", str(tmp_path)]) == 2
    assert "no-such-backend" in capsys.readouterr().err
