"""Render conversations with the 73 chat templates in llama.cpp's source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from real_templates import REJECTS_TEXT, real_templates

from eliza_ffi.chat import ChatTokenizer
from eliza_ffi.errors import ChatTemplateError

pytestmark = pytest.mark.slow

Message = dict[str, Any]

QUESTION, SYSTEM, RESULT = "Weather in Rome?", "Be brief.", "20 degrees"
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Milan", "days": 3}},
}
PROPERTIES = {
    "city": {"type": "string", "description": "Where"},
    "days": {"type": "integer", "description": "How many"},
    "options": {"type": "object", "description": "More", "properties": {"unit": {"enum": ["c"]}}},
    "hours": {"type": "array", "description": "When", "items": {"type": "integer"}},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather.",
        "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]},
    },
}

ASKED: list[Message] = [{"role": "user", "content": QUESTION}]
CALLED: list[Message] = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
ANSWERED: list[Message] = [
    *CALLED,
    {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": RESULT},
]

TALKS: dict[str, tuple[list[Message], bool, list[str]]] = {
    "plain": (ASKED, False, [QUESTION]),
    "system": ([{"role": "system", "content": SYSTEM}, *ASKED], False, [SYSTEM, QUESTION]),
    "tools": (ASKED, True, [QUESTION, "get_weather"]),
    "call": (CALLED, True, [QUESTION, "get_weather", "Milan"]),
    "result": (ANSWERED, True, [QUESTION, "get_weather", "Milan", RESULT]),
}
"""For each conversation: messages, whether it has tools, strings that the output must contain."""

TRANSLATES = "a translation model: each content must name two languages"
ALTERNATES = "does not support tools, and the roles user and assistant must alternate"
REJECTED = {
    **{(REJECTS_TEXT, talk): TRANSLATES for talk in TALKS},
    ("google-gemma-2-2b-it", "result"): ALTERNATES,
}
"""The conversations that a template rejects, and why."""

WITHOUT_TOOLS = {"google-gemma-2-2b-it", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"}
LEFT_OUT = {
    "tools": {
        *WITHOUT_TOOLS,
        "HuggingFaceTB-SmolLM3-3B",  # lists `xml_tools` or `python_tools`, not `tools`
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
    },
    "call": {
        *WITHOUT_TOOLS,
        "HuggingFaceTB-SmolLM3-3B",
        "LFM2-8B-A1B",
        "LFM2.5-Instruct",
        "ibm-granite-granite-3.3-2B-Instruct",
    },
}
LEFT_OUT["result"] = LEFT_OUT["call"] - {"google-gemma-2-2b-it"}
"""The templates whose output lacks tools, or calls and their results."""


@pytest.mark.parametrize("talk", TALKS)
def test_every_real_template_renders_the_whole_conversation(talk: str) -> None:
    messages, with_tools, expected = TALKS[talk]
    rejected, left_out = {}, {}
    for name, template in real_templates().items():
        given = {"tools": [TOOL] if with_tools else None, "add_generation_prompt": talk != "call"}
        try:
            text = template.render(messages, **given)
        except ChatTemplateError as error:
            rejected[name, talk] = str(error)
            continue
        if missing := [part for part in expected if part not in text]:
            left_out[name] = missing
    assert len(real_templates()) > 70
    assert rejected.keys() == {key for key in REJECTED if key[1] == talk}
    assert all("rejects the messages" in message for message in rejected.values())
    assert left_out.keys() == LEFT_OUT.get(talk, set())


SHORT_IDS = {"Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"}
"""The templates that accept only ids of nine letters and digits."""


def with_ids(call: str | None, result: str | None) -> list[Message]:
    """Return two turns that each have a call and its result."""
    turn = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": call}]}
    told = {"role": "tool", "name": "get_weather", "content": RESULT}
    if result is not None:
        told["tool_call_id"] = result
    return [*ASKED, turn, told, {"role": "assistant", "content": "Warm."}, *ASKED, turn, told]


@pytest.mark.parametrize("id", ["call_abc123DEF456ghi789", "toolu_01", "f:0", "äöüäöüäöü", None])
def test_ids_of_other_servers_are_written_as_the_template_needs_them(id: str | None) -> None:
    """Mistral's templates accept ids of nine letters and digits, and rejected all others."""
    for name in SHORT_IDS:
        template = real_templates()[name]
        text = template.render(with_ids(id, id), tools=[TOOL])
        assert RESULT in text and "Milan" in text
        short = with_ids("call12345", "call12345")
        assert template.fit(short)[1]["tool_calls"][0]["id"] == "call12345"
        calls = [each for each in template.fit(with_ids(id, id)) if each.get("tool_calls")]
        results = [each for each in template.fit(with_ids(id, id)) if each["role"] == "tool"]
        for turn, result in zip(calls, results, strict=True):
            (call,) = turn["tool_calls"]
            assert call["id"] == result["tool_call_id"]
            assert len(call["id"]) == 9 and call["id"].isascii() and call["id"].isalnum()


def test_other_templates_get_ids_unchanged() -> None:
    talk = with_ids("functions.get_weather:0", "functions.get_weather:0")
    for name, template in real_templates().items():
        if name not in SHORT_IDS and name != REJECTS_TEXT:
            assert template.fit(talk)[1]["tool_calls"][0]["id"] == "functions.get_weather:0"


def test_a_result_without_a_call_gets_an_id_of_the_right_form() -> None:
    orphan = [*ASKED, {"role": "tool", "tool_call_id": "x", "content": RESULT}]
    for name in SHORT_IDS:
        (_, result) = real_templates()[name].fit(orphan)
        assert len(result["tool_call_id"]) == 9


def test_the_final_message_of_every_template_can_be_continued() -> None:
    """The text ends with the content, and begins as if the message were complete."""
    talk = [*ASKED, {"role": "assistant", "content": "It is "}]

    def tokenize(text: str, *_: bool) -> list[int]:
        return list(map(ord, text))

    def detokenize(tokens: Sequence[int], **_: bool) -> str:
        return "".join(map(chr, tokens))

    for name, template in real_templates().items():
        if name == REJECTS_TEXT:
            continue
        chat = ChatTokenizer(template, tokenize, detokenize)
        text = detokenize(chat.tokens(talk, continue_final_message=True))
        assert text.endswith("It is ") and QUESTION in text, name
        whole = detokenize(chat.tokens(talk, add_generation_prompt=False))
        assert whole.startswith(text.rstrip()), name
