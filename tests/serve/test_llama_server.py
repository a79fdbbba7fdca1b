"""Tests of ``/v1/systemone``, modelled on llama-server's own tests.

The originals are in ``tools/server/tests/unit/test_systemone.py`` of llama.cpp. There are two
differences: images are rejected here, and the metrics have other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import SYSTEMONE, Served, served
from write_decision_models import cached_decision_model

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

MAIL = "My parcel is two weeks late, and the shop does not answer."
QUESTIONS: dict[str, Any] = {
    "team": {
        "type": "choice",
        "instructions": "Who should answer?",
        "criteria": {"delivery": "parcels and addresses", "billing": None, "sales": None},
    },
    "haste": {
        "type": "score",
        "instructions": "How soon?",
        "criteria": ["some day", "this month", "this week", "now"],
    },
    "upset": {"type": "noul", "instructions": "Is the writer upset?"},
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(scope="module", params=["plain", "openjev"])
def asked(request: pytest.FixtureRequest, library: Library) -> Iterator[Served]:
    """Return a server with an ordinary model, and one with a decision model."""
    is_decision_model = request.param != "plain"
    options = ("--model", str(cached_decision_model(request.param))) if is_decision_model else ()
    with served(*options) as running:
        yield running


def post(server: Served, **body: Any) -> httpx.Response:
    return httpx.post(server.url + SYSTEMONE, json=body, timeout=60)


def test_answers_have_llama_servers_fields(asked: Served) -> None:
    answer = post(asked, state=MAIL, questions=QUESTIONS).json()
    assert answer["usage"]["input_tokens"] > 0 and answer["usage"]["output_tokens"] == 0
    assert list(answer["answers"]) == ["team", "haste", "upset"]
    team, haste, upset = answer["answers"].values()
    assert team["type"] == "choice" and 0.0 <= team["confidence"] <= 1.0
    assert list(team["probabilities"]) == ["delivery", "billing", "sales"]
    assert sum(team["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
    assert team["choice"] == max(team["probabilities"], key=team["probabilities"].__getitem__)
    assert haste["type"] == "score" and 0.0 <= haste["confidence"] <= 1.0
    assert haste["legend"] == {"0": "some day", "1": "this month", "2": "this week", "3": "now"}
    assert list(haste["probabilities"]) == ["0", "1", "2", "3"]
    assert sum(haste["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
    expected = sum(i * p for i, p in enumerate(haste["probabilities"].values()))
    assert haste["score"] == pytest.approx(expected, abs=1e-4)
    assert upset["type"] == "noul" and 0.0 <= upset["noul"] <= 1.0


def test_a_json_state_is_read_as_its_text(asked: Served) -> None:
    described = {"false": "nothing is asked back", "true": "money is asked back"}
    noul = {"type": "noul", "instructions": "Is money asked back?", "criteria": described}
    as_json = post(asked, state={"mail": MAIL, "plan": "pro"}, questions={"so": noul}).json()
    text = f'{{"mail": "{MAIL}", "plan": "pro"}}'
    as_text = post(asked, state=text, questions={"so": noul}).json()
    assert as_json["usage"] == as_text["usage"]
    assert as_json["answers"]["so"]["noul"] == pytest.approx(
        as_text["answers"]["so"]["noul"], abs=1e-4
    )


def test_questions_share_the_prompt_and_one_slot_gives_the_same_answers(library: Library) -> None:
    model = ("--model", str(cached_decision_model("openjev")))
    with served(*model) as several:
        shared = post(several, state=MAIL, questions=QUESTIONS).json()
        figures = several.figures()
    n_reused = figures['eliza_tokens_total{source="reused"}']
    n_read = figures['eliza_tokens_total{source="read"}']
    assert n_reused > 0 and n_read + n_reused == shared["usage"]["input_tokens"]
    with served(*model, "--n-slots", "1") as single:
        alone = post(single, state=MAIL, questions=QUESTIONS).json()
    assert alone["usage"] == shared["usage"]
    for name in ("team", "haste"):
        assert alone["answers"][name]["probabilities"] == pytest.approx(
            shared["answers"][name]["probabilities"], abs=0.01
        )
    assert alone["answers"]["upset"]["noul"] == pytest.approx(
        shared["answers"]["upset"]["noul"], abs=0.01
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"state": MAIL, "images": [IMAGE]}, "images"),
        ({"state": MAIL, "images": [IMAGE] * 9}, "images"),
        ({"state": MAIL, "files": ["https://example.com/image.png"]}, "files"),
        (
            {
                "state": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": IMAGE}},
                            {"type": "text", "text": MAIL},
                        ],
                    }
                ]
            },
            "state",
        ),
        (
            {
                "state": {
                    "messages": [
                        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
                    ]
                }
            },
            "state",
        ),
    ],
)
def test_images_and_sound_get_501(asked: Served, body: dict[str, Any], param: str) -> None:
    answer = post(asked, **body, questions=QUESTIONS)
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert error["code"] == "not_supported" and error["param"] == param
    assert "only text is supported" in error["message"]
