"""Tests with thousands of slightly wrong requests: each is answered or rejected, none fails."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import jsonschema
import pytest
from effort import share
from served import DECISIONS, SYSTEMONE, Served, check_documented
from wrong_requests import RIGHT, damaged, spoil

from eliza_ffi.serve.app import ENDPOINTS
from eliza_ffi.serve.http_error import HTTPError
from eliza_ffi.serve.openapi import openapi_document
from eliza_ffi.serve.request_body import read_fields

pytestmark = pytest.mark.slow

BATCH = "/v1/decisions/batch"
N_REQUESTS = max(share(160), 48)  # with fewer, all of a path may be wrong

N_READ = share(2000)
"""The number of requests that are only read, not answered."""


def has_json_arguments(call: dict[str, Any]) -> bool:
    try:
        return isinstance(json.loads(call["arguments"] or "{}"), dict)
    except ValueError:
        return False


def rules_beyond_schemas(path: str, body: Any) -> bool:
    """Return whether a request also follows the rules in the descriptions of its schema."""
    if path == "/v1/chat/completions":
        calls = [
            call["function"]
            for message in body["messages"]
            for call in message.get("tool_calls") or ()
        ]
        return all(map(has_json_arguments, calls)) and all(
            message.get("content") is not None or message["role"] == "assistant"
            for message in body["messages"]
        )
    if path == "/v1/responses" and isinstance(body["input"], list):
        calls = [item for item in body["input"] if item.get("type") == "function_call"]
        return all(map(has_json_arguments, calls))
    if path not in (DECISIONS, BATCH, SYSTEMONE):
        return True
    if not body.get("questions"):  # they may come from a set of the server
        return True
    questions = body["questions"]
    if isinstance(questions, dict):
        named = {"0": questions} if isinstance(questions.get("type"), str) else questions
    else:
        named = {each.get("name") or str(i): each for i, each in enumerate(questions)}
        if len(named) < len(questions):
            return False
    n_questions = sum(len(each.get("labels", "1")) for each in named.values())
    return n_questions <= 400 and all(map(follows_the_rules, named.values()))


def follows_the_rules(question: dict[str, Any]) -> bool:
    """Return whether the parts of a question have text, and its options and levels are unique."""
    instructions = question.get("instructions")
    if isinstance(instructions, list) and instructions:
        texts = [each.get("text") if isinstance(each, dict) else None for each in instructions]
        if all(isinstance(text, str) for text in texts) and not "".join(texts).strip():
            return False
    if question["type"] == "score":
        levels = [
            each["label"]
            if isinstance(each, dict) and "levels" in question
            else each
            if isinstance(each, str)
            else json.dumps(each, ensure_ascii=False)
            for each in question.get("levels", question.get("criteria"))
        ]
        return len(set(levels)) == len(levels)
    options: list[Any] = []
    if question["type"] in ("choice", "labels"):
        options += next(
            question[key] for key in ("choices", "criteria", "labels") if key in question
        )
    values = [each["value"] if isinstance(each, dict) else each for each in options]
    if question.get("none") is not None:
        values.append(question["none"])
    return len({(type(each), each) for each in values}) == len(values) <= 255


def with_other_forms(path: str) -> list[dict[str, Any]]:
    """Return requests whose questions have the other forms that every endpoint accepts."""
    decisions, systemone = (RIGHT[each]["questions"] for each in (DECISIONS, SYSTEMONE))
    short = {"type": "choice", "instructions": "Which?", "choices": ["a", True, {"value": "b"}]}
    described = {"type": "choice", "instructions": "Which?", "choices": {"a": "d", "b": None}}
    levels = {"type": "score", "instructions": "How?", "levels": ["l", {"label": "m"}]}
    named = {each.get("name", str(i)): each for i, each in enumerate(decisions[:3])}
    forms = [short, {"x": short, "y": described}, [described, levels], named, [*systemone.values()]]
    if path not in (DECISIONS, SYSTEMONE):
        return []
    return [RIGHT[path] | {"questions": form} for form in forms]


def with_unknown_nulls(document: str) -> Any:
    """Return the OpenAPI document with the rule of its description: other fields may be null.

    The schemas leave this rule out, because generated clients would add such fields.
    """
    null = '"additionalProperties": {"type": "null"}'
    return json.loads(document.replace('"additionalProperties": false', null))


@pytest.mark.parametrize("path", RIGHT)
def test_the_openapi_document_allows_exactly_the_accepted_requests(path: str) -> None:
    document = with_unknown_nulls(openapi_document(ENDPOINTS))
    content = document["paths"][path]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**document, **schema})
    endpoint = next(each for each in ENDPOINTS if each.path == path)
    draw = random.Random(path)
    statuses: Counter[int] = Counter()
    for _ in range(N_READ):
        body = spoil(draw.choice([RIGHT[path], *with_other_forms(path)]), draw)
        status, message = 200, ""
        try:
            read_fields(endpoint.kind, body)
        except HTTPError as refusal:
            status, message = refusal.status, refusal.message
        statuses[status] += 1
        if status == 501:  # images, which the schemas cannot describe in every place
            assert "only text is supported" in message
        else:
            is_allowed = validator.is_valid(body) and rules_beyond_schemas(path, body)
            assert (status == 200) == is_allowed, (message, json.dumps(body))
    assert set(statuses) <= set(map(int, document["paths"][path]["post"]["responses"]))
    assert statuses[200] > N_READ / 20 and statuses[400] > N_READ / 20  # enough of both kinds


@pytest.mark.parametrize("path", RIGHT)
def test_wrong_requests_do_not_make_the_server_fail(server: Served, path: str) -> None:
    """Most are slightly wrong; the bodies of the others are damaged."""
    draw = random.Random(path)
    codes: Counter[int] = Counter()
    with server.client() as client:
        document = client.get("/openapi.json").json()
        assert client.post(path, json=RIGHT[path]).status_code == 200
        for _ in range(N_REQUESTS):
            body = spoil(RIGHT[path], draw)
            answer = client.post(path, json=body)
            codes[answer.status_code] += 1
            assert answer.status_code in (200, 400, 422), (answer.text, json.dumps(body))
            check_documented(answer, document, path)
        for _ in range(N_REQUESTS // 2):
            content, headers = damaged(RIGHT[path], draw)
            answer = client.post(path, content=content, headers=headers)
            assert answer.status_code in (200, 400, 413, 422), (answer.text, content[:300])
            codes[-1] += answer.status_code != 200
            check_documented(answer, document, path)
        assert client.post(path, json=RIGHT[path]).status_code == 200
    wrong = 422 if path == SYSTEMONE else 400
    assert codes[200] > N_REQUESTS / 20 and codes[wrong] > N_REQUESTS / 20  # enough of both kinds
    assert codes[-1], "no damaged body was rejected"
