"""`python -m bench.eliza_1`: filled answers beside answers under a grammar."""

from __future__ import annotations

import pytest

from bench.eliza_1.answers import answer, prompt_of
from bench.eliza_1.cases import TASKS, cases_of
from bench.parts.modes import MODES
from eliza_ffi.model import Model


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
