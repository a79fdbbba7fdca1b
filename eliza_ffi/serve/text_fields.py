"""The fields that the endpoints for text share: sampling, streams, and limits on the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from ..chat.tool_messages import read_call
from ..checks import short_repr
from ..errors import InvalidArgumentError
from ..sampling.params import MAX_SEED, Sampling
from ..structured.shape import Gbnf, Regex
from .http_error import HTTPError, invalid
from .request_body import Body, NoEffect, StringOrArray

Limit: TypeAlias = tuple[str, ...] | Mapping[str, Any] | Regex | Gbnf
"""A limit on the answer: labels, a JSON schema, a regular expression, or a grammar in GBNF."""

MAX_ANSWERS = 16  # the maximum of `n`
MAX_BIAS = 1e6  # as in Sampling
MAX_DIGITS = 9  # of a token id
MAX_STOPS = 16

JsonSchema: TypeAlias = Annotated[dict[str, Any], Field(min_length=1)]
"""A JSON Schema; the empty schema, which allows everything, is rejected."""

JSON_OBJECT = {"type": "object"}
"""The schema of ``{"type": "json_object"}``."""

NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]

MaxTokens: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The maximum length of an answer in tokens."""


def _different(labels: list[str]) -> tuple[str, ...]:
    seen = set[str]()
    for label in labels:
        if label in seen:
            raise ValueError(f"expected different labels, got {short_repr(label)} twice")
        seen.add(label)
    return tuple(labels)


Choices: TypeAlias = Annotated[
    list[NonEmpty],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_different),
]
Pattern: TypeAlias = Annotated[NonEmpty, AfterValidator(Regex)]


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


SAMPLING_FIELDS = {
    *("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty"),
    *("repeat_penalty", "seed"),
}
"""The fields that are passed on to `Sampling` without a change."""

LIMIT_FIELDS = (
    *("structured_outputs", "guided_choice", "guided_json", "guided_regex"),
    *("json_schema", "grammar"),
)
"""The fields that limit the answer, besides those for its format."""


class StructuredOutputs(Body):
    """vLLM's limits on an answer; exactly one."""

    choice: Choices | None = None
    json_schema: JsonSchema | None = Field(None, alias="json")
    regex: Pattern | None = None
    json_object: Literal[True] | None = None

    def limit(self) -> Limit:
        """Return the limit."""
        schema = JSON_OBJECT if self.json_object else None
        limits: tuple[Any, ...] = (self.choice, self.json_schema, self.regex, schema)
        found: list[Limit] = [limit for limit in limits if limit is not None]
        if len(found) != 1:
            expected = "expected exactly one of choice, json, regex and json_object"
            raise ValueError(f"{expected}, got {len(found)}")
        return found[0]


class TextFields(Body):
    """The fields of all endpoints for text."""

    model: str | None = None
    stream: bool | None = None

    # How tokens are drawn.
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="0 = the most probable token; default: 1 for text, unless the server has "
        "another default, and 0 for an answer with a limit or tools",
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
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = Field(
        None, description="-1 = none; the model uses the remainder of division by 2**32 - 1"
    )
    logit_bias: dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]] | None = None

    # Limits on the answer, in the forms of vLLM and llama-server; at most one.
    structured_outputs: (
        Annotated[StructuredOutputs, AfterValidator(StructuredOutputs.limit)] | None
    ) = None
    guided_choice: Choices | None = None
    guided_json: JsonSchema | None = None
    guided_regex: Pattern | None = None
    json_schema: JsonSchema | None = None
    grammar: Annotated[NonEmpty, AfterValidator(Gbnf)] | None = Field(
        None, description="a grammar in GBNF"
    )

    user: NoEffect
    service_tier: NoEffect
    prompt_cache_key: NoEffect
    prompt_cache_options: NoEffect
    prompt_cache_retention: NoEffect
    safety_identifier: NoEffect

    def sampling(self, defaults: Mapping[str, Any]) -> Sampling | None:
        """Return the settings, None if every token is the most probable one."""
        settings = {**defaults, **self.model_dump(include=SAMPLING_FIELDS, exclude_none=True)}
        if self.top_k is not None:
            settings["top_k"] = max(self.top_k, 0)
        if self.repetition_penalty is not None:
            settings["repeat_penalty"] = self.repetition_penalty
        if self.seed is not None:
            del settings["seed"]
            if self.seed != -1:  # as in llama-server and vLLM
                settings["seed"] = self.seed % (MAX_SEED + 1)
        if self.logit_bias:
            settings["logit_bias"] = tuple(map(_bias, self.logit_bias.items()))
        is_greedy = all(
            value == getattr(Sampling, name) for name, value in settings.items() if name != "seed"
        )
        return None if is_greedy else Sampling(**settings)

    def limit(self, **formatted: Any) -> tuple[str, Limit | None]:
        """Return the limit on the answer and its field; `formatted` is the one in its format."""
        limits = {**formatted, **{name: getattr(self, name) for name in LIMIT_FIELDS}}
        found = {name: limit for name, limit in limits.items() if limit is not None}
        if len(found) > 1:
            message = f"expected at most one limit on the answer, got {' and '.join(found)}"
            raise HTTPError(400, message, "invalid_value", next(iter(found)))
        return next(iter(found.items()), ("", None))


def _bias(item: tuple[str, float]) -> tuple[int, float]:
    token, bias = item
    if not (token.isdecimal() and len(token) <= MAX_DIGITS):
        raise invalid("logit_bias", f"expected token ids as keys, got {token[:40]!r}")
    return int(token), bias


def check_stream_options(options: Body | None, stream: bool | None) -> None:
    """Raise an HTTPError if there are options of a stream, and the answer is not a stream."""
    if options is not None and not stream:
        raise invalid("stream_options", "this field needs stream: true")


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: NoEffect


class CompletionFields(TextFields):
    """The fields of ``/v1/chat/completions`` and ``/v1/completions``."""

    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    stop: StringOrArray[NonEmpty, Annotated[list[NonEmpty], Field(max_length=MAX_STOPS)]] | None = (
        None
    )
    metadata: NoEffect
    cache_prompt: NoEffect

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)
