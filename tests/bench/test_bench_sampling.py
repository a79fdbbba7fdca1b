"""bench/sampling.py: what it measures, and the table it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ROOT

from bench import sampling as bench_sampling
from bench.parts.machine import machine_facts
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


def test_the_table_has_a_row_for_each_setting_and_vocabulary(library: Library) -> None:
    figures = {"ours": 20.0, "common": 50.0, "ratio": 2.5}
    cell = {"n_vocab": 128256, "settings": dict.fromkeys(bench_sampling.SETTINGS, figures)}
    results = {"machine": machine_facts(), "repeats": 9, "cells": [cell]}
    shown = bench_sampling.markdown(results)
    assert "Medians of 9 draws" in shown
    assert "| balanced | 128,256 | 2.50 | 20.0 | 50.0 |" in shown
    assert shown.count("| 128,256 |") == len(bench_sampling.SETTINGS)


def test_the_page_has_a_place_for_the_table() -> None:
    page = (ROOT / "docs" / "sampling.md").read_text(encoding="utf-8")
    begin, end = (page.find(f"<!-- bench:sampling:{edge} -->") for edge in ("begin", "end"))
    assert 0 <= begin < end
