"""Tests of ``/v1/completions`` and ``/v1/embeddings`` with OpenAI's client."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from served import ROUNDING, Served, events_of

from eliza_ffi import Model, TokenLogprob
from eliza_ffi.serve.completions import _named

pytestmark = pytest.mark.slow

PROMPT = "The weather is"


@pytest.fixture
def create(client: Any) -> Any:
    """Return OpenAI's method that continues a prompt, by default `PROMPT`."""
    return partial(client.completions.create, model="any", prompt=PROMPT)


def test_a_prompt_is_continued_as_in_process(create: Any, tiny_model: Model) -> None:
    found = create(temperature=0)
    expected = tiny_model.generate(PROMPT, 16)
    assert found.choices[0].text == expected.text
    assert found.usage.prompt_tokens == expected.prompt_tokens
    chunks = create(temperature=0, echo=True, stream=True, stream_options={"include_usage": True})
    *texts, last = chunks
    assert "".join(chunk.choices[0].text for chunk in texts) == PROMPT + expected.text
    assert last.usage.completion_tokens == len(expected.tokens)


def test_prompts_may_be_several_texts_or_token_ids(create: Any, tiny_model: Model) -> None:
    texts = [PROMPT, "Once upon"]
    tokens = [tiny_model.prompt_tokens(text) for text in texts]
    asked = {"temperature": 0, "max_tokens": 5, "n": 2}
    both = create(prompt=texts, **asked)
    same = create(prompt=tokens, **asked)
    one = create(prompt=tokens[1], **asked)
    found = [choice.text for choice in both.choices]
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert found == [choice.text for choice in same.choices]
    assert found[2:] == [choice.text for choice in one.choices]
    assert both.usage.prompt_tokens == sum(map(len, tokens))


@pytest.mark.parametrize("max_tokens", [0, 3])
def test_echo_reports_the_log_probabilities_of_the_prompt(
    create: Any, tiny_model: Model, max_tokens: int
) -> None:
    found = create(temperature=0, echo=True, logprobs=1, max_tokens=max_tokens)
    tokens = tiny_model.prompt_tokens(PROMPT)
    (choice,) = found.choices
    logprobs = choice.logprobs
    assert choice.text.startswith(PROMPT) and logprobs.token_logprobs[0] is None
    assert len(logprobs.tokens) == len(tokens) + found.usage.completion_tokens
    assert found.usage.prompt_tokens == len(tokens)
    assert found.usage.completion_tokens == max_tokens
    for i in range(1, len(tokens)):  # each token's probability after the tokens before it
        (entry,) = tiny_model.generate(tokens[:i], 1, logprobs=1024).logprobs or ()
        expected = {each.token: each.logprob for each in entry.top}.get(tokens[i])
        if expected is not None:
            assert math.exp(logprobs.token_logprobs[i]) == pytest.approx(
                math.exp(expected), abs=ROUNDING
            )
    plain = create(temperature=0, max_tokens=max_tokens, echo=True)
    assert plain.choices[0].text == choice.text


def test_an_echo_goes_on_after_an_end_token(create: Any, tiny_model: Model) -> None:
    tokens = tiny_model.prompt_tokens("One.<|im_end|>\nTwo three")
    asked = {"temperature": 0, "echo": True, "logprobs": 2, "max_tokens": 0}
    for n in (len(tokens), 1):  # an echo of one token generates nothing, either
        found = create(prompt=tokens[:n], **asked)
        logprobs = found.choices[0].logprobs
        assert len(logprobs.tokens) == found.usage.prompt_tokens == n
        assert found.usage.completion_tokens == 0
        expected = [each.logprob for each in tiny_model.prompt_logprobs(tokens[:n], 2)]
        assert logprobs.token_logprobs[0] is None
        assert logprobs.token_logprobs[1:] == pytest.approx(expected[1:], abs=ROUNDING)


def test_an_echo_with_log_probabilities_may_stop_at_a_string(create: Any) -> None:
    whole = create(temperature=0, logprobs=1, max_tokens=8).choices[0].text
    stop = whole[len(whole) // 2 :][:3]
    found = create(temperature=0, echo=True, logprobs=1, max_tokens=8, stop=stop).choices[0]
    assert found.finish_reason == "stop"
    assert found.text == PROMPT + whole[: whole.index(stop)]


def test_logprobs_of_a_continuation_have_alternatives(create: Any) -> None:
    found = create(temperature=0, logprobs=2, max_tokens=4)
    logprobs = found.choices[0].logprobs
    assert "".join(logprobs.tokens) == found.choices[0].text
    assert all(len(each) == 2 for each in logprobs.top_logprobs)
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])
    chunks = create(temperature=0, logprobs=2, max_tokens=4, stream=True)
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for part in parts if part for token in part.tokens] == logprobs.tokens
    offsets = [offset for part in parts if part for offset in part.text_offset]
    assert offsets == logprobs.text_offset


