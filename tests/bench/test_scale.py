"""The benchmark of rows on workers: its sum, what it measures of a model, and its tables."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from bench import scale
from bench.parts.machine import machine_facts
from bench.scaling.estimate import Costs, row_seconds, workers_per_driver
from bench.scaling.measuring import (
    crowded_token,
    driver_seconds,
    inputs,
    pass_costs,
    rows_here,
)
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

COSTS = Costs(
    tokens={10: 1e-4, 110: 2e-4},
    cores=2,
    host_seconds=5e-4,
    host_cpu_seconds=1e-3,
    driver_seconds=1e-4,
    crowding={1: 1.0, 2: 1.5},
)


@pytest.mark.parametrize(
    ("tokens", "n_workers", "seconds"),
    [
        (10, 1, 10 * 1e-4 + 5e-4),
        (60, 1, 60 * 1.5e-4 + 5e-4),
        (1000, 1, 1000 * 2e-4 + 5e-4),
        (60, 2, (60 * 1.5e-4 + 1e-3) * 1.5),
    ],
)
def test_a_row_costs_its_tokens_and_the_hosts_share(
    tokens: float, n_workers: int, seconds: float
) -> None:
    assert row_seconds(COSTS, tokens, n_workers) == pytest.approx(seconds)


def test_a_driver_feeds_workers_until_its_own_time_is_theirs() -> None:
    assert workers_per_driver(COSTS, 60) == pytest.approx(95.0)


def test_inputs_have_the_words_that_were_asked_for_and_differ() -> None:
    drawn = list(itertools.islice(inputs(20), 500))
    assert len(set(drawn)) == 500
    assert {len(text.split()) for text in drawn} == {21}


def test_what_is_measured_of_a_model_is_of_its_passes(tiny_model: Model) -> None:
    costs = pass_costs(tiny_model, 8)
    lengths = [each["row_tokens"] for each in costs]
    assert lengths == sorted(lengths)
    for each in costs:
        assert each["pass_tokens"] >= each["row_tokens"] * 0.9
        assert each["token_seconds"] > 0
    found = rows_here(tiny_model, 8, 8)
    assert found["seconds"] > 0
    assert 8 < found["tokens"] < 100
    assert driver_seconds(8, 64, tiny_model) > 0


def test_passes_beside_others_are_run_by_processes(
    library: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.scaling.measuring.CROWD_SECONDS", 0.2)
    assert 0 < crowded_token(None, 1, 2) < 1


def test_tables_show_what_was_measured_beside_what_was_reckoned(tmp_path: Path) -> None:
    cell = {"words": 8, "tokens": 60.0, "start_seconds": 5.0}
    results: dict[str, Any] = {
        "machine": machine_facts(),
        "model": "m.gguf",
        "plan": {"seconds": scale.FULL.seconds},
        "passes": [{"at_once": 2, "row_tokens": 10.0, "pass_tokens": 80.0, "token_seconds": 1e-4}],
        "costs": {
            "tokens": {"10": 1e-4, "110": 2e-4},
            "cores": 2,
            "host_seconds": 5e-4,
            "host_cpu_seconds": 1e-3,
            "driver_seconds": 1e-4,
            "crowding": {"1": 1.0, "2": 1.5},
        },
        "here": [{"words": 8, "tokens": 60.0, "seconds": 0.01, "cpu_seconds": 0.01, "passes": 1.0}],
        "on_ray": [
            {**cell, "workers": 1, "rows_per_second": 80.0, "reckoned": 100.0},
            {**cell, "workers": 2, "rows_per_second": 160.0, "reckoned": 133.0},
        ],
    }
    shown = scale.markdown(results)
    assert scale.SHORT not in shown
    assert scale.SHORT in scale.markdown({**results, "plan": {"seconds": 1.0}})
    assert "| 10.0 | 80.0 | 8.00 | 0.10 |" in shown
    assert "| 60.0 | here | 100 |  |  |  |" in shown
    assert "| 60.0 | 1 | 80.0 | 100 | +25% | 5.00 |" in shown
    assert "| 60.0 | 2 | 160 | 133 | -17% | 5.00 |" in shown
    # 10^9 rows of 50 tokens: (50 x 1.4e-4 s + 1 ms) x 1.5 each.
    assert "| 50 | 12.0 | 33.3 | 3.33 | 0.33 | 3,333 | 75 |" in shown
    (tmp_path / "scale.json").write_text(json.dumps(results), encoding="utf-8")
    docs = tmp_path / "page.md"
    docs.write_text("<!-- bench:scale:begin -->\n<!-- bench:scale:end -->\n", encoding="utf-8")
    assert scale.main(["--render", "--out", str(tmp_path), "--docs", str(docs)]) == 0
    assert "133" in docs.read_text(encoding="utf-8")
