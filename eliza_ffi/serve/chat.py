"""``/v1/chat/completions``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, Tag, model_validator
from typing_extensions import NotRequired, TypedDict

from ..sampling.params import Sampling
from ..session.requests import TextPiece, TokenLogprob
from ..session.thinking import written_reasoning
from ..session.tool_calls import CallPiece, ToolCall, conversation_tokens
from .endpoint import Endpoint, Events, Running
from .fields import TEXT_OR_LIST, Body, NoEffect, by_kind
from .refusals import Refusal
from .text import (
    ExactLabels,
    Limit,
    ReasoningPiece,
    Step,
    ToolUse,
    Writing,
    Written,
    all_written,
    one_each,
    usage_of,
)
from .text_fields import JSON_OBJECT, JsonSchema, LimitFields, TextFields, limit_of

__all__ = [
    "CHAT",
    "ChatResponse",
    "ChatUsage",
    "JsonObjectFormat",
    "TextFormat",
    "chat_writing",
    "token_logprobs",
]

MOST_LOGPROBS = 20
"""The maximum of `top_logprobs`, as at OpenAI."""

RESERVED = ("add_generation_prompt", "bos_token", "eos_token", "messages", "self", "tools")
"""Names that are not allowed in `chat_template_kwargs`."""

_BY_TYPE = Field(discriminator="type")

# ---- The request --------------------------------------------------------------------------------


class ChatTextPart(Body):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: NoEffect
    cache_control: NoEffect


class ChatRefusalPart(Body):
    type: Literal["refusal"]
    refusal: str


ChatParts: TypeAlias = list[Annotated[ChatTextPart | ChatRefusalPart, _BY_TYPE]]


class FunctionOfCall(Body):
    name: str
    arguments: str


class FunctionCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionOfCall
    index: NoEffect


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[Annotated[str, Tag("string")] | Annotated[ChatParts, Tag("array")], TEXT_OR_LIST]
        | None
    ) = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[FunctionCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    function_call: None = None
    audio: None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message with the role {self.role} needs a content")
        return self

    annotations: NoEffect
    probabilities: NoEffect


class FunctionDefinition(Body):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: NoEffect


class FunctionTool(Body):
    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(Body):
    name: str


class NamedFunction(Body):
    type: Literal["function"]
    function: FunctionName


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]
    json_schema: JsonSchema | None = Field(None, alias="schema")


class NamedSchema(Body):
    name: str | None = None
    description: NoEffect
    json_schema: JsonSchema = Field(alias="schema")
    strict: NoEffect


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ChatRequest(TextFields, LimitFields):
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    response_format: (
        Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, _BY_TYPE] | None
    ) = None
    tools: list[FunctionTool] | None = None
    tool_choice: (
        Annotated[
            Annotated[Literal["auto", "none", "required"], Tag("string")]
            | Annotated[NamedFunction, Tag("object")],
            by_kind("string", "object"),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="other variables of the chat template, such as enable_thinking"
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        None, description="a variable of the chat template; none = enable_thinking is false"
    )
    modalities: list[Literal["text"]] | None = None
    store: Literal[False] | None = None

    def limit(self) -> Limit | None:
        """Return the limit on the answer."""
        format = self.response_format
        formatted: Limit | None = None
        if isinstance(format, JsonSchemaFormat):
            formatted = format.json_schema.json_schema
        elif isinstance(format, JsonObjectFormat):
            formatted = format.json_schema or JSON_OBJECT
        return limit_of(self, formatted)


# ---- The response -------------------------------------------------------------------------------


class TokenCounts(TypedDict):
    cached_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]


class ChatUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenCounts
    completion_tokens_details: TokenCounts


class TopToken(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class TokenJson(TopToken):
    top_logprobs: list[TopToken]


class ChatLogprobs(TypedDict):
    content: list[TokenJson]
    refusal: None


class FunctionJson(TypedDict):
    name: str
    arguments: str


class CallJson(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionJson


class AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    refusal: None
    tool_calls: NotRequired[list[CallJson]]


class ChatChoice(TypedDict):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    probabilities: NotRequired[dict[str, float]]


class ChatResponse(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: ChatUsage


# ---- The handler --------------------------------------------------------------------------------


async def _chat(request: ChatRequest, running: Running) -> dict[str, Any] | Events:
    writings = request.several(await _writing(request, running))
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk" if request.stream else "chat.completion",
        "created": int(time.time()),
        "model": running.settings.name,
        "system_fingerprint": running.fingerprint,
    }
    n = len(writings)
    if request.stream:
        steps = one_each(running, writings, with_steps=True)
        return Events(_chunks(head, steps, n, request.with_usage))
    answers = await all_written(running, writings)
    return {**head, "choices": [*map(_choice, answers, count())], "usage": usage_of(answers, n)}


async def _writing(request: ChatRequest, running: Running) -> Writing:
    """Return the request for one answer."""
    if request.top_logprobs is not None and not request.logprobs:
        raise _unfit("top_logprobs", "this field needs logprobs: true")
    named = request.tool_choice
    writing = await chat_writing(
        running,
        chat_messages(request.messages),
        limit=request.limit(),
        tools=[each.model_dump(exclude_none=True) for each in request.tools or ()],
        tool_choice=named.function.name if isinstance(named, NamedFunction) else named or "auto",
        is_parallel=request.parallel_tool_calls is not False,
        variables=request.chat_template_kwargs,
        effort=request.reasoning_effort,
        sampling=request.sampling,
        max_tokens=request.max_completion_tokens or request.max_tokens or 0,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        splits_reasoning=True,
    )
    return replace(writing, stop=request.stops)


async def chat_writing(
    running: Running,
    messages: list[dict[str, Any]],
    *,
    limit: Limit | None,
    tools: list[dict[str, Any]],
    tool_choice: str,
    is_parallel: bool,
    variables: dict[str, Any] | None,
    effort: str | None,
    sampling: Callable[[float], Sampling],
    max_tokens: int,
    logprobs: int | None,
    splits_reasoning: bool = False,
) -> Writing:
    """Return the request for an answer to a conversation.

    Parameters
    ----------
    running
    messages
        The conversation, as chat templates expect it.
    limit, max_tokens, logprobs
        As in :class:`~eliza_ffi.serve.text.Writing`.
    tools, is_parallel
        As in :class:`~eliza_ffi.serve.text.ToolUse`; empty = no tools.
    tool_choice
        ``"auto"``, ``"required"``, ``"none"`` or a tool's name.
    splits_reasoning
        Whether to separate the model's reasoning from its text.
    variables, effort
        Other variables of the chat template, and the reasoning effort.
    sampling
        Returns the sampling settings for a default temperature.

    Raises
    ------
    Refusal
        If the settings cannot be combined.
    """
    has_tools = bool(tools) and tool_choice != "none"
    if tool_choice not in ("auto", "none") and not tools:
        raise _unfit("tool_choice", f"{tool_choice!r} needs tools")
    if isinstance(limit, ExactLabels) and has_tools:
        raise _unfit("tools", "tools cannot be combined with an exact choice; leave one out")
    if logprobs is not None and (has_tools or isinstance(limit, ExactLabels)):
        raise _unfit("logprobs", "not supported with tools or choices, which have `probabilities`")
    given = template_variables(variables, effort)
    is_free = limit is None and not has_tools
    session = running.model.session
    tokens: Sequence[int] = ()
    reasoning = None
    if not has_tools:
        tokens = await session.helpers.run(conversation_tokens, session, messages, given)
    if is_free and splits_reasoning:
        reasoning = await session.helpers.run(written_reasoning, session, tokens)
    return Writing(
        tokens,
        max_tokens=max_tokens,
        sampling=sampling(1.0 if is_free else 0.0),
        logprobs=logprobs,
        limit=limit,
        tools=ToolUse(messages, given, tools, tool_choice, is_parallel) if has_tools else None,
        reasoning=reasoning,
    )


def chat_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as chat templates expect them."""
    return [_message(each) for each in messages]


