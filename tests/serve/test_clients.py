"""Tests with unchanged client libraries: OpenAI's, and LangChain's on top of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from served import ROUNDING, Served, served, slow_body

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, Predicate, Score
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

openai = pytest.importorskip("openai", "3.54", "the package openai is not installed")

MAIL = "I was charged twice, and nobody answers me!"
TEAM = Choice("Which team should read this?", ["billing", "support", "sales"])
ANGER = Score("How angry is the writer?", ["calm", "annoyed", "furious"])
URGENT = Predicate("The writer needs an answer today.")
KEY = "a-key-of-the-tests"

QUESTIONS: list[Any] = [
    {
        "type": "choice",
        "name": "team",
        "instructions": [{"type": "input_text", "text": "Which team should read this?"}],
        "choices": [{"value": "billing"}, {"value": "support"}, {"value": "sales"}],
    },
    {
        "type": "choice",
        "name": "typed",
        "instructions": "Is it so?",
        "choices": [{"value": True}, {"value": False}, {"value": "true", "description": "a text"}],
    },
    {"type": "predicate", "instructions": "The writer needs an answer today."},
    {
        "type": "score",
        "name": "anger",
        "instructions": "How angry is the writer?",
        "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
    },
]


def check(decision: Any, model: Model) -> None:
    """Check an answer as OpenAI's client parsed it."""
    team, typed, urgent, anger = decision.answers
    expected = model.decide(MAIL, {"team": TEAM, "urgent": URGENT, "anger": ANGER})
    assert type(decision).__name__ == "Decision" and decision.model == "eliza-tiny"
    assert type(team).__name__ == "AnswerAnswerResourceChoice"
    assert team.name == "team" and team.choice == expected["team"].value
    assert [each.value for each in team.probabilities] == ["billing", "support", "sales"]
    assert [each.probability for each in team.probabilities] == pytest.approx(
        expected["team"].distribution, abs=ROUNDING
    )
    assert [each.value for each in typed.probabilities] == [True, False, "true"]
    assert type(urgent).__name__ == "AnswerAnswerResourcePredicate" and urgent.name is None
    assert urgent.probability == pytest.approx(expected["urgent"].probability, abs=ROUNDING)
    assert type(anger).__name__ == "AnswerAnswerResourceScore"
    assert anger.score == pytest.approx(expected["anger"].score, abs=2 * ROUNDING)
    assert [(each.value, each.label) for each in anger.probabilities] == [
        *((0, "calm"), (1, "annoyed"), (2, "furious"))
    ]
    usage = decision.usage
    assert usage.total_tokens == usage.input_tokens > 0 and usage.output_tokens == 0
    assert usage.input_tokens_details.cached_tokens >= 0
    assert decision._request_id


def test_openais_client_decides(client: Any, tiny_model: Model) -> None:
    decision = client.decisions.create(
        model="gpt-6-luna",
        input=MAIL,
        questions=QUESTIONS,
        prompt_cache_key="mails",
        prompt_cache_options={"mode": "implicit", "ttl": "30m"},
        safety_identifier="somebody",
    )
    check(decision, tiny_model)


def test_openais_asynchronous_client_decides(server: Served, tiny_model: Model) -> None:
    async def scene() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            asked = [
                client.decisions.create(model="any", input=MAIL, questions=QUESTIONS)
                for _ in range(8)
            ]
            return await asyncio.gather(*asked)

    for decision in asyncio.run(scene()):
        check(decision, tiny_model)


def test_openais_client_raises_the_same_errors_as_for_openai(
    client: Any, server: Served, library: Library
) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.decisions.create(model="any", input=MAIL, questions=[])
    assert bad.value.param == "questions" and bad.value.code == "invalid_value"
    assert "questions: expected 1 or more items, got 0" in bad.value.message
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    with pytest.raises(openai.BadRequestError, match="only text is supported"):
        given = [{"role": "user", "content": [image]}]
        client.decisions.create(model="any", input=given, questions=QUESTIONS)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    options = ("--deadline", "0.5")
    with served(*options, environment={"ELIZA_FFI_API_KEY": KEY}) as keyed:
        wrong = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key="wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.decisions.create(model="any", input=MAIL, questions=QUESTIONS)
        right = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=KEY)
        right.decisions.create(model="any", input=MAIL, questions=QUESTIONS[:1])
        with pytest.raises(openai.InternalServerError) as late:  # the client does not retry it
            right.decisions.create(
                model="any", input="Choose.", questions=slow_body(20)["questions"]
            )
        assert late.value.status_code == 504
        headers = {"authorization": f"Bearer {KEY}"}
        figures = keyed.client(headers=headers).get("/metrics").text
        assert 'eliza_requests_total{code="504",endpoint="/v1/decisions"} 1.0' in figures


def test_openais_client_retries_when_the_queue_is_full(library: Library) -> None:
    with served("--n-slots", "1", "--queue", "0") as narrow:
        client = openai.OpenAI(base_url=f"{narrow.url}/v1", api_key="any", max_retries=20)

        async def scene() -> list[Any]:
            ask = asyncio.to_thread
            asked = [
                ask(client.decisions.create, model="any", input=f"Mail {i}.", questions=QUESTIONS)
                for i in range(6)
            ]
            return await asyncio.gather(*asked)

        assert all(len(each.answers) == 4 for each in asyncio.run(scene()))
        figures = narrow.figures()
        assert figures['eliza_requests_total{code="429",endpoint="/v1/decisions"}'] >= 1
        assert figures['eliza_requests_total{code="200",endpoint="/v1/decisions"}'] == 6


def test_langchains_decisions_are_answered(server: Served, tiny_model: Model) -> None:
    decisions = pytest.importorskip(
        "langchain_openai.decisions", reason="langchain-openai is not installed"
    )
    messages = pytest.importorskip("langchain_core.messages")
    asker = decisions.OpenAIDecisions(
        model="gpt-6-luna", base_url=f"{server.url}/v1", api_key="any", max_retries=0
    )
    questions = {
        "team": decisions.Choice(
            instructions=TEAM.instructions,
            choices={"billing": None, "support": None, "sales": "prices, new orders"},
        ),
        "urgent": decisions.Predicate(instructions=URGENT.instructions),
        "anger": decisions.Score(
            instructions=ANGER.instructions,
            levels=["calm", decisions.Level(label="annoyed"), "furious"],
        ),
    }
    answer = asker.invoke({"input": MAIL, "questions": questions})
    expected = tiny_model.decide(
        MAIL,
        {
            "team": Choice(
                TEAM.instructions, {"billing": None, "support": None, "sales": "prices, new orders"}
            ),
            "urgent": URGENT,
            "anger": ANGER,
        },
    )
    assert answer.choices["team"].choice == expected["team"].value
    assert answer.choices["team"].probabilities["sales"] == pytest.approx(
        expected["team"].probabilities["sales"], abs=ROUNDING
    )
    assert answer.predicates["urgent"].probability == pytest.approx(
        expected["urgent"].probability, abs=ROUNDING
    )
    assert answer.scores["anger"].legend == {0: "calm", 1: "annoyed", 2: "furious"}
    assert answer.usage.input_tokens == expected.usage.input_tokens and answer.request_id
    conversation = [messages.HumanMessage(MAIL), messages.AIMessage("I look it up.")]
    again = asyncio.run(asker.ainvoke({"input": conversation, "questions": questions}))
    assert again.answers.keys() == {"team", "urgent", "anger"}
    with pytest.raises(openai.BadRequestError):
        many = {str(i): questions["urgent"] for i in range(401)}
        asker.invoke({"input": MAIL, "questions": many})
