"""Tests of requests with wrong fields: the error names the field and the expected value."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from served import DECISIONS, SYSTEMONE, Served, choice, decisions_body, rejected

pytestmark = pytest.mark.slow

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
BATCH = "/v1/decisions/batch"

PREDICATE = {"type": "predicate", "instructions": "It is urgent."}
NOUL = {"type": "noul", "instructions": "It is urgent."}
TOOL = {"type": "function", "function": {"name": "get_weather"}}
NOWHERE = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
ENDLESS = {"type": "function", "function": {"name": "f", "parameters": NOWHERE}}
BROKEN = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{bad"}}
BROKEN_CALL = {"role": "assistant", "tool_calls": [BROKEN]}
CALLED = {"type": "function_call", "name": "f", "arguments": "[]", "call_id": "a"}
FLAT_FORMAT = {"type": "json_schema", "name": "a", "schema": {"type": "x"}}
TALK = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "I am"}]
CONTINUED = {"continue_final_message": True, "messages": TALK}
BIASED_CHOICE = {"guided_choice": ["a", "b"], "logit_bias": {"5": 1}}
ONE_LEVEL = {"type": "score", "instructions": "?", "criteria": ["one"]}
BLANK = {"type": "noul", "criteria": {"true": " ", "false": None}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
OUTPUT = {"type": "function_call_output", "call_id": "1"}
TYPES = "expected predicate, noul, choice, score or labels"
EXTRAS = "expected allowed_probability, prompts or timings"
STATE = "state: expected a string, an object"
FORMS = "expected a list of questions, or an object with names as keys"
NOT_SUPPORTED = "this field is not supported"

RIGHT: dict[str, dict[str, Any]] = {
    DECISIONS: decisions_body(),
    BATCH: {"inputs": ["Hello."], "questions": [PREDICATE]},
    SYSTEMONE: {"model": "any", "state": "Hello.", "questions": {"so": NOUL}},
    CHAT: {
        "messages": [{"role": "user", "content": "Hello."}],
        "max_tokens": 1,
        **{"user": "somebody", "metadata": {"a": "b"}, "service_tier": "auto", "store": False},
        **{"prompt_cache_key": "key", "safety_identifier": "somebody"},
    },
    RESPONSES: {"input": "Hello.", "max_output_tokens": 1},
    COMPLETIONS: {"prompt": "Hello.", "max_tokens": 1},
    EMBEDDINGS: {"input": "Hello."},
}
"""A request to each endpoint that is accepted."""


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def predicate(**more: Any) -> dict[str, Any]:
    return {"questions": [{**PREDICATE, **more}]}


def score(n_levels: int) -> dict[str, Any]:
    levels = [{"label": str(i)} for i in range(n_levels)]
    return {"type": "score", "instructions": "?", "levels": levels}


def labels(n: int) -> dict[str, Any]:
    options = [{"value": str(i)} for i in range(n)]
    return {"type": "labels", "instructions": "?", "labels": options}


def asked(**question: Any) -> dict[str, Any]:
    return {"questions": {"so": {"instructions": "?", **question}}}


WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    DECISIONS: [
        ({"questions": []}, "questions: expected 1 or more items, got 0"),
        ({"questions": [PREDICATE] * 401}, "questions: expected at most 400 items, got 401"),
        ({"questions": [labels(200), labels(200), PREDICATE]}, "counts as one), got 401"),
        (
            {"questions": [choice(*map(str, range(256)))]},
            "0: 256 options, expected at most 255, including `none`",
        ),
        ({"questions": [choice("one")]}, "questions[0].choices: expected 2 or more items, got 1"),
        ({"questions": [choice("same", "same")]}, "'same' is given twice"),
        ({"questions": [score(11)]}, "questions[0].levels: expected at most 10 items, got 11"),
        ({"questions": [PREDICATE, {"type": "wish"}]}, f"[1].type: {TYPES}, got 'wish'"),
        ({"questions": [{"type": "predicate"}]}, "[0].instructions: this field is missing"),
        (predicate(instructions=[]), "instructions: expected 1 or more items"),
        (predicate(instructions=" "), "expected a string that is not blank, got ' '"),
        (predicate(instructions=[IMAGE]), "input_image"),
        ({"questions": [{**choice("a", "b"), "criteria": {"a": None, "b": None}}]}, "got both"),
        (predicate(name=""), "questions[0].name: expected a string that is not empty"),
        ({"questions": [{**PREDICATE, "name": "n"}] * 2}, "two questions have the name"),
        ({"questions": "team"}, f"questions: {FORMS}, got 'team'"),
        (asked(type="choice", choices=["a", 1]), "so.choices[1]: expected"),
        ({"input": None}, "input: expected a string or an array, got null"),
        ({"input": said("hi")}, "input: expected a string or an array, got an object"),
        ({"input": [said("hi"), {"role": "user"}]}, "input[1].content: this field is missing"),
        ({"input": [said([IMAGE])]}, "'input_image': only text is supported"),
        ({"input": [{**OUTPUT, "output": [IMAGE]}]}, "'input_image': only text is supported"),
        ({"imput": ""}, f"{NOT_SUPPORTED}; did you mean input?"),
        ({"include": ["all"]}, f"include[0]: {EXTRAS}, got 'all'"),
    ],
    BATCH: [
        ({"inputs": []}, "inputs: expected 1 or more items, got 0"),
        ({"inputs": ["a"] * 1001}, "inputs: expected at most 1000 items"),
        ({"input": "a"}, "input: this field is not supported; did you mean inputs?"),
        ({"questions": [choice("one")]}, "questions[0].choices: expected 2 or more items, got 1"),
    ],
    SYSTEMONE: [
        ({"state": None}, f"{STATE} or an array for this model, got null"),
        ({"state": 1}, f"{STATE}, an array or null, got 1"),
        ({"questions": dict.fromkeys(map(str, range(401)), NOUL)}, "at most 400 fields, got 401"),
        ({"questions": {"so": labels(2)}}, "so.type: expected predicate, noul, choice or score"),
        ({"questions": {"so": {"type": "noul"}}}, "the question 'so': instructions are missing"),
        ({"questions": {"so": BLANK}}, "the question 'so': instructions are missing"),
        ({"questions": {"how much": ONE_LEVEL}}, "['how much'].criteria: expected 2 or more items"),
        (asked(type="choice"), "'so': expected either choices or criteria, got neither"),
        (asked(type="score", criteria={"0": "low"}), "expected an array, got an object"),
        (asked(type="noul", criteria={"yes": ""}), f"questions.so.criteria.yes: {NOT_SUPPORTED}"),
    ],
    CHAT: [
        ({"temperature": 3}, "temperature: expected at most 2, got 3"),
        ({"max_tokens": 2**40}, "max_tokens: expected at most 2147483647, got"),
        ({"stream_options": {"include_usage": True}}, "this field needs stream: true"),
        ({"messages": [BROKEN_CALL]}, "function.arguments: expected a JSON object, got '{bad'"),
        ({"guided_json": {"propertyNames": 5}}, "guided_json: JSON schema at #/propertyNames: 5"),
        ({"guided_choice": ["a", "a"]}, "guided_choice: expected different labels, got 'a' twice"),
        ({"tool_choice": named("x"), "tools": [TOOL]}, "expected the name of a tool (get_weather)"),
        ({"tool_choice": named("x")}, "tool_choice: 'x' needs tools"),
        ({"tools": [TOOL, TOOL]}, "tools: tools 0 and 1 are both named 'get_weather'"),
        ({"tools": [named("")]}, "tools: tool 0 has no name"),
        ({"tools": [TOOL, ENDLESS]}, "tools: the parameters of tool 'f': unsupported JSON schema"),
        ({"messages": [{"role": "king"}]}, "messages[0].role: expected system"),
        ({"messages": [{"role": "user"}]}, "messages[0]: a message with the role user"),
        (
            {"messages": [said([{"type": "image_url"}])]},
            "content[0].type: expected text or refusal",
        ),
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"store": True}, "store: expected false, got true"),
        ({"top_q": 0.5}, f"top_q: {NOT_SUPPORTED}; did you mean top_p?"),
        ({"logit_bias": {"a": 1}}, "logit_bias: expected token ids"),
        ({"structured_outputs": {}}, "structured_outputs: expected exactly one of"),
        ({"guided_choice": ["a"], "guided_regex": "b"}, "expected at most one limit"),
        ({"temperature": 0, **BIASED_CHOICE}, "not supported with an exact choice"),
        ({"chat_template_kwargs": {"messages": []}}, "messages cannot be set"),
        ({"tools": [TOOL], "guided_choice": ["a"]}, "tools cannot be combined"),
        ({"continue_final_message": True}, "expected a last message of the assistant"),
        ({**CONTINUED, "messages": [*TALK, *TALK[:1]]}, "got one of the role user"),
        ({**CONTINUED, "add_generation_prompt": True}, "together with add_generation_prompt: true"),
        ({**CONTINUED, "tools": [TOOL]}, "not supported with tools"),
        ({"add_generation_prompt": False, "tools": [TOOL]}, "not supported with tools"),
        ({"response_format": {"type": "json_schema"}}, "json_schema: this field is missing"),
    ],
    RESPONSES: [
        ({"previous_response_id": "resp_1"}, "expected null, got 'resp_1'"),
        ({"conversation": "c"}, f"conversation: {NOT_SUPPORTED}"),
        ({"tools": [{"name": "f"}]}, "tools[0].type: this field is missing"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools: this field is missing"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "'required' needs tools"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "[0]: expected the item itself"),
        ({"input": [said([IMAGE])]}, "input[0].content[0].type: expected input_text"),
        ({"tool_choice": "required"}, "'required' needs tools"),
        ({"text": {"format": FLAT_FORMAT}}, "text: JSON schema at #/type"),
        ({"input": [CALLED]}, "input[0].arguments: expected a JSON object, got '[]'"),
    ],
    COMPLETIONS: [
        ({"prompt": []}, "prompt: expected 1 or more items"),
        ({"prompt": 1}, "expected a string, token ids, or an array of these, got 1"),
        ({"prompt": [1, 999999]}, "prompt: cannot detokenize: tokens[1]: 999999 is outside the"),
        ({"prompt": ["a", 1]}, "prompt[1]: expected a string, got 1"),
        ({"n": 2, "prompt": ["a"] * 40}, "n: expected at most 64 answers, got 80"),
        ({"max_tokens": 0}, "max_tokens: expected at least 1 without echo"),
        ({"suffix": "b"}, f"suffix: {NOT_SUPPORTED}"),
        ({"stream": True, "echo": True, "logprobs": 0}, "stream: not supported"),
    ],
    EMBEDDINGS: [
        ({"dimensions": 8}, f"dimensions: {NOT_SUPPORTED}"),
        ({"input": [999999]}, "input: cannot detokenize: tokens[0]: 999999 is outside"),
        ({"input": [1999, 45, 1999, 2]}, "input: the token ids do not match"),
    ],
}
"""Changes to each right request, and what the error says about the first changed field."""


@pytest.mark.parametrize(
    ("path", "change", "message"), [(path, *row) for path, rows in WRONG.items() for row in rows]
)
def test_a_wrong_field_is_named(
    server: Served, path: str, change: dict[str, Any], message: str
) -> None:
    answer = httpx.post(server.url + path, json={**RIGHT[path], **change})
    error = rejected(answer)
    assert message in error["message"] and error["param"] == next(iter(change))
    code = "unknown_parameter" if NOT_SUPPORTED in message else "invalid_value"
    assert error["code"] == code
    if path == SYSTEMONE:
        (problem,) = answer.json()["detail"]
        assert problem["loc"][:2] == ["body", error["param"]]
        assert (problem["msg"], problem["type"]) == (error["message"], code)


@pytest.mark.parametrize("path", RIGHT)
def test_missing_fields_are_named(server: Served, path: str) -> None:
    needed = {"input", "inputs", "messages", "prompt", "state", "questions"}
    for name in needed & RIGHT[path].keys():
        body = {key: value for key, value in RIGHT[path].items() if key != name}
        error = rejected(httpx.post(server.url + path, json=body))
        assert error["message"] == f"{name}: this field is missing"


def test_a_long_field_name_is_shortened_in_messages(server: Served) -> None:
    body = {**decisions_body(), "x" * 500_000: 1}
    error = rejected(httpx.post(server.url + DECISIONS, json=body))
    assert error["message"].startswith("['xxx") and len(str(error)) < 300


def test_systemone_ignores_unknown_fields_and_names_them_in_a_header(server: Served) -> None:
    """The specification of this format asks for it; earlier versions answered with 400."""
    more = {"seed": 7, "x\r\nset-cookie: a": 1, "größe": 2, "y" * 500: 3}
    more |= dict.fromkeys(["", " ", "\0", '"', "é,:"], 4)
    answer = httpx.post(server.url + SYSTEMONE, json={**RIGHT[SYSTEMONE], **more})
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    names = answer.headers["x-ignored-fields"].split(", ")
    assert names[:3] == ["seed", "x%0D%0Aset-cookie%3A%20a", "gr%C3%B6%C3%9Fe"]
    assert names[3] == "y" * 40 and len(names) == len(more)
    plain = httpx.post(server.url + SYSTEMONE, json=RIGHT[SYSTEMONE])
    assert "x-ignored-fields" not in plain.headers
    many = {f"x{i}": i for i in range(5000)}
    answer = httpx.post(server.url + SYSTEMONE, json={**RIGHT[SYSTEMONE], **many})
    assert answer.headers["x-ignored-fields"].count(",") == 19


@pytest.mark.parametrize(
    "criteria",
    [
        {"true": "The writer threatens us.", "false": "No threat"},
        {"true": {"a": 1}},
        {"true": None, "false": "The writer is calm."},
    ],
)
def test_a_noul_may_have_criteria_instead_of_instructions(server: Served, criteria: Any) -> None:
    question = {"type": "noul", "criteria": criteria}
    body = {**RIGHT[SYSTEMONE], "questions": {"so": question}, "include": ["prompts"]}
    answer = httpx.post(server.url + SYSTEMONE, json=body)
    assert answer.status_code == 200, answer.text
    (prompt, *_) = answer.json()["prompts"]
    expected = criteria.get("true") or criteria["false"]
    assert (expected if isinstance(expected, str) else json.dumps(expected)) in prompt
