"""`bench.sampling`: every setting is timed with both sampler chains."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.sampling import SETTINGS, Chains, measure

pytestmark = pytest.mark.slow


def test_every_setting_is_timed_with_both_chains(hooks_path: Path) -> None:
    cell = measure(Chains(hooks_path), "llama-spm", repeats=1)
    assert cell["n_vocab"] == 32000
    assert cell["settings"].keys() == SETTINGS.keys()
    for figures in cell["settings"].values():
        assert 0 < figures["ours"] < 1e6
        assert 0 < figures["common"] < 1e6
        assert figures["ratio"] > 0