def _message(message: ChatMessage) -> dict[str, Any]:
    content: Any = message.content
    if isinstance(content, list):
        texts = [part.text if isinstance(part, ChatTextPart) else part.refusal for part in content]
        content = [{"type": "text", "text": text} for text in texts]
    calls = [each.model_dump(exclude={"index"}) for each in message.tool_calls or ()]
    if content is None:
        content = message.refusal or (None if calls else "")
    role = "system" if message.role == "developer" else message.role  # templates lack developer
    fields = {"role": role, "content": content}
    if calls:
        fields["tool_calls"] = calls
    for name in ("name", "tool_call_id", "reasoning_content"):
        if getattr(message, name) is not None:
            fields[name] = getattr(message, name)
    return fields


def template_variables(given: dict[str, Any] | None, effort: str | None) -> dict[str, Any]:
    """Return the variables of the chat template for a reasoning effort."""
    given = given or {}
    for name in RESERVED:
        if name in given:
            raise _unfit("chat_template_kwargs", f"{name} cannot be set")
    if effort is None:
        return given
    if effort == "none":
        return {"enable_thinking": False, **given}
    return {"reasoning_effort": effort, **given}


def _unfit(param: str, problem: str) -> Refusal:
    return Refusal(400, f"{param}: {problem}", "invalid_value", param)


