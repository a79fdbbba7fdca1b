"""Questions with more options than the formats allow, and many tags."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import DECISIONS, SYSTEMONE, ask, choice, decisions_body

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions import Choice, MultiLabel
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

INPUT = "I live in Oak20."
TOWNS = [f"{first}{last}" for first in ("Ash", "Oak", "Elm", "Fir") for last in range(100)]
BATCH = "/v1/decisions/batch"


def app_of(model: Model, **settings: Any) -> Any:
    return make_app(AsyncModel.of(model), ServeSettings("tiny", **settings))


def test_a_choice_may_have_as_many_options_as_the_server_allows(tiny_model: Model) -> None:
    app = app_of(tiny_model, max_options=400)
    question = {**choice(*TOWNS), "top": 3}
    criteria = dict.fromkeys(TOWNS)
    asked = {"type": "choice", "instructions": "Which?", "criteria": criteria, "top": 3}
    one, batch, systemone = ask(
        app,
        ("POST", DECISIONS, decisions_body(INPUT, question)),
        ("POST", BATCH, {"inputs": [INPUT], "questions": [question]}),
        ("POST", SYSTEMONE, {"state": INPUT, "questions": {"town": asked}}),
    )
    (expected,) = tiny_model.decide(INPUT, Choice(question["instructions"], TOWNS, top=3)).answers
    (answer,) = one.json()["answers"]
    assert answer["choice"] == expected.choice
    assert (len(answer["probabilities"]), answer["n_options"]) == (3, 400)
    assert answer["rest"] == pytest.approx(expected.rest, abs=0.03)
    assert json.loads(batch.text)["answers"][0]["choice"] == expected.choice
    assert len(systemone.json()["answers"]["town"]["probabilities"]) == 3


@pytest.mark.parametrize("path", [DECISIONS, BATCH, SYSTEMONE])
@pytest.mark.parametrize(("limit", "n"), [(255, 256), (300, 301), (2, 3)])
def test_more_options_are_rejected_with_the_limit_and_the_number(
    tiny_model: Model, path: str, limit: int, n: int
) -> None:
    app = app_of(tiny_model, max_options=limit)
    options = [str(i) for i in range(n - 1)]
    question = {**choice(*options), "name": "town", "none": "none"}
    given = {DECISIONS: "input", BATCH: "inputs", SYSTEMONE: "state"}[path]
    body = {given: [INPUT] if path == BATCH else INPUT, "questions": [question]}
    (answer,) = ask(app, ("POST", path, body))
    assert answer.status_code == (422 if path == SYSTEMONE else 400)
    error = answer.json()["error"]
    assert error["param"] == "questions"
    assert f"town: {n} options, expected at most {limit}, including `none`" in error["message"]


def test_tags_are_answered_from_a_shortlist(tiny_model: Model) -> None:
    tags = {"type": "labels", "name": "towns", "instructions": "Is the town named?"}
    body = decisions_body(INPUT, {**tags, "labels": TOWNS, "shortlist": 3})
    app, usual = app_of(tiny_model, max_options=400), app_of(tiny_model)
    (answer,) = ask(app, ("POST", DECISIONS, body))
    (found,) = answer.json()["answers"]
    question = MultiLabel("Is the town named?", TOWNS, shortlist=3)
    (expected,) = tiny_model.decide(INPUT, question).answers
    assert found["n_labels"] == 400
    assert [each["value"] for each in found["probabilities"]] == [*expected.probabilities]
    assert set(found["labels"]) <= set(expected.probabilities)
    (answer,) = ask(usual, ("POST", DECISIONS, body))
    assert answer.status_code == 400
    expected_error = "towns: 400 labels, expected at most 255: the server's option --max-options"
    assert expected_error in answer.json()["error"]["message"]
    wrong = decisions_body(INPUT, {**tags, "labels": TOWNS, "shortlist": 256})
    (answer,) = ask(app, ("POST", DECISIONS, wrong))
    assert "shortlist" in answer.json()["error"]["message"]
