"""A server with several models, which decide as a cascade."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, SYSTEMONE, ask, served
from team_examples import EXAMPLES

from eliza_ffi import AsyncModel, Model
from eliza_ffi._resources import default_model_path
from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.serve import read_settings
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Cascade
from eliza_ffi.learning import calibrate
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.server import check_model

OTHER = str(default_model_path())
TEAM = Choice("Which team?", {"billing": "payments", "technical": "the product"}, name="team")
TEXTS = [f"{text} {i}" for i in range(6) for text, _ in EXAMPLES]
TEXT = "My card was charged again."


def cascade_of(model: Any, below: float = 1.0) -> Cascade:
    return Cascade([model, (model, {"orders": 2})], below=below)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, tiny_model: Model) -> Path:
    found: Any = calibrate(cascade_of(tiny_model), TEAM, inputs=TEXTS, at=0.8)
    found.save(path := tmp_path_factory.mktemp("cascade") / "tickets.calibration.json")
    return path


@pytest.fixture
def app_of_cascade(tiny_model: Model) -> Callable[..., Any]:
    def make(*options: str, below: float = 1.0) -> Any:
        arguments = build_parser().parse_args(["serve", "--then", OTHER, *options])
        settings, cascade = read_settings(arguments), cascade_of(tiny_model, below)
        check_model(tiny_model, settings, cascade)
        return make_app(AsyncModel.of(tiny_model), settings, cascade=cascade)

    return make


def test_a_set_with_a_calibration_of_a_cascade_says_where_it_ended(
    fitted: Path, app_of_cascade: Callable[..., Any], tiny_model: Model
) -> None:
    app = app_of_cascade("--calibration", str(fitted))
    expected = cascade_of(tiny_model).decide(TEXT, TEAM, calibration=fitted)
    requests = [
        ("POST", DECISIONS, {"model": "tickets", "input": TEXT}),
        ("POST", SYSTEMONE, {"model": "tickets", "state": TEXT}),
    ]
    found, same = (each.json() for each in ask(app, *requests))
    assert (found["calibrated"], found["stage"]) == (True, expected.stage)
    assert found["answers"][0]["choice"] == expected["team"].value
    assert same["stage"] == expected.stage


@pytest.mark.parametrize(("below", "stage"), [(0.0, 1), (1.0, 2)])
def test_the_questions_of_a_request_are_answered_by_the_cascade(
    app_of_cascade: Callable[..., Any], tiny_model: Model, below: float, stage: int
) -> None:
    app = app_of_cascade(below=below)
    question = {"type": "choice", "instructions": "Which team?", "choices": ["billing", "sales"]}
    body = {"input": TEXT, "questions": [question]}
    (found,) = ask(app, ("POST", DECISIONS, body))
    asked = Choice("Which team?", ["billing", "sales"])
    expected = cascade_of(tiny_model, below).decide(TEXT, asked)
    assert found.json()["stage"] == stage == expected.stage
    probabilities = {
        e["value"]: e["probability"] for e in found.json()["answers"][0]["probabilities"]
    }
    assert probabilities == pytest.approx(dict(expected[0].options), abs=0.02)
    (refused,) = ask(app, ("POST", DECISIONS, {**body, "include": ["prompts"]}))
    assert refused.status_code == 400 and "only timings" in refused.json()["error"]["message"]


def test_an_event_loop_gets_the_same_answers(tiny_model: Model) -> None:
    def last(inputs: list[Any], questions: Any) -> list[str]:
        return ["billing"] * len(inputs)

    model = AsyncModel.of(tiny_model)
    cascade = Cascade([model, (model, {"orders": 2}), last])

    async def several() -> list[Any]:
        return await asyncio.gather(*(cascade.decide_async(text, TEAM) for text in TEXTS[:3]))

    expected = Cascade([tiny_model, (tiny_model, {"orders": 2}), last]).decide_many(TEXTS[:3], TEAM)
    found = asyncio.run(several())
    assert [each.stage for each in found] == [each.stage for each in expected] == [3, 3, 3]
    assert [each["team"].value for each in found] == ["billing"] * 3
    two = Cascade([model, (model, {"orders": 2})])
    one = asyncio.run(two.decide_async(TEXT, TEAM))
    same = Cascade([tiny_model, (tiny_model, {"orders": 2})]).decide(TEXT, TEAM)
    assert one["team"].probability == pytest.approx(same["team"].probability, abs=0.02)


def test_the_command_opens_all_models(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "others.json").write_text(
        json.dumps({"urgent": {"type": "predicate", "instructions": "It is urgent."}})
    )
    with served("--then", OTHER, "--questions", str(tmp_path / "others.json")) as running:
        body = {"model": "others", "input": "Call me now!"}
        found = httpx.post(running.url + DECISIONS, json=body, timeout=60).json()
    assert (found["stage"], found["calibrated"]) == (2, False)


def test_a_calibration_of_another_kind_is_refused(
    fitted: Path, app_of_cascade: Callable[..., Any], app_of: Callable[..., Any], tiny_model: Model
) -> None:
    with pytest.raises(InvalidArgumentError, match="it is a calibration of a cascade: pass --then"):
        app_of("--calibration", str(fitted))
    calibrate(tiny_model, TEAM, EXAMPLES, method="none").save(path := fitted.with_name("x.json"))
    with pytest.raises(InvalidArgumentError, match="not a usable calibration of a cascade"):
        app_of_cascade("--calibration", str(path))