# ---- Answers ------------------------------------------------------------------------------------


def _choice(answer: Written, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if answer.is_calls else answer.text,
        "refusal": None,
    }
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(each) for each in answer.calls]
    choice = {
        "index": index,
        "message": message,
        "logprobs": _logprobs(answer.logprobs),
        "finish_reason": answer.finish_reason,
    }
    return {**choice, **_probabilities(answer)}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _probabilities(answer: Written) -> dict[str, Any]:
    """Return the extension field with the probabilities of labels or tools."""
    if answer.probabilities is None:
        return {}
    named = {"" if name is None else name: p for name, p in answer.probabilities.items()}
    return {"probabilities": named}


def _logprobs(entries: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
    return None if entries is None else {"content": token_logprobs(entries), "refusal": None}


def token_logprobs(entries: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Return log-probabilities of tokens in OpenAI's form."""
    return [
        {**_token(each), "top_logprobs": [_token(other) for other in each.top]} for each in entries
    ]


def _token(entry: TokenLogprob) -> dict[str, Any]:
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.text.encode())}


async def _chunks(
    head: dict[str, Any],
    steps: AsyncGenerator[tuple[int, Step], None],
    n: int,
    with_usage: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a stream."""
    usage: dict[str, Any] = {"usage": None} if with_usage else {}
    n_calls = [0] * n
    n_logged = [0] * n
    has_begun = [False] * n  # whether the chunk with the role was sent
    written: dict[int, Written] = {}

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**head, "choices": [choice], **usage}

    async with aclosing(steps):
        async for index, step in steps:
            if not has_begun[index]:
                has_begun[index] = True
                yield chunk(index, {"role": "assistant", "content": None})
            if isinstance(step, str):
                logged = step.logprobs if isinstance(step, TextPiece) else None
                n_logged[index] += len(logged or ())
                name = "reasoning_content" if isinstance(step, ReasoningPiece) else "content"
                yield chunk(index, {name: step}, logprobs=_logprobs(logged))
            elif isinstance(step, CallPiece):
                delta: dict[str, Any] = {"function": {"arguments": step.text}}
                if not step.text:  # a call begins
                    n_calls[index] += 1
                    opened = {"name": step.name, "arguments": ""}
                    delta = {"id": step.id, "type": "function", "function": opened}
                yield chunk(index, {"tool_calls": [{"index": n_calls[index] - 1, **delta}]})
            elif isinstance(step, Written):
                written[index] = step
                rest = None if step.logprobs is None else step.logprobs[n_logged[index] :]
                more = {"logprobs": _logprobs(rest), "finish_reason": step.finish_reason}
                yield chunk(index, {}, **more, **_probabilities(step))
    if with_usage:
        answers = [written[index] for index in range(n)]
        yield {**head, "choices": [], "usage": usage_of(answers, n)}


CHAT = Endpoint(
    "/v1/chat/completions",
    ChatRequest,
    _chat,
    ChatResponse,
    summary="Answer a conversation",
    input_name="messages",
)
"""OpenAI's chat completions."""
