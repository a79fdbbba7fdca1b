"""Render conversations with the 73 chat templates in llama.cpp's source."""

from __future__ import annotations

from typing import Any

import pytest
from real_templates import REJECTS_TEXT, real_templates

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
