"""Tests of ``/v1/systemone`` with an ordinary model, and with models made for decisions.

Some are modelled on llama-server's own, in ``tools/server/tests/unit/test_systemone.py`` of
llama.cpp. There are two differences: images are rejected here, and the metrics have other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from served import ROUNDING, SYSTEMONE, ask
from write_decision_models import cached_decision_model

from eliza_ffi import AsyncModel, Model, cli
from eliza_ffi.library.loading import Library
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

MAIL = "My parcel is two weeks late, and the shop does not answer."
TEAMS = {"delivery": "parcels and addresses", "billing": None, "sales": None}
TIMES = ["some day", "this month", "this week", "now"]
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Who should answer?", "criteria": TEAMS},
    "haste": {"type": "score", "instructions": "How soon?", "criteria": TIMES},
    "upset": {"type": "noul", "instructions": "Is the writer upset?"},
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
JSON_QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": {"ask": "Which team?", "of": ["the shop"]},
        "criteria": {"billing": {"about": "payments"}, "support": None, "sales": "new orders"},
    },
    "urgent": {"type": "noul", "instructions": "It is urgent.", "criteria": {"true": "now"}},
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
}
STATE = {"mail": ["I was charged twice!"], "orders": 2}

Post = Callable[..., httpx.Response]


def poster(model: Model) -> Post:
    app = make_app(AsyncModel.of(model), ServeSettings("made"))

    def post(**body: Any) -> httpx.Response:
        (answer,) = ask(app, ("POST", SYSTEMONE, body))
        return answer

    return post


@contextmanager
def decision_model(library: Library, kind: str) -> Iterator[tuple[Model, Post]]:
    with Model(cached_decision_model(kind), library=library) as model:
        yield model, poster(model)


@pytest.fixture(params=["plain", "openjev"])
def post(request: pytest.FixtureRequest, library: Library, tiny_model: Model) -> Iterator[Post]:
    if request.param == "plain":
        yield poster(tiny_model)
    else:
        with decision_model(library, request.param) as (_, function):
            yield function


def test_answers_have_llama_servers_fields(post: Post) -> None:
    answer = post(state=MAIL, questions=QUESTIONS).json()
    assert answer["usage"]["input_tokens"] > 0 and answer["usage"]["output_tokens"] == 0
    assert list(answer["answers"]) == ["team", "haste", "upset"]
    team, haste, upset = answer["answers"].values()
    assert [each["type"] for each in (team, haste, upset)] == ["choice", "score", "noul"]
    for each, names in ((team, ("delivery", "billing", "sales")), (haste, "0123")):
        assert 0.0 <= each["confidence"] <= 1.0 and list(each["probabilities"]) == list(names)
        assert sum(each["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
    assert team["choice"] == max(team["probabilities"], key=team["probabilities"].__getitem__)
    assert haste["legend"] == {"0": "some day", "1": "this month", "2": "this week", "3": "now"}
    expected = sum(i * p for i, p in enumerate(haste["probabilities"].values()))
    assert haste["score"] == pytest.approx(expected, abs=1e-4)
    assert 0.0 <= upset["noul"] <= 1.0


def test_a_json_state_is_read_as_its_text(post: Post) -> None:
    described = {"false": "nothing is asked back", "true": "money is asked back"}
    noul = {"type": "noul", "instructions": "Is money asked back?", "criteria": described}
    as_json = post(state={"mail": MAIL, "plan": "pro"}, questions={"so": noul}).json()
    text = f'{{"mail": "{MAIL}", "plan": "pro"}}'
    as_text = post(state=text, questions={"so": noul}).json()
    assert as_json["usage"] == as_text["usage"]
    assert as_json["answers"]["so"]["noul"] == pytest.approx(
        as_text["answers"]["so"]["noul"], abs=1e-4
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"state": MAIL, "images": [IMAGE] * 9}, "images"),
        ({"state": MAIL, "files": ["https://example.com/image.png"]}, "files"),
        ({"state": [{"content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]}, "state"),
        ({"state": {"messages": [{"content": [{"type": "input_audio"}]}]}}, "state"),
    ],
)
def test_images_and_sound_get_501(post: Post, body: dict[str, Any], param: str) -> None:
    answer = post(**body, questions=QUESTIONS)
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert error["code"] == "not_supported" and error["param"] == param
    assert "only text is supported" in error["message"]


@pytest.mark.parametrize("kind", ["lev", "nimble", "kev", "laya", "lfm2-d1-omni", "clef"])
def test_a_decision_model_answers_as_it_does_in_process(library: Library, kind: str) -> None:
    with decision_model(library, kind) as (model, post):
        expected = model.decide(STATE, JSON_QUESTIONS)
        answer = post(model="made", state=STATE, questions=JSON_QUESTIONS).json()
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
    questions = {"urgent": JSON_QUESTIONS["urgent"]}
    for kind, status in (("lfm2-d1", 200), ("lfm2-d1-omni", 200), ("laya", 422), ("lev", 422)):
        with decision_model(library, kind) as (_, post):
            answer = post(state=None, questions=questions)
        assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == "state"


def test_a_decision_model_reads_criteria_as_instructions(library: Library) -> None:
    noul = {"type": "noul", "criteria": {"true": "The parcel is late."}}
    with decision_model(library, "lev") as (_, post):
        answer = post(state=STATE, questions={"late": noul}, include=["prompts"])
    assert answer.status_code == 200, answer.text
    assert "The parcel is late." in answer.json()["prompts"][0]
