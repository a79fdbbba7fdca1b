"""The benchmark of decisions, on inputs and questions that take no time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench import decisions as bench_decisions
from bench.choosing.other_libraries import Peer
from bench.deciding.cells import DecisionCell, agreement, measure_cell
from bench.deciding.elsewhere import SystemoneServer
from bench.deciding.ours import (
    Decided,
    DecidingSetting,
    MaskedDecisions,
    OneByOne,
    OneByOneAnew,
    Together,
    TokensAlone,
)
from bench.deciding.report import markdown
from bench.deciding.workload import (
    CODES,
    DecisionSubject,
    Questionnaire,
)
from bench.methods import (
    LLGUIDANCE,
    ONE_BY_ONE,
    ONE_BY_ONE_ANEW,
    OURS,
    SERVER_GRAMMAR,
    SYSTEMONE,
    TOKENS_ALONE,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

LITTLE = DecisionSubject("little", "pplx-decider", True, 64, 2, 4, "f32")


@pytest.fixture(scope="module")
def made_model(library: Library) -> Iterator[Model]:
    with Model(LITTLE.path(), library=library, n_slots=1, n_ctx=2048, n_threads=1) as model:
        yield model


def setting_of(model: Model, n_questions: int, options: Sequence[str], **more: Any) -> Any:
    questionnaire = Questionnaire(model, n_questions, options)
    return DecidingSetting(model, questionnaire, longest=256, n_threads=1, **more)


# ---- what is asked -------------------------------------------------------------------------------


def test_questions_are_put_as_the_model_is_asked_them(tiny_model: Model) -> None:
    questionnaire = Questionnaire(tiny_model, 3, ["pay bill", "close account"])
    put = questionnaire.put("a message")
    assert list(put.texts) == tiny_model.decision_prompts("a message", questionnaire.questions)
    assert (
        put.n_tokens == tiny_model.decide("a message", questionnaire.questions).usage.input_tokens
    )
    assert questionnaire.labels == questionnaire.options
    assert questionnaire.temperature == 1.0


# ---- who is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [OneByOne, OneByOneAnew, MaskedDecisions])
def test_every_way_of_ours_answers_alike(made_model: Model, way: Any) -> None:
    setting = setting_of(made_model, 3, ["pay", "close", "open", "move"])
    put = setting.questionnaire.put("please close the account")
    ours, other = Together(setting).decide(put), way(setting).decide(put)
    assert other.answers == ours.answers
    assert len(ours.answers or ()) == 3
    assert ours.passes is not None and other.passes is not None
    assert 0 < ours.passes <= other.passes
    if other.probabilities is not None:
        for row, expected in zip(other.probabilities, ours.probabilities or (), strict=True):
            assert row == pytest.approx(expected, abs=1e-2)


def test_the_tokens_alone_are_those_of_the_decision(made_model: Model) -> None:
    setting = setting_of(made_model, 2, ["pay", "close"])
    put = setting.questionnaire.put("a message")
    counted: list[int] = []
    prefill = made_model.binding.prefill

    with pytest.MonkeyPatch.context() as patch:

        def counting(stream: Any, tokens: Any, *more: Any) -> Any:
            counted.append(len(tokens))
            return prefill(stream, tokens, *more)

        patch.setattr(made_model.binding, "prefill", counting)
        alone = TokensAlone(setting).decide(put)
    assert counted == [1, put.n_tokens]
    assert alone.answers is None
    assert alone.passes == 1


def test_nothing_of_an_input_is_left_in_the_slot(made_model: Model) -> None:
    setting = setting_of(made_model, 2, ["pay", "close"])
    questions, given = setting.questionnaire.questions, "the very same message"
    made_model.decide(given, questions)
    assert made_model.decide(given, questions).usage.cached_tokens > 5
    setting.forget()
    assert made_model.decide(given, questions).usage.cached_tokens <= 1


class DecisionServer(BaseHTTPRequestHandler):
    """Answers a completion and a request to ``/v1/systemone`` as llama-server does."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"path": self.path, **asked})
        if self.path == "/v1/systemone":
            answers = {
                name: {"probabilities": {"pay": 0.25, "close": 0.75}} for name in asked["questions"]
            }
            said: dict[str, Any] = {"answers": answers}
        else:
            top = [{"token": "B", "prob": 0.9}, {"token": "A", "prob": 0.1}]
            said = {"content": "B", "completion_probabilities": [{"top_probs": top}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server_port() -> Iterator[int]:
    DecisionServer.asked.clear()
    with HTTPServer(("127.0.0.1", 0), DecisionServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_server_is_asked_all_questions_in_one_request(
    made_model: Model, server_port: int
) -> None:
    setting = setting_of(
        made_model,
        2,
        ["pay", "close"],
        ports=dict.fromkeys((SYSTEMONE, SERVER_GRAMMAR), server_port),
    )
    decided = SystemoneServer(setting).decide(setting.questionnaire.put("a message"))
    assert decided.answers == (1, 1)
    assert decided.probabilities == ((0.25, 0.75), (0.25, 0.75))
    (asked,) = DecisionServer.asked
    assert asked["state"] == "a message"
    assert list(asked["questions"]) == ["part 1", "part 2"]
    assert asked["questions"]["part 2"]["criteria"] == {"pay": None, "close": None}


# ---- cells ---------------------------------------------------------------------------------------


def test_a_cell_is_measured_in_every_way_and_names_what_is_missing(tmp_path: Path) -> None:
    cell = DecisionCell("little", 16, 2, 3, CODES)
    measured = measure_cell(cell, LITTLE, 2, 60.0, {}, tmp_path / "no-server")
    ours = {OURS, ONE_BY_ONE, ONE_BY_ONE_ANEW, TOKENS_ALONE, LLGUIDANCE}
    assert ours <= set(measured["ways"])
    assert set(measured["problems"]) >= {SYSTEMONE, SERVER_GRAMMAR}
    assert measured["ways"][OURS]["times_ours"] == (1.0, 1.0, 1.0)
    assert measured["ways"][OURS]["rounds"] == 2
    assert measured["ways"][LLGUIDANCE]["same_answers"] == 1.0
    assert measured["ways"][ONE_BY_ONE]["widest"] < 1e-2
    assert measured["ways"][TOKENS_ALONE]["same_answers"] is None
    shown = markdown(results(measured))
    assert "- little, 16 tokens, 2 questions of 3 codes, llama-server grammar: " in shown


def test_answers_are_compared_where_the_same_is_asked() -> None:
    ours = Decided(1.0, (0, 1), ((0.9, 0.1), (0.4, 0.6)))
    other = Decided(1.0, (0, 0), ((0.8, 0.2), (0.5, 0.5)))
    compared = agreement(other, {"legal": ours}, is_decision_model=False)
    apart = {"widest": pytest.approx(0.1), "parting": pytest.approx(0.2)}
    assert compared == {"same_answers": 0.5, **apart}
    greedy = Decided(1.0, (0, 1), scoring="greedy")
    nothing = dict.fromkeys(("same_answers", "widest", "parting"))
    assert agreement(greedy, {"legal": ours}, is_decision_model=False) == nothing
    assert agreement(greedy, {"legal": ours}, is_decision_model=True)["same_answers"] == 1.0
    assert agreement(Decided(1.0), {"legal": ours}, is_decision_model=True) == nothing


# ---- the run and what it shows -------------------------------------------------------------------


def way(ms: float, **more: Any) -> dict[str, Any]:
    figures = {"request_ms": ms, "decisions_per_second": 2e3 / ms, "times_ours": (1.0, 1.0, 1.0)}
    return {**figures, "passes": 2, "rounds": 1, "same_answers": None, "widest": None, **more}


def results(*cells: dict[str, Any]) -> dict[str, Any]:
    names = ("cpu", "cores", "threads", "system", "python", "numpy", "eliza_ffi", "llama_cpp")
    machine = {**dict.fromkeys(names, "?"), "date": "today"}
    middle, effort = bench_decisions.MIDDLE, asdict(bench_decisions.FULL.effort)
    plan = {**effort, "middle": middle, "threads": 0}
    peers = [asdict(Peer("llama-server", "1")), asdict(Peer("cappr", None, "none"))]
    return {"machine": machine, "peers": peers, "plan": plan, "cells": [*cells]}


def test_an_interrupted_run_keeps_what_it_has_measured() -> None:
    cells = bench_decisions.QUICK.cells

    def stub(cell: DecisionCell, *_: Any) -> dict[str, Any]:
        if cell is cells[2]:
            raise KeyboardInterrupt
        return asdict(cell)

    results = bench_decisions.run(bench_decisions.QUICK, cells, measure=stub)
    assert results["cells"] == [asdict(cell) for cell in cells[:2]]
