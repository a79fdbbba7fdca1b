"""Tests of the server with LangChain's client for OpenAI."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from pages import programs_of
from served import Order, Served

from eliza_ffi import Model

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_structured_output_is_always_an_instance(chat: Any, method: str) -> None:
    asker = chat.with_structured_output(Order, method=method)
    for text in ("Two teas, please.", "Hello.", "???"):
        assert isinstance(asker.invoke(text), Order)


def test_bound_tools_are_called_in_a_loop(chat: Any, messages: Any) -> None:
    asker = chat.bind_tools([Order], tool_choice="any")
    talk: list[Any] = [messages.HumanMessage("Two teas, please.")]
    for _ in range(2):
        answer = asker.invoke(talk)
        assert answer.tool_calls
        talk.append(answer)
        for call in answer.tool_calls:
            Order.model_validate(call["args"])
            talk.append(messages.ToolMessage("done", tool_call_id=call["id"]))
    streamed = None
    for chunk in asker.stream(talk):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert [call["args"] for call in streamed.tool_calls] == [
        call["args"] for call in asker.invoke(talk).tool_calls
    ]


def test_embeddings_match_the_model_in_process(
    langchain: Any, server: Served, tiny_model: Model
) -> None:
    embedder = langchain.OpenAIEmbeddings(
        model="any",
        base_url=f"{server.url}/v1",
        api_key="any",
        check_embedding_ctx_length=False,  # otherwise it sends token ids of OpenAI's models
    )
    found = embedder.embed_documents(["a cat", "a dog"])
    assert np.array(found) == pytest.approx(tiny_model.embed(["a cat", "a dog"]), abs=1e-5)


def test_the_program_of_the_how_to_page_runs_as_written(langchain: Any, server: Served) -> None:
    page = (ROOT / "docs" / "how-to" / "http-clients.md").read_text(encoding="utf-8")
    (program,) = programs_of(page)
    program = program.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    order, calls, answer, dimension = done.stdout.splitlines()
    assert order.startswith("item=")
    assert [call["name"] for call in ast.literal_eval(calls)][:1] == ["Order"]
    assert answer in ("yes", "no") and int(dimension) == 128
