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


def test_merging_replaces_the_measured_figures_and_keeps_the_others(tmp_path: Path) -> None:
    old = results_of("A", small=1.0, middle=2.0)
    for cell in old["cells"]:
        cell["other"] = cell["seconds"]  # a figure that is not measured again
    (tmp_path / "stored.json").write_text(json.dumps(old))

    def cells(new: dict[str, Any], *words: str) -> list[Any]:
        options = bench_parser("", merge=True).parse_args([*words, "--out", str(tmp_path)])
        return list(stored_or_measured(options, "stored", lambda: new, key=["model"])["cells"])

    def shown(new: dict[str, Any], *words: str) -> list[Any]:
        return [(cell["model"], cell["seconds"]) for cell in cells(new, *words)]

    def kept(new: dict[str, Any], *words: str) -> list[Any]:
        return [cell.get("other") for cell in cells(new, *words)]

    new = results_of("A", large=9.0, small=8.0)
    assert shown(new) == [("large", 9.0), ("small", 8.0)]
    assert shown(new, "--merge") == [("small", 8.0), ("middle", 2.0), ("large", 9.0)]
    assert shown(new, "--render") == [("small", 1.0), ("middle", 2.0)]
    assert kept(new, "--merge") == [1.0, 2.0, None]
    with pytest.raises(SystemExit, match="another machine"):
        shown(results_of("B", small=8.0), "--merge")
