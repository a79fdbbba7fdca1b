"""`bench.streams`: the figures of a cell."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from bench.methods import ALONE, LOOP, LOOP_EQUAL, OURS, SERVER, SERVER_EQUAL
from bench.model import CHOICES
from bench.model.streams import PROMPT_TOKENS
from bench.model.together import OurStreams
from bench.parts.machine import machine_facts
from bench.parts.workload import Subject
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
        Model(library=library, n_slots=2, n_ctx=2048, n_threads=1) as model,
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


@pytest.mark.parametrize(
    "busy, prompt_tokens, text_only",
    [(True, PROMPT_TOKENS, False), (False, 40, False), (False, PROMPT_TOKENS, True)],
)
def test_choices_are_measured_only_in_usual_cells(
    busy: bool, prompt_tokens: int, text_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(cells, "N_CTX", 2048)
    embedded = Subject("trained 2k", None)
    loop = BatchLoop.find()
    cell = cells.measure_cell(embedded, 2, EFFORT, loop, None, busy, prompt_tokens, text_only)
    assert "choosing" not in cell and "beside" not in cell
    assert (LOOP_EQUAL in cell["writing"]) is not busy
    facts = {"machine": machine_facts(), "peers": [], "plan": asdict(EFFORT), "busy": busy}
    page = markdown({**facts, "cells": [cell]})
    assert "Tokens per second of all streams" in page
    assert "Choices" not in page