def test_embeddings_match_the_model_in_process(client: Any, tiny_model: Model) -> None:
    texts = ["a cat", "a dog"]
    expected = tiny_model.embed(texts)
    packed = client.embeddings.create(model="any", input=texts)  # base64, decoded by the client
    plain = client.embeddings.create(model="any", input=texts, encoding_format="float")
    tokens = [tiny_model.tokenize(text, add_special=True) for text in texts]
    as_tokens = client.embeddings.create(model="any", input=tokens)
    for found in (packed, plain, as_tokens):
        assert [each.index for each in found.data] == [0, 1]
        vectors = np.array([each.embedding for each in found.data])
        assert vectors == pytest.approx(expected, abs=1e-5)
        assert found.usage.prompt_tokens == sum(map(len, tokens))
    one = client.embeddings.create(model="any", input=texts[0])
    assert np.array(one.data[0].embedding) == pytest.approx(expected[0], abs=1e-5)


def check_logprobs(text: str, found: dict[str, Any], n_top: int) -> None:
    """Check the offsets and names of tokens, some of which end inside a character."""
    n_whole = 0
    for token, logprob, top, offset in zip(*found.values(), strict=True):
        if token.startswith("<|"):
            continue
        if token.startswith("bytes:"):
            raw = bytes.fromhex(token.removeprefix("bytes:").replace("\\x", ""))
            character = text[offset].encode()
            assert raw in character or raw[-1:] in character
        else:
            assert text.startswith(token, offset)
            n_whole += 1
        if top is not None:
            assert len(top) == n_top and top.get(token, logprob) == logprob
    assert n_whole and any(each.startswith("bytes:") for each in found["tokens"])


def test_tokens_that_end_inside_a_character_are_named_by_their_bytes(server: Served) -> None:
    """These tokens shared the name U+FFFD, so their log-probabilities replaced each other."""
    written = "\U0001f389\u1e9e\U0001f389 x"
    body = {"prompt": "a", "guided_regex": written, "logprobs": 20}
    url = f"{server.url}/v1/completions"
    whole = httpx.post(url, json=body, timeout=60).json()["choices"]
    stream = httpx.post(url, json={**body, "stream": True}, timeout=60)
    for choices in (whole, [event["choices"][0] for event in events_of(stream.text)]):
        assert "".join(each["text"] for each in choices) == written
        parts = [each["logprobs"] for each in choices if each["logprobs"]]
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        found = {name: [item for part in parts for item in part[name]] for name in names}
        check_logprobs(written, found, 20)


def test_offsets_of_an_echo_count_characters(server: Served) -> None:
    prompt = "\xdcn\xefc\xf6d\xe9 \u65e5\u672c\u8a9e"
    for max_tokens in (0, 4):
        body = {"prompt": prompt, "max_tokens": max_tokens, "echo": True, "logprobs": 2}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        (choice,) = answer.json()["choices"]
        check_logprobs(choice["text"], choice["logprobs"], 2)
        offsets = dict(
            zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True)
        )
        assert offsets["n"] == 1


@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize("as_tokens", [False, True])
def test_offsets_of_an_echo_count_control_tokens_that_the_text_spells(
    server: Served, tiny_model: Model, max_tokens: int, as_tokens: bool
) -> None:
    text = "<|im_start|>user\nÜ hi<|im_end|>\n<|im_start|>assistant\n"
    tokens = tiny_model.tokenize(text, parse_special=True)
    body = {"prompt": tokens if as_tokens else text, "max_tokens": max_tokens}
    body = {**body, "echo": True, "logprobs": 0, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    (choice,) = answer.json()["choices"]
    found = choice["logprobs"]
    assert choice["text"].startswith(text)
    pairs = list(zip(found["tokens"], found["text_offset"], strict=True))
    spelled = [(token, at) for token, at in pairs if token.startswith("<|im_")]
    assert [token for token, _ in spelled[:3]] == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    for token, at in pairs:
        if not token.startswith(("bytes:", "<|startoftext|>")) and at < len(text):
            assert choice["text"].startswith(token, at)
    assert max(at for _, at in pairs) <= len(choice["text"])


def test_an_unfinished_character_has_a_place_of_its_own(server: Served, tiny_model: Model) -> None:
    """The token after it was placed where this character begins."""
    tokens = tiny_model.tokenize("\u65e5\u672c")[:-1]
    body = {"prompt": [*tokens, *tiny_model.tokenize("x")], "max_tokens": 0, "echo": True}
    answer = httpx.post(f"{server.url}/v1/completions", json={**body, "logprobs": 0}, timeout=60)
    (choice,) = answer.json()["choices"]
    assert choice["text"] == "\u65e5\ufffdx"
    assert choice["logprobs"]["text_offset"][-1] == 2


def test_tokens_with_the_same_text_keep_their_log_probabilities() -> None:
    """A letter, and the token for its byte."""
    letter, byte = (TokenLogprob(token, "a", -token / 10, (), b"a") for token in (5, 7))
    for chosen, name in ((letter, "a"), (byte, "token_id:7")):
        entry = replace(chosen, top=(letter, byte))
        assert _named(entry) == (name, {"a": -0.5, "token_id:7": -0.7})
