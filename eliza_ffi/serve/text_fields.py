"""The fields that the endpoints for text share: sampling, streams, and limits on the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from ..chat.tool_messages import read_call
from ..checks import short_repr
from ..errors import InvalidArgumentError
from ..sampling.params import MAX_SEED, Sampling
from ..structured.shape import Gbnf, Regex
from .fields import Body, NoEffect, StringOrArray
from .refusals import Refusal, unfit
from .text import ExactLabels, Limit, Writing

__all__ = [
    "JSON_OBJECT",
    "CallArguments",
    "CompletionFields",
    "JsonSchema",
    "MaxTokens",
    "TextFields",
    "check_stream_options",
]

MOST_ANSWERS = 16
"""The maximum of `n`."""

MAX_BIAS = 1e6
"""The maximum of the values in `logit_bias`, as in :class:`~eliza_ffi.Sampling`."""

MAX_DIGITS = 9
"""The maximum number of digits of a token id."""

MOST_STOPS = 16
"""The maximum number of stop strings."""

JsonSchema: TypeAlias = Annotated[dict[str, Any], Field(min_length=1)]
"""A JSON Schema; the empty schema, which allows everything, is rejected."""

JSON_OBJECT = {"type": "object"}
"""The schema of ``{"type": "json_object"}``."""

NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]

MaxTokens: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The maximum length of an answer in tokens."""


def _different(labels: list[str]) -> list[str]:
    seen = set[str]()
    for label in labels:
        if label in seen:
            raise ValueError(f"expected different labels, got {short_repr(label)} twice")
        seen.add(label)
    return labels


Choices: TypeAlias = Annotated[
    list[NonEmpty],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_different),
]


def _json_object(text: str) -> str:
    try:
        read_call({"function": {"name": "", "arguments": text}})
    except InvalidArgumentError:
        raise ValueError(f"expected a JSON object, got {short_repr(text)}") from None
    return text


CallArguments: TypeAlias = Annotated[
    str, Field(description="a JSON object; empty = no arguments"), AfterValidator(_json_object)
]
"""The arguments of an earlier tool call, as a string."""

LIMITS = (
    *("structured_outputs", "guided_choice", "guided_json", "guided_regex", "json_schema"),
    *("grammar", "response_format", "text"),
)
"""The fields that can limit the answer."""


class StructuredOutputs(Body):
    """vLLM's limits on an answer; exactly one."""

    choice: Choices | None = None
    json_schema: JsonSchema | None = Field(None, alias="json")
    regex: NonEmpty | None = None
    json_object: Literal[True] | None = None

    def limit(self) -> Limit:
        """Return the limit."""
        limits: list[Limit | None] = [
            _labels(self.choice),
            self.json_schema,
            _regex(self.regex),
            JSON_OBJECT if self.json_object else None,
        ]
        given = [limit for limit in limits if limit is not None]
        if len(given) != 1:
            expected = "expected exactly one of choice, json, regex and json_object"
            raise unfit("structured_outputs", f"{expected}, got {len(given)}")
        return given[0]


class TextFields(Body):
    """The fields of all endpoints for text."""

    model: str | None = None
    stream: bool | None = None

    # How tokens are drawn.
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
    logit_bias: dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]] | None = None

    # Limits on the answer, in the forms of vLLM and llama-server; at most one.
    structured_outputs: StructuredOutputs | None = None
    guided_choice: Choices | None = None
    guided_json: JsonSchema | None = None
    guided_regex: NonEmpty | None = None
    json_schema: JsonSchema | None = None
    grammar: NonEmpty | None = Field(None, description="a grammar in GBNF")

    user: NoEffect
    service_tier: NoEffect
    prompt_cache_key: NoEffect
    prompt_cache_options: NoEffect
    prompt_cache_retention: NoEffect
    safety_identifier: NoEffect

    def sampling(self, default_temperature: float) -> Sampling:
        """Return the settings; the default temperature depends on the kind of answer."""
        unchanged = {"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty"}
        given = self.model_dump(include={*unchanged, "repeat_penalty", "seed"}, exclude_none=True)
        if self.top_k is not None:
            given["top_k"] = max(self.top_k, 0)
        if self.repetition_penalty is not None:
            given["repeat_penalty"] = self.repetition_penalty
        if self.logit_bias:
            given["logit_bias"] = tuple(map(_bias, self.logit_bias.items()))
        return Sampling(**{"temperature": default_temperature, **given})

    @property
    def limit_field(self) -> str:
        """The field with the limit on the answer, if there is one."""
        return next((name for name in LIMITS if getattr(self, name, None) is not None), "")

    def limit(self, **formatted: Limit | None) -> Limit | None:
        """Return the limit on the answer; `formatted` is the one in its format, by its field.

        Raises
        ------
        Refusal
            If there are several limits, or `structured_outputs` does not have exactly one.
        """
        outputs = self.structured_outputs
        limits: dict[str, Limit | None] = {
            **formatted,
            "structured_outputs": None if outputs is None else outputs.limit(),
            "guided_choice": _labels(self.guided_choice),
            "guided_json": self.guided_json,
            "guided_regex": _regex(self.guided_regex),
            "json_schema": self.json_schema,
            "grammar": None if self.grammar is None else Gbnf(self.grammar),
        }
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if len(given) > 1:
            first = next(iter(given))
            message = f"expected at most one limit on the answer, got {' and '.join(given)}"
            raise Refusal(400, message, "invalid_value", first)
        return next(iter(given.values()), None)


def _bias(item: tuple[str, float]) -> tuple[int, float]:
    token, bias = item
    if not (token.isdecimal() and len(token) <= MAX_DIGITS):
        raise unfit("logit_bias", f"expected token ids as keys, got {token[:40]!r}")
    return int(token), bias


def _labels(choices: list[str] | None) -> ExactLabels | None:
    return None if choices is None else ExactLabels(tuple(choices))


def _regex(pattern: str | None) -> Regex | None:
    return None if pattern is None else Regex(pattern)


def check_stream_options(options: Body | None, stream: bool | None) -> None:
    """Raise a `Refusal` if there are options of a stream, and the answer is not a stream."""
    if options is not None and not stream:
        raise unfit("stream_options", "this field needs stream: true")


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: NoEffect


class CompletionFields(TextFields):
    """The fields of ``/v1/chat/completions`` and ``/v1/completions``."""

    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_ANSWERS)
    stop: (
        StringOrArray[NonEmpty, Annotated[list[NonEmpty], Field(max_length=MOST_STOPS)]] | None
    ) = None
    metadata: NoEffect
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
