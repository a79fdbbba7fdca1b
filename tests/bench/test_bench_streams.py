"""`bench.streams`: the figures of a cell, and its tables."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from page_tables import number

from bench import streams
from bench.methods import ALONE, LOOP, LOOP_EQUAL, OURS, SERVER, SERVER_EQUAL
from bench.model import CHOICES
from bench.model.together import OurStreams
from bench.parts.machine import machine_facts
from bench.together import cells
from bench.together.batch_loop import BatchLoop
from bench.together.cells import PROMPTS, Cell, StreamEffort
from bench.together.report import markdown
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

EFFORT = StreamEffort(tokens=4, rounds=3, choice_rounds=1, least_choices=2, choices_beside=1)


@dataclass(frozen=True)
class Server:
    """Stands in for llama-server: our own streams, behind the same functions."""

    ours: OurStreams
    reuse: bool = False

    def write(self, prompt: Sequence[int], n_tokens: int) -> Generator[Sequence[int], None, None]:
        return self.ours.write(prompt, n_tokens)

    def choose(self, prompt: Sequence[int]) -> str:
        return self.ours.choose(prompt)


class FailingServer(Server):
    def choose(self, prompt: Sequence[int]) -> str:
        raise ConnectionError("reset")


@pytest.fixture(scope="module")
def measured(library: Library) -> Iterator[dict[str, Any]]:
    """Yield a cell of the embedded model, with servers that stand in for llama-server."""
    with (
        pytest.MonkeyPatch.context() as patch,
        Model(library=library, n_slots=2, n_ctx=2048) as model,
    ):
        patch.setattr(cells, "SETTLING_SECONDS", 0.0)
        ours = OurStreams(model, CHOICES)
        servers: Any = {SERVER: Server(ours), SERVER_EQUAL: FailingServer(ours)}
        cell = Cell(model, 2, EFFORT, BatchLoop.find(), servers)
        yield {
            "model": "small",
            "streams": 2,
            "writing": cell.writing(),
            "passes": cell.passes(),
            "partings": cell.partings(),
            "choosing": {PROMPTS[0]: cell.choosing(False), PROMPTS[1]: cell.choosing(True)},
            "beside": cell.beside(),
            "problems": cell.problems,
            "seconds": 60.0,
        }


def results_of(*measured: dict[str, Any], busy: bool = False) -> dict[str, Any]:
    return {
        "machine": machine_facts(),
        "peers": [{"name": "llama-server", "version": "1", "problem": None}],
        "plan": asdict(EFFORT),
        "busy": busy,
        "cells": list(measured),
    }


def test_every_method_is_compared_with_ours(measured: dict[str, Any]) -> None:
    writing = measured["writing"]
    assert set(writing) == {OURS, LOOP, LOOP_EQUAL, ALONE, SERVER, SERVER_EQUAL}
    assert writing[OURS]["times_theirs"] == (1.0, 1.0, 1.0)
    assert writing[LOOP]["times_the_loop_p50"] == writing[LOOP]["times_the_loop_p99"] == 1.0
    for figures in writing.values():
        low, middle, high = figures["tokens_per_second"]
        assert 0.0 < low <= middle <= high
        assert figures["token_ms_p50"] <= figures["token_ms_p99"]
        assert figures["first_round"] > 0.0
        assert figures["short_streams"] == 0


def test_tokens_are_compared_with_the_loop_of_equal_settings(measured: dict[str, Any]) -> None:
    assert set(measured["partings"]) == {OURS, LOOP, SERVER, SERVER_EQUAL}
    assert measured["partings"][OURS]["widest"] < 0.1


def test_a_failed_server_does_not_stop_a_cell(measured: dict[str, Any]) -> None:
    assert measured["problems"] == {SERVER_EQUAL: "ConnectionError: reset"}
    for kind in PROMPTS:
        assert set(measured["choosing"][kind]) == {OURS, ALONE, SERVER}
    assert set(measured["beside"]) == {OURS, SERVER}


def test_the_tables_have_all_methods_and_mark_missing_figures(measured: dict[str, Any]) -> None:
    page = markdown(results_of(measured))
    low, middle, high = map(number, measured["writing"][OURS]["tokens_per_second"])
    rates = next(line for line in page.splitlines() if line.startswith("| small"))
    assert rates.startswith(f"| small | 2 | {middle} ({low}-{high}) | ")
    assert rates.count("(") == 5
    assert "| small | 2 | own prompts |" in page
    assert f"- small with 2 streams: {SERVER_EQUAL} failed: ConnectionError: reset" in page
    ours, server, failed = next(
        line for line in page.split("during these choices")[1].splitlines() if "small" in line
    ).split(" | ")[2:]
    assert float(ours.replace(",", "")) > 0.0 and float(server.replace(",", "")) > 0.0
    assert failed == "- |"


@pytest.mark.parametrize("busy", [False, True])
def test_results_with_a_busy_process_have_their_own_files(
    measured: dict[str, Any], tmp_path: Path, busy: bool
) -> None:
    name = "streams-busy" if busy else "streams"
    stored = json.dumps(results_of(measured, busy=busy))
    (tmp_path / f"{name}.json").write_text(stored, encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"<!-- bench:{name}:begin --><!-- bench:{name}:end -->", encoding="utf-8")
    arguments = ["--render", "--out", str(tmp_path), "--docs", str(page)]
    assert streams.main([*arguments, *["--busy"] * busy]) == 0
    written = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert written.strip() in page.read_text(encoding="utf-8")
    assert ("One other busy process" in written) == busy


def test_a_run_measures_disturbed_cells_again(library: Library) -> None:
    measured: list[tuple[Any, ...]] = []

    def measure(*arguments: Any) -> dict[str, Any]:
        measured.append(arguments)
        return {"other_programs": 0.5 / len(measured)}

    plan = streams.StreamPlan(("F16 32k",), (1, 2), EFFORT, attempts=3)
    results = streams.run(plan, streams=[8], busy=True, measure=measure)
    assert results["cells"] == [{"other_programs": 0.5 / 3}]
    assert [(model.name, n, busy) for model, n, *_, busy in measured] == [("F16 32k", 8, True)] * 3
