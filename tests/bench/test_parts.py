"""The shared parts of the benchmarks: stored results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.parts.pages import bench_parser, stored_or_measured


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
