"""The fields that the endpoints for text share: sampling, streams, and limits on the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, Tag

from ..sampling.params import MAX_SEED, Sampling
from ..structured.shape import Gbnf, Regex
from .fields import TEXT_OR_LIST, Body, NoEffect
from .refusals import Refusal
from .text import ExactLabels, Limit, Writing

__all__ = [
    "JSON_OBJECT",
    "JsonSchema",
    "LimitFields",
    "SamplingFields",
    "StreamOptions",
    "TextFields",
    "limit_of",
]

MOST_ANSWERS = 16
"""The maximum of `n`."""

MOST_STOPS = 16
"""The maximum number of stop strings."""

JsonSchema: TypeAlias = Annotated[dict[str, Any], Field(min_length=1)]
"""A JSON Schema; the empty schema, which allows everything, is rejected."""

NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: NoEffect


class SamplingFields(Body):
    """How tokens are drawn."""

    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="0 = the most probable token; default: 1 for text, 0 for an answer with a "
        "limit or tools",
    )
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, description="0 or -1 = off")
    min_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    repeat_penalty: float | None = Field(None, gt=0, le=10)
    repetition_penalty: float | None = Field(
        None,
        gt=0,
        le=10,
        description="vLLM's name of repeat_penalty; if both are given, this one is used",
    )
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    logit_bias: dict[str, float] | None = None

    def sampling(self, default_temperature: float = 1.0) -> Sampling:
        """Return the settings; the default temperature depends on the kind of answer."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                *("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty"),
                *("repeat_penalty", "seed"),
            )
            if getattr(self, name) is not None
        }
        if self.top_k is not None:
            given["top_k"] = max(self.top_k, 0)
        if self.repetition_penalty is not None:
            given["repeat_penalty"] = self.repetition_penalty
        if self.logit_bias:
            given["logit_bias"] = tuple(map(_bias, self.logit_bias.items()))
        return Sampling(**{"temperature": default_temperature, **given})


def _bias(item: tuple[str, float]) -> tuple[int, float]:
    token, bias = item
    if not token.isdecimal():
        message = f"logit_bias: expected token ids as keys, got {token[:40]!r}"
        raise Refusal(400, message, "invalid_value", "logit_bias")
    return int(token), bias


class TextFields(SamplingFields):
    """The fields of ``/v1/chat/completions`` and ``/v1/completions``."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_ANSWERS)
    stop: (
        Annotated[
            Annotated[NonEmpty, Tag("string")]
            | Annotated[list[NonEmpty], Field(max_length=MOST_STOPS), Tag("array")],
            TEXT_OR_LIST,
        ]
        | None
    ) = None
    user: NoEffect
    metadata: NoEffect
    service_tier: NoEffect
    prompt_cache_key: NoEffect
    prompt_cache_options: NoEffect
    prompt_cache_retention: NoEffect
    safety_identifier: NoEffect
    cache_prompt: NoEffect

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def several(self, writing: Writing) -> list[Writing]:
        """Return the requests for `n` answers; each samples with its own seed."""
        seed = writing.sampling.seed
        if seed is None:
            return [writing] * (self.n or 1)
        return [
            replace(writing, sampling=replace(writing.sampling, seed=(seed + i) % (MAX_SEED + 1)))
            for i in range(self.n or 1)
        ]


Choices: TypeAlias = Annotated[list[NonEmpty], Field(min_length=1)]


class StructuredOutputs(Body):
    """vLLM's limits on an answer; exactly one."""

    choice: Choices | None = None
    json_schema: JsonSchema | None = Field(None, alias="json")
    regex: NonEmpty | None = None
    json_object: Literal[True] | None = None


class LimitFields(Body):
    """Limits on the answer, in the forms of vLLM and llama-server; at most one."""

    structured_outputs: StructuredOutputs | None = None
    guided_choice: Choices | None = None
    guided_json: JsonSchema | None = None
    guided_regex: NonEmpty | None = None
    json_schema: JsonSchema | None = None
    grammar: NonEmpty | None = Field(None, description="a grammar in GBNF")


def limit_of(fields: LimitFields, formatted: Limit | None = None) -> Limit | None:
    """Return the limit of a request; `formatted` is the one in its `response_format`.

    Raises
    ------
    Refusal
        If there are several limits, or `structured_outputs` does not have exactly one.
    """
    limits: dict[str, Limit | None] = {
        "response_format": formatted,
        "structured_outputs": _structured(fields.structured_outputs),
        "guided_choice": _labels(fields.guided_choice),
        "guided_json": fields.guided_json,
        "guided_regex": _regex(fields.guided_regex),
        "json_schema": fields.json_schema,
        "grammar": None if fields.grammar is None else Gbnf(fields.grammar),
    }
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if len(given) > 1:
        names = " and ".join(given)
        message = f"expected at most one limit on the answer, got {names}"
        raise Refusal(400, message, "invalid_value", next(iter(given)))
    return next(iter(given.values()), None)


def _structured(outputs: StructuredOutputs | None) -> Limit | None:
    if outputs is None:
        return None
    limits: list[Limit | None] = [
        _labels(outputs.choice),
        outputs.json_schema,
        _regex(outputs.regex),
        JSON_OBJECT if outputs.json_object else None,
    ]
    given = [limit for limit in limits if limit is not None]
    if len(given) != 1:
        name = "structured_outputs"
        expected = "expected exactly one of choice, json, regex and json_object"
        raise Refusal(400, f"{name}: {expected}, got {len(given)}", "invalid_value", name)
    return given[0]


def _labels(choices: list[str] | None) -> ExactLabels | None:
    return None if choices is None else ExactLabels(tuple(choices))


def _regex(pattern: str | None) -> Regex | None:
    return None if pattern is None else Regex(pattern)


JSON_OBJECT = {"type": "object"}
"""The schema of ``{"type": "json_object"}``."""
