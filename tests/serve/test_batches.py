"""Tests of requests with many parts: they do not hold up other requests, and name wrong parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from served import DECISIONS, ask, choice, decisions_body, rejected

from eliza_ffi import AsyncModel, Model
from eliza_ffi.serve.admission import MAX_OVERTAKING, Admission
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.http_error import HTTPError
from eliza_ffi.serve.settings import ServeSettings

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

BATCH, EMBEDDINGS = "/v1/decisions/batch", "/v1/embeddings"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello."}]
TEAM = choice("billing", "support", "sales", name="team")
SETTINGS = ServeSettings("tiny")


def order_of(
    model: Model, admission: Admission, *requests: tuple[str, str, dict[str, Any]]
) -> list[str]:
    """Send named requests, each when the one before it runs or waits; return the order of the ends.

    Each is a name, a path and a body.
    """
    app = make_app(AsyncModel.of(model), SETTINGS, admission)
    ended: list[str] = []

    async def scene() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def run(name: str, path: str, body: Any) -> None:
                answer = await client.post(path, json=body)
                assert answer.status_code == 200, answer.text
                ended.append(name)

            tasks = []
            for each in requests:
                n_before = admission.n_running + admission.n_waiting
                tasks.append(task := asyncio.create_task(run(*each)))
                while admission.n_running + admission.n_waiting <= n_before and not task.done():
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    asyncio.run(scene())
    return ended


def test_a_single_decision_goes_before_the_rest_of_waiting_batches(tiny_model: Model) -> None:
    batch = {"inputs": [f"I was charged {n} times." for n in range(60)], "questions": [TEAM]}
    batches = [(f"batch {i}", BATCH, batch) for i in range(4)]
    single = ("single", DECISIONS, decisions_body())
    assert order_of(tiny_model, Admission(1, 9), *batches, single)[0] == "single"


def test_a_single_embedding_goes_before_the_rest_of_a_long_list(tiny_model: Model) -> None:
    many = {"input": ["a long text " * 40] * 200}
    long, short = ("many", EMBEDDINGS, many), ("single", EMBEDDINGS, {"input": "a text"})
    assert order_of(tiny_model, Admission(1, 9), long, short) == ["single", "many"]


LONG = {"max_tokens": 40, "temperature": 1, "seed": 1}
PROMPTS = {"prompt": ["a long text " * 40] * 40, "max_tokens": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HELLO, "n": 16, **LONG}),
        (CHAT, {"messages": HELLO, "n": 16, **LONG, "stream": True}),
        (COMPLETIONS, {"prompt": "Hello", "n": 16, **LONG}),
        (COMPLETIONS, {"prompt": ["Hello", "Once"] * 20, **LONG}),
        (COMPLETIONS, {"prompt": ["Hello", "Once"] * 20, **LONG, "stream": True}),
        (COMPLETIONS, {**PROMPTS, "max_tokens": 0, "echo": True, "logprobs": 1}),
    ],
)
def test_a_single_answer_goes_before_the_rest_of_many_answers(
    tiny_model: Model, path: str, body: dict[str, Any]
) -> None:
    single = ("single", CHAT, {"messages": HELLO, "max_tokens": 1})
    order = order_of(tiny_model, Admission(1, 9), ("many", path, body), single)
    assert order == ["single", "many"]


def test_answers_in_parts_are_the_same_as_alone(tiny_model: Model) -> None:
    body = {"prompt": ["Hello", "Once", "A cat"], "max_tokens": 6, "temperature": 0}
    alone = [{**body, "prompt": each} for each in body["prompt"]]
    app = make_app(AsyncModel.of(tiny_model), SETTINGS, Admission(1, 9))
    together, *single = ask(app, *(("POST", COMPLETIONS, each) for each in (body, *alone)))
    texts = [each["text"] for each in together.json()["choices"]]
    assert texts == [each.json()["choices"][0]["text"] for each in single]


async def test_waiting_requests_go_before_parts_but_parts_do_not_starve() -> None:
    admission, begun = Admission(1, 99), list[str]()

    async def in_parts(n: int) -> None:
        async with admission.place() as place, place.in_parts(n) as part:
            for _ in range(n):
                async with part():
                    begun.append("part")
                    await asyncio.sleep(0)

    async def single() -> None:
        async with admission.place():
            begun.append("single")
            await asyncio.sleep(0)

    await asyncio.gather(in_parts(4), *(single() for _ in range(3 * MAX_OVERTAKING)))
    between = [len(each) for each in " ".join(begun).replace("single", "s").split("part")]
    assert begun[0] == "part" and admission.is_empty
    # The second part waits only after the first single request has begun.
    assert all(MAX_OVERTAKING <= n // 2 <= MAX_OVERTAKING + 1 for n in between[1:3])


async def test_two_requests_in_parts_run_in_turns() -> None:
    admission, begun, both = Admission(1, 9), list[str](), asyncio.Event()

    async def in_parts(name: str) -> None:
        async with admission.place() as place, place.in_parts(3) as part:
            if admission.n_running == 2:
                both.set()
            await both.wait()
            for _ in range(3):
                async with part():
                    begun.append(name)
                    await asyncio.sleep(0)

    await asyncio.gather(in_parts("a"), in_parts("b"))
    assert begun in (list("ababab"), list("bababa")) and admission.is_empty


async def test_requests_in_parts_are_limited_like_waiting_ones() -> None:
    admission, end = Admission(2, 1), asyncio.Event()

    async def in_parts() -> None:
        async with admission.place() as place, place.in_parts(2):
            await end.wait()

    held = [asyncio.create_task(in_parts()) for _ in range(3)]
    await asyncio.sleep(0)
    assert admission.n_running == 3
    with pytest.raises(HTTPError) as full:
        await in_parts()
    assert full.value.status == 429
    async with admission.place():  # another request still runs
        assert admission.n_running == 4
    end.set()
    await asyncio.gather(*held)
    assert admission.is_empty


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " \n",
        None,
        7,
        [],
        {"a": 1},
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}],
    ],
)
def test_a_wrong_input_of_a_batch_has_an_error_with_its_index(
    app_of: Callable[..., Any], wrong: Any
) -> None:
    body = {"inputs": ["I was charged twice.", wrong, "It crashes."], "questions": [TEAM]}
    single = {"input": wrong, "questions": [TEAM]}
    answer, alone = ask(app_of(), ("POST", BATCH, body), ("POST", DECISIONS, single))
    assert answer.status_code == 200
    lines = {line["index"]: line for line in map(json.loads, answer.text.splitlines())}
    assert lines[0]["answers"] and lines[2]["answers"]
    error = lines[1]["error"]
    assert error["message"].startswith("inputs[1]") and error["param"] == "inputs"
    assert error["code"] == rejected(alone)["code"]


@pytest.mark.parametrize("kind", [str, list])
def test_2048_strings_are_embedded_and_more_are_rejected(tiny_model: Model, kind: type) -> None:
    app = make_app(AsyncModel.of(tiny_model), SETTINGS)
    one = "a" if kind is str else tiny_model.tokenize("a")
    answer, more = ask(
        app,
        ("POST", EMBEDDINGS, {"input": [one] * 2048}),
        ("POST", EMBEDDINGS, {"input": [one] * 2049}),
    )
    assert [each["index"] for each in answer.json()["data"]] == list(range(2048))
    assert "at most 2048" in rejected(more)["message"]


@pytest.mark.parametrize("index", [3, 20])
def test_a_string_that_does_not_fit_is_named_by_its_index(tiny_model: Model, index: int) -> None:
    app = make_app(AsyncModel.of(tiny_model), SETTINGS)
    texts = ["a"] * 40
    texts[index] = "word " * 20_000
    tokens = [tiny_model.tokenize("a")] * 40
    tokens[index] = [5, 5, 5]
    for answer in ask(
        app, ("POST", EMBEDDINGS, {"input": texts}), ("POST", EMBEDDINGS, {"input": tokens})
    ):
        error = rejected(answer)
        assert error["message"].startswith(f"input[{index}]: ") and error["param"] == "input"
