"""A mixture of chat requests, each with the answer that the server must give."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from eliza_ffi.model import Model
from eliza_ffi.session.results import GenerationResult

from .workload import Asked, mail_of

CHAT_PATH = "/v1/chat/completions"

LEAD = 0.1
"""How much more probable than the second token each token of an expected text must be. Requests in
the same pass change the rounding, so a smaller lead would not determine the text."""

_LABELS = ("billing", "support", "sales", "shipping", "constrained", "press", "returns")


def chat_mixture(n: int, seed: int, model: Model) -> list[Asked]:
    """Return `n` requests: texts and exact choices, as a stream or at once, and invalid requests.

    The expected answers are computed by `model`. Texts that depend on rounding are left out.
    """
    draw = random.Random(seed)
    found: list[Asked] = []
    for i in count():
        if len(found) == n:
            break
        kind = draw.random()
        mail = mail_of(draw, i)
        if kind < 0.1:
            found.append(_bad(draw, mail))
        elif kind < 0.3:
            found.append(_choice(draw, mail, model))
        elif (text := _text(draw, mail, model)) is not None:
            found.append(text)
    return found


def problem_with_chat(asked: Asked, answer: Any) -> tuple[str, list[float]]:
    """Return what is wrong with an answer (empty = nothing), and its probabilities of labels."""
    if asked.body.get("stream"):
        text, reason, shares, problem = _read_stream(answer)
    else:
        choice = answer["choices"][0]
        text, reason, problem = choice["message"]["content"], choice["finish_reason"], ""
        shares = choice.get("probabilities")
        answer = [answer]
    if problem:
        return problem, []
    if not asked.probabilities and (text, reason) != (asked.text, "length"):
        return f"expected {asked.text!r}, got {text!r} ({reason})", []
    if shares and text != max(shares, key=shares.__getitem__):
        return f"expected the most probable label of {shares}, got {text!r}", []
    n_tokens = answer[-1]["usage"]["completion_tokens"]
    if not asked.probabilities and n_tokens != asked.body["max_tokens"]:
        return f"expected {asked.body['max_tokens']} tokens, got {n_tokens}", []
    return "", [*shares.values()] if shares else []


def _read_stream(events: Sequence[Any]) -> tuple[str, str | None, dict[str, float] | None, str]:
    """Return the text, the finish reason, the probabilities and the problem of a stream."""
    if any("error" in event for event in events):
        return "", None, None, f"an error in a stream: {events[-1]}"
    if len({event["id"] for event in events}) != 1:
        return "", None, None, "a stream with events of several answers"
    choices = [choice for event in events for choice in event["choices"]]
    reasons = [each["finish_reason"] for each in choices]
    if not reasons or reasons[-1] is None or any(reasons[:-1]) or events[-1]["choices"]:
        return "", None, None, f"a stream that does not end with a reason and the usage: {events}"
    text = "".join(each["delta"].get("content") or "" for each in choices)
    return text, reasons[-1], choices[-1].get("probabilities"), ""


def _body(draw: random.Random, mail: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": mail}]
    if draw.random() < 0.3:
        messages.insert(0, {"role": "system", "content": "A shop."})
    body = {"model": "any", "messages": messages, **more}
    if draw.random() < 0.7:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _text(draw: random.Random, mail: str, model: Model) -> Asked | None:
    """Return a request for text; None = the text depends on rounding."""
    body = _body(draw, mail, temperature=0.0)
    n_tokens = draw.choice((1, 8, 32, 64))
    expected = model.generate(body["messages"], n_tokens, logprobs=2)
    n_clear = _clear_tokens(expected)
    if n_clear == 0:
        return None
    # The text ends at its last clear token, so that no rounding decides whether it continues.
    text = model.generate(body["messages"], n_clear).text
    return Asked(CHAT_PATH, {**body, "max_tokens": n_clear}, text=text)


def _clear_tokens(result: GenerationResult) -> int:
    """Return how many tokens at the beginning have a lead of `LEAD` over the second token."""
    for i, entry in enumerate(result.logprobs or ()):
        first, second = (math.exp(each.logprob) for each in entry.top[:2])
        if first - second < LEAD:
            return i
    return len(result.logprobs or ())


def _choice(draw: random.Random, mail: str, model: Model) -> Asked:
    labels = draw.sample(_LABELS, draw.choice((2, 3, 5)))
    body = _body(draw, mail, guided_choice=labels)
    chosen = model.choose(body["messages"], labels, probabilities=True)
    shares = tuple((chosen.probabilities or {})[label] for label in labels)
    return replace(Asked(CHAT_PATH, body), probabilities=(shares,))


def _bad(draw: random.Random, mail: str) -> Asked:
    messages = [{"role": "user", "content": mail}]
    body: dict[str, Any] = draw.choice(
        (
            {"messages": mail},
            {"messages": []},
            {"messages": messages, "no_such_field": 1},
            {"messages": messages, "stream": True, "temperature": "hot"},
            {"messages": [{"role": "user", "content": "word " * 4000}], "stream": True},
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        )
    )
    return Asked(CHAT_PATH, {"model": "any", **body}, status=400)
