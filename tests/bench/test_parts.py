"""The shared parts of the benchmarks: ratios, stored and disturbed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.parts.figures import median_ratio
from bench.parts.machine import quietest
from bench.parts.pages import bench_parser, stored_or_measured


def test_ratios_are_computed_within_each_round() -> None:
    assert median_ratio([2.0, 9.0, 40.0], [1.0, 3.0, 10.0]) == 3.0
    assert median_ratio([2.0, 9.0], [1.0, 3.0, 10.0]) == 2.5


def results_of(cpu: str, **seconds: float) -> dict[str, Any]:
    cells = [{"model": name, "seconds": each} for name, each in seconds.items()]
    return {"machine": {"cpu": cpu, "date": f"{len(cells)}"}, "cells": cells}


def test_merging_replaces_the_measured_cells_and_keeps_the_others(tmp_path: Path) -> None:
    (tmp_path / "stored.json").write_text(json.dumps(results_of("A", small=1.0, middle=2.0)))

    def shown(new: dict[str, Any], *words: str) -> list[Any]:
        options = bench_parser("", merge=True).parse_args([*words, "--out", str(tmp_path)])
        found = stored_or_measured(options, "stored", lambda: new, key=["model"])
        return [(cell["model"], cell["seconds"]) for cell in found["cells"]]

    new = results_of("A", large=9.0, small=8.0)
    assert shown(new) == [("large", 9.0), ("small", 8.0)]
    assert shown(new, "--merge") == [("small", 8.0), ("middle", 2.0), ("large", 9.0)]
    assert shown(new, "--render") == [("small", 1.0), ("middle", 2.0)]
    with pytest.raises(SystemExit, match="another machine"):
        shown(results_of("B", small=8.0), "--merge")


@pytest.mark.parametrize(
    ("busy", "measurements", "kept"),
    [([0.0], 1, 0.0), ([0.3, 0.05], 2, 0.05), ([0.5, 0.2, 0.4], 3, 0.2)],
)
def test_a_disturbed_cell_is_measured_again(
    busy: list[float], measurements: int, kept: float
) -> None:
    made = iter([{"other_programs": each} for each in (*busy, 0.0)])
    assert quietest(lambda: next(made), attempts=3)["other_programs"] == kept
    assert len(list(made)) == len(busy) + 1 - measurements
