"""bench/sampling.py: what it measures, and the table it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import sampling as bench_sampling
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow


def test_every_setting_is_timed_both_ways(hooks_path: Path) -> None:
    cell = bench_sampling.measure(bench_sampling.Chains(hooks_path), "llama-spm", repeats=5)
    assert cell["n_vocab"] == 32000
    assert cell["settings"].keys() == bench_sampling.SETTINGS.keys()
    for figures in cell["settings"].values():
        assert 0 < figures["ours"] < 1e6
        assert 0 < figures["common"] < 1e6
        assert figures["ratio"] > 0


def test_settings_that_no_chain_has_are_errors(hooks_path: Path, library: Library) -> None:
    chains = bench_sampling.Chains(hooks_path)
    logits = bench_sampling.random_logits(8)
    with pytest.raises(RuntimeError, match="could not run"):
        chains.microseconds(Path("missing.gguf"), "{}", logits, 1, as_common=False)
