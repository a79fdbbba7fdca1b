"""Many tools: the server offers the model those that fit the user's last message best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ask

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.questions import Choice
from eliza_ffi.evidence.shortlist import Shortlist
from eliza_ffi.library.loading import Library
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.offered_tools import INSTRUCTIONS
from eliza_ffi.serve.settings import ServeSettings
from eliza_ffi.session.task import Task

pytestmark = pytest.mark.slow

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HEADER = "x-offered-tools"
NAMES = [f"{verb}_{thing}" for verb in ("find", "send", "open") for thing in range(100)]
ABOUT = {name: f"the parcel number {i} of the night" for i, name in enumerate(NAMES)}
SAID = "Please send_7 now."


@pytest.fixture(params=["search", "encoder"])
def model(request: Any, tiny_model: Model, encoder_file: Path, library: Library) -> Iterator[Model]:
    if request.param == "search":
        yield tiny_model
        return
    with Model(tiny_model.path, library=library, encoder=encoder_file, n_threads=1) as opened:
        yield opened


def app_of(model: Model, max_tools: int = 5) -> Any:
    return make_app(AsyncModel.of(model), ServeSettings("tiny", max_tools=max_tools))


def flat(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": ABOUT[name]}


def body(*messages: dict[str, Any], names: Any = NAMES, **more: Any) -> dict[str, Any]:
    said = [*messages] or [{"role": "user", "content": SAID}]
    tools = [
        {"type": "function", "function": {"name": each, "description": ABOUT.get(each)}}
        for each in names
    ]
    return {"messages": said, "tools": tools, "tool_choice": "required", **more}


def best(model: Model, text: str, k: int = 5) -> set[str]:
    """Return the tools that the shortlist finds, asked directly."""
    shortlist = Shortlist(model.session, Choice(INSTRUCTIONS, ABOUT, top=k), PromptSettings())
    places, _ = Task(model.session, shortlist.runs(model.session, text)).run()
    return {NAMES[i] for i in places}


def test_the_model_is_offered_a_shortlist_and_a_header_names_it(model: Model) -> None:
    plain, flat_one, streamed = ask(
        app_of(model),
        ("POST", CHAT, body()),
        (
            "POST",
            RESPONSES,
            {"input": SAID, "tools": [*map(flat, NAMES)], "tool_choice": "required"},
        ),
        ("POST", CHAT, body(stream=True)),
    )
    expected = best(model, SAID)
    for answer in (plain, flat_one, streamed):
        assert answer.status_code == 200, answer.text
        offered = answer.headers[HEADER].split(", ")
        assert set(offered) == expected
    (choice,) = plain.json()["choices"]
    assert choice["probabilities"].keys() <= expected
    assert choice["message"]["tool_calls"][0]["function"]["name"] in expected


def test_all_tools_are_offered_by_default_and_if_there_are_few(tiny_model: Model) -> None:
    few = body(names=NAMES[:5])
    (usual,) = ask(app_of(tiny_model, 0), ("POST", CHAT, body(names=NAMES[:20])))
    (small,) = ask(app_of(tiny_model), ("POST", CHAT, few))
    (none,) = ask(app_of(tiny_model), ("POST", CHAT, {**body(), "tool_choice": "none"}))
    assert len(usual.json()["choices"][0]["probabilities"]) == 20
    for answer in (usual, small, none):
        assert answer.status_code == 200 and HEADER not in answer.headers


def test_named_and_called_tools_are_always_offered(model: Model) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "open_99", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": SAID},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    named = {"type": "function", "function": {"name": "find_42"}}
    (answer,) = ask(app_of(model, 3), ("POST", CHAT, body(*talk, tool_choice=named)))
    assert answer.status_code == 200, answer.text
    offered = answer.headers[HEADER].split(", ")
    assert {"open_99", "find_42"} < set(offered) and len(offered) == 3
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "find_42"


def test_a_blank_message_gets_the_first_tools_and_repeated_names_an_error(
    tiny_model: Model,
) -> None:
    blank, twice = ask(
        app_of(tiny_model),
        ("POST", CHAT, body({"role": "user", "content": " "})),
        ("POST", CHAT, body(names=[*NAMES, NAMES[0]])),
    )
    assert blank.headers[HEADER].split(", ") == NAMES[:5]
    assert twice.status_code == 400 and NAMES[0] in json.dumps(twice.json())
