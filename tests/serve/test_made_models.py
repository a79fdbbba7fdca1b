"""Tests of a server with decision models, which use their own prompts and the JSON as sent."""

from __future__ import annotations

import httpx
import pytest
from served import ROUNDING, SYSTEMONE, served
from write_decision_models import cached_decision_model

from eliza_ffi import Model, cli
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

STATE = {"mail": ["I was charged twice!"], "orders": 2}
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": {"ask": "Which team?", "of": ["the shop"]},
        "criteria": {"billing": {"about": "payments"}, "support": None, "sales": "new orders"},
    },
    "urgent": {
        "type": "noul",
        "instructions": "It is urgent.",
        "criteria": {"true": "an answer is needed today"},
    },
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
}


@pytest.mark.parametrize("kind", ["lev", "nimble"])
def test_a_decision_model_answers_as_it_does_in_process(library: Library, kind: str) -> None:
    path = cached_decision_model(kind)
    with Model(path, library=library) as model:
        expected = model.decide(STATE, QUESTIONS)
    with served("--model", str(path), "--alias", "made") as server:
        body = {"model": "made", "state": STATE, "questions": QUESTIONS}
        answer = httpx.post(server.url + SYSTEMONE, json=body, timeout=60).json()
    answers = answer["answers"]
    assert answer["model"] == "made" and answer["usage"]["output_tokens"] == 0
    assert answer["usage"]["input_tokens"] == expected.usage.input_tokens
    assert list(answers["team"]["probabilities"].values()) == pytest.approx(
        expected["team"].distribution, abs=ROUNDING
    )
    assert answers["urgent"]["noul"] == pytest.approx(expected["urgent"].probability, abs=ROUNDING)
    assert list(answers["anger"]["legend"].values()) == ["calm", "furious"]
    assert answers["anger"]["score"] == pytest.approx(expected["anger"].score, abs=2 * ROUNDING)


def test_settings_that_a_decision_model_lacks_are_rejected_at_the_start(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(cached_decision_model("lev"))
    assert cli.main(["serve", "--port", "0", "--model", path, "--answer-style", "letters"]) == 1
    assert "has its own prompts, labels, orders and scoring" in capsys.readouterr().err


def test_a_state_may_be_null_if_the_model_needs_none(library: Library) -> None:
    body = {"state": None, "questions": {"urgent": QUESTIONS["urgent"]}}
    for kind, status in (("lfm2-d1", 200), ("lev", 422)):
        with served("--model", str(cached_decision_model(kind))) as server:
            answer = httpx.post(server.url + SYSTEMONE, json=body, timeout=60)
        assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == "state"


def test_a_decision_model_reads_criteria_as_instructions(library: Library) -> None:
    noul = {"type": "noul", "criteria": {"true": "The parcel is late."}}
    body = {"state": STATE, "questions": {"late": noul}, "include": ["prompts"]}
    with served("--model", str(cached_decision_model("lev"))) as server:
        answer = httpx.post(server.url + SYSTEMONE, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "The parcel is late." in answer.json()["prompts"][0]
