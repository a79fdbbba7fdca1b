"""Tests with unchanged client libraries: OpenAI's, and LangChain's on top of it."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from typing import Any

import pytest
from checkout import ROOT
from pages import programs_of
from served import KEYS, ROUNDING, Served, served

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, Predicate, Score
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

openai = pytest.importorskip("openai", "3.54", "the package openai is not installed")

MAIL = "I was charged twice, and nobody answers me!"
TEAM = Choice("Which team should read this?", ["billing", "support", "sales"])
ANGER = Score("How angry is the writer?", ["calm", "annoyed", "furious"])
URGENT = Predicate("The writer needs an answer today.")

QUESTIONS: list[Any] = [
    {
        **{"type": "choice", "name": "team"},
        "instructions": [{"type": "input_text", "text": TEAM.instructions}],
        "choices": [{"value": "billing"}, {"value": "support"}, {"value": "sales"}],
    },
    {
        **{"type": "choice", "name": "typed", "instructions": "Is it so?"},
        "choices": [{"value": True}, {"value": False}, {"value": "true", "description": "a text"}],
    },
    {"type": "predicate", "instructions": URGENT.instructions},
    {
        **{"type": "score", "name": "anger", "instructions": ANGER.instructions},
        "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
    },
]


def test_openais_client_decides(client: Any, tiny_model: Model) -> None:
    decision = client.decisions.create(
        model="gpt-6-luna",
        input=MAIL,
        questions=QUESTIONS,
        prompt_cache_key="mails",
        prompt_cache_options={"mode": "implicit", "ttl": "30m"},
        safety_identifier="somebody",
    )
    team, typed, urgent, anger = decision.answers
    expected = tiny_model.decide(MAIL, {"team": TEAM, "urgent": URGENT, "anger": ANGER})
    assert type(decision).__name__ == "Decision" and decision.model == "eliza-tiny"
    kinds = [type(each).__name__ for each in (team, urgent, anger)]
    assert kinds == [f"AnswerAnswerResource{each}" for each in ("Choice", "Predicate", "Score")]
    assert team.name == "team" and team.choice == expected["team"].value
    assert [each.value for each in team.probabilities] == ["billing", "support", "sales"]
    assert [each.probability for each in team.probabilities] == pytest.approx(
        expected["team"].distribution, abs=ROUNDING
    )
    assert [each.value for each in typed.probabilities] == [True, False, "true"]
    assert urgent.name is None
    assert urgent.probability == pytest.approx(expected["urgent"].probability, abs=ROUNDING)
    assert anger.score == pytest.approx(expected["anger"].score, abs=2 * ROUNDING)
    levels = [(each.value, each.label) for each in anger.probabilities]
    assert levels == list(enumerate(("calm", "annoyed", "furious")))
    usage = decision.usage
    assert usage.total_tokens == usage.input_tokens > 0 and usage.output_tokens == 0
    assert usage.input_tokens_details.cached_tokens >= 0 and decision._request_id


def test_openais_client_raises_the_same_errors_as_for_openai(
    client: Any, server: Served, keyed: Served
) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.decisions.create(model="any", input=MAIL, questions=[])
    assert bad.value.param == "questions" and bad.value.code == "invalid_value"
    assert "questions: expected 1 or more items, got 0" in bad.value.message
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    with pytest.raises(openai.BadRequestError, match="only text is supported"):
        input = [{"role": "user", "content": [image]}]
        client.decisions.create(model="any", input=input, questions=QUESTIONS)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    wrong = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.decisions.create(model="any", input=MAIL, questions=QUESTIONS)
    right = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=KEYS[0])
    assert right.decisions.create(model="any", input=MAIL, questions=QUESTIONS[:1]).answers


def test_openais_client_retries_when_the_queue_is_full(library: Library) -> None:
    with served("--n-slots", "1", "--queue", "0") as narrow:
        client = openai.OpenAI(base_url=f"{narrow.url}/v1", api_key="any", max_retries=20)

        async def scene() -> list[Any]:
            create = client.decisions.create
            asked = [
                asyncio.to_thread(create, model="any", input=f"Mail {i}.", questions=QUESTIONS)
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
    choices = {"billing": None, "support": None, "sales": "prices, new orders"}
    questions = {
        "team": decisions.Choice(instructions=TEAM.instructions, choices=choices),
        "urgent": decisions.Predicate(instructions=URGENT.instructions),
        "anger": decisions.Score(
            instructions=ANGER.instructions,
            levels=["calm", decisions.Level(label="annoyed"), "furious"],
        ),
    }
    answer = asker.invoke({"input": MAIL, "questions": questions})
    team = Choice(TEAM.instructions, choices)
    expected = tiny_model.decide(MAIL, {"team": team, "urgent": URGENT, "anger": ANGER})
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


@pytest.fixture(scope="module")
def langchain() -> Any:
    """Return the module; importing it takes seconds, so it is not imported at collection."""
    return pytest.importorskip("langchain_openai")


@pytest.fixture(scope="module")
def messages() -> Any:
    return pytest.importorskip("langchain_core.messages")


@pytest.fixture
def chat(langchain: Any, server: Served) -> Any:
    return langchain.ChatOpenAI(model="any", base_url=f"{server.url}/v1", api_key="any")


def test_a_chat_model_answers_and_streams(chat: Any, messages: Any, tiny_model: Model) -> None:
    greedy = chat.bind(temperature=0)
    asked = [messages.HumanMessage("Hello, who are you?")]
    answer = greedy.invoke(asked)
    expected = tiny_model.generate([{"role": "user", "content": "Hello, who are you?"}])
    assert answer.content == expected.text
    assert answer.usage_metadata["output_tokens"] == len(expected.tokens)
    chunks = list(greedy.stream(asked))
    assert "".join(chunk.content for chunk in chunks) == answer.content and len(chunks) > 5

    async def streamed() -> str:
        return "".join([chunk.content async for chunk in greedy.astream(asked)])

    assert asyncio.run(streamed()) == answer.content


def test_the_program_of_the_how_to_page_runs_as_written(langchain: Any, server: Served) -> None:
    page = (ROOT / "docs" / "guides" / "http-clients.md").read_text(encoding="utf-8")
    (program,) = programs_of(page)
    program = program.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    order, calls, answer, dimension = done.stdout.splitlines()
    assert order.startswith("item=")
    assert [call["name"] for call in ast.literal_eval(calls)][:1] == ["Order"]
    assert answer in ("yes", "no") and int(dimension) == 128
