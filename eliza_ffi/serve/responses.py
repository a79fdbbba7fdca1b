"""``/v1/responses``: OpenAI's newer form of chat, without stored state."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Tag
from typing_extensions import NotRequired, TypedDict

from ..session.requests import TextPiece
from ..session.tool_calls import CallPiece, ToolCall
from .chat import JsonObjectFormat, TextFormat, chat_writing, token_logprobs
from .decisions import FunctionCallItem, RefusalPart, TextPart, with_type
from .endpoint import Endpoint, Events, Running
from .fields import TEXT_OR_LIST, Body, NoEffect, by_kind
from .text import Limit, ReasoningPiece, Step, Written, usage_of, write
from .text_fields import JSON_OBJECT, JsonSchema, LimitFields, SamplingFields, limit_of

__all__ = ["RESPONSES", "ResponseJson"]

MOST_LOGPROBS = 20
"""The maximum of `top_logprobs`, as at OpenAI."""

_BY_TYPE = Field(discriminator="type")

# ---- The request --------------------------------------------------------------------------------

TextContent: TypeAlias = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[list[Annotated[TextPart | RefusalPart, _BY_TYPE]], Tag("array")],
    TEXT_OR_LIST,
]


class _ResponseItem(Body):
    id: NoEffect
    status: NoEffect


class TalkItem(_ResponseItem):
    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    content: TextContent
    phase: NoEffect
    probabilities: NoEffect


class CallOutputItem(_ResponseItem):
    type: Literal["function_call_output"]
    call_id: str
    output: TextContent


class ReasoningText(Body):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(_ResponseItem):
    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    summary: NoEffect
    encrypted_content: NoEffect


def _with_type(item: Any) -> Any:
    """Add the type that a message may leave out; reject references, which some clients send."""
    if isinstance(item, dict) and item.get("type") == "item_reference":
        raise ValueError(
            "expected the item itself, got a reference to it: the server stores nothing. "
            "With the AI SDK, set providerOptions.openai.store to false"
        )
    return with_type(item)


TalkItems: TypeAlias = Annotated[
    list[
        Annotated[
            TalkItem | FunctionCallItem | CallOutputItem | ReasoningItem,
            _BY_TYPE,
            BeforeValidator(_with_type),
        ]
    ],
    Field(min_length=1),
]


class FlatSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema = Field(alias="schema")
    name: NoEffect
    description: NoEffect
    strict: NoEffect


class TextConfig(Body):
    format: Annotated[TextFormat | JsonObjectFormat | FlatSchemaFormat, _BY_TYPE] | None = None
    verbosity: Literal["medium"] | None = None


class FlatTool(Body):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: NoEffect


class FlatName(Body):
    type: Literal["function"]
    name: str


class Reasoning(Body):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: None = None
    generate_summary: None = None


class ObfuscationOptions(Body):
    include_obfuscation: NoEffect


class ResponseRequest(SamplingFields, LimitFields):
    input: Annotated[
        Annotated[str, Tag("string")] | Annotated[TalkItems, Tag("array")], TEXT_OR_LIST
    ]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextConfig | None = None
    tools: list[FlatTool] | None = None
    tool_choice: (
        Annotated[
            Annotated[Literal["auto", "none", "required"], Tag("string")]
            | Annotated[FlatName, Tag("object")],
            by_kind("string", "object"),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="other variables of the chat template, such as enable_thinking"
    )
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = (
        None
    )
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    stream: bool | None = None
    stream_options: ObfuscationOptions | None = None
    store: Literal[False] | None = None
    previous_response_id: None = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    metadata: dict[str, str] | None = None
    user: NoEffect
    service_tier: NoEffect
    prompt_cache_key: NoEffect
    prompt_cache_options: NoEffect
    prompt_cache_retention: NoEffect
    safety_identifier: NoEffect

    def limit(self) -> Limit | None:
        """Return the limit on the answer."""
        format = None if self.text is None else self.text.format
        formatted: Limit | None = None
        if isinstance(format, FlatSchemaFormat):
            formatted = format.json_schema
        elif isinstance(format, JsonObjectFormat):
            formatted = format.json_schema or JSON_OBJECT
        return limit_of(self, formatted)

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation as chat templates expect it."""
        talk: list[dict[str, Any]] = []
        if self.instructions is not None:
            talk.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*talk, {"role": "user", "content": self.input}]
        thought: dict[str, Any] = {}  # for the assistant's next message
        for item in self.input:
            if isinstance(item, ReasoningItem):
                text = "\n".join(part.text for part in item.content or ())
                thought = {"reasoning_content": text} if text else {}
            elif isinstance(item, FunctionCallItem):
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                if talk and talk[-1].get("tool_calls"):
                    talk[-1]["tool_calls"].append(call)
                else:
                    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
                    talk.append({**turn, **thought})
                    thought = {}
            elif isinstance(item, CallOutputItem):
                content = _text(item.output)
                talk.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
            else:
                role = "system" if item.role == "developer" else item.role
                given = thought if role == "assistant" else {}
                talk.append({"role": role, "content": _text(item.content), **given})
                thought = {}
        return talk


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.refusal if part.type == "refusal" else part.text for part in content)


# ---- The response -------------------------------------------------------------------------------


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class OutputReasoning(TypedDict):
    type: Literal["reasoning"]
    id: str
    status: Literal["completed", "incomplete"]
    summary: list[Any]
    content: list[ReasoningText]


class OutputMessage(TypedDict):
    type: Literal["message"]
    id: str
    status: Literal["completed", "incomplete"]
    role: Literal["assistant"]
    content: list[OutputText]
    probabilities: NotRequired[dict[str, float]]


class OutputCall(TypedDict):
    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["completed"]


class ResponseTokens(TypedDict):
    cached_tokens: NotRequired[int]
    cache_write_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]


class ResponseTokenUsage(TypedDict):
    input_tokens: int
    input_tokens_details: ResponseTokens
    output_tokens: int
    output_tokens_details: ResponseTokens
    total_tokens: int


class IncompleteDetails(TypedDict):
    reason: Literal["max_output_tokens"]


class ResponseJson(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[Annotated[OutputReasoning | OutputMessage | OutputCall, _BY_TYPE]]
    usage: ResponseTokenUsage
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    tool_choice: Any
    tools: list[Any]
    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None
    previous_response_id: None
    store: Literal[False]
    truncation: Literal["disabled"]


# ---- The handler --------------------------------------------------------------------------------


async def _respond(request: ResponseRequest, running: Running) -> dict[str, Any] | Events:
    named = request.tool_choice
    wants_logprobs = "message.output_text.logprobs" in (request.include or ())
    writing = await chat_writing(
        running,
        request.messages(),
        limit=request.limit(),
        tools=[each.model_dump(exclude_none=True) for each in request.tools or ()],
        tool_choice=named.name if isinstance(named, FlatName) else named or "auto",
        is_parallel=request.parallel_tool_calls is not False,
        variables=request.chat_template_kwargs,
        effort=None if request.reasoning is None else request.reasoning.effort,
        sampling=request.sampling,
        max_tokens=request.max_output_tokens or 0,
        logprobs=(request.top_logprobs or 0) if wants_logprobs else None,
        splits_reasoning=True,
    )
    response = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": running.settings.name,
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "tool_choice": named.model_dump() if isinstance(named, FlatName) else named or "auto",
        "tools": [each.model_dump() for each in request.tools or ()],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_output_tokens,
        "previous_response_id": None,
        "store": False,
        "truncation": "disabled",
    }
    steps = write(running, writing, with_steps=bool(request.stream))
    events = _events(response, steps)
    if request.stream:
        return Events(_numbered(events), are_named=True)
    async with aclosing(events):
        async for event in events:
            if event["type"] in ("response.completed", "response.incomplete"):
                return dict(event["response"])
    raise AssertionError("the last event has the response")


async def _numbered(
    events: AsyncGenerator[dict[str, Any], None],
) -> AsyncGenerator[dict[str, Any], None]:
    """Add a sequence number to each event."""
    number = 0
    async with aclosing(events):
        async for event in events:
            yield {**event, "sequence_number": number}
            number += 1


async def _events(
    response: dict[str, Any], steps: AsyncGenerator[Step, None]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a response. The first one waits for the first step."""
    has_begun = False
    output: list[dict[str, Any]] = []
    arguments = ""  # of the call that is being written
    thought: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    async with aclosing(steps):
        async for step in steps:
            if not has_begun:
                has_begun = True
                yield {"type": "response.created", "response": response}
                yield {"type": "response.in_progress", "response": response}
            if isinstance(step, CallPiece):
                arguments = arguments + step.text if step.text else ""
                yield _call_event(step, len(output))
                continue
            if isinstance(step, ToolCall):
                item = {**_call_item(step), "arguments": arguments}
                for event in _end_of_call(item, len(output)):
                    yield event
                output.append(item)
                continue
            if isinstance(step, ReasoningPiece) or (isinstance(step, Written) and step.reasoning):
                if thought is None:
                    thought = _reasoning_item()
                    added = {"output_index": 0, "item": thought}
                    yield {"type": "response.output_item.added", **added}
                if isinstance(step, ReasoningPiece):
                    delta = {"delta": step, **_place(thought, 0)}
                    yield {"type": "response.reasoning_text.delta", **delta}
                    thought = _reasoning_item(thought, step)
                    continue
            if thought is not None and not output:
                for event in _end_of_reasoning(thought, step):
                    yield event
                output.append(event["item"])
            place = len(output)
            if message is None and _is_message(step):
                message = _message_item("in_progress")
                yield {"type": "response.output_item.added", "output_index": place, "item": message}
                part = {"part": _part(""), **_place(message, place)}
                yield {"type": "response.content_part.added", **part}
            if isinstance(step, str):
                assert message is not None
                logprobs = step.logprobs if isinstance(step, TextPiece) else None
                logged = token_logprobs(logprobs or ())
                delta = {"delta": step, "logprobs": logged, **_place(message, place)}
                yield {"type": "response.output_text.delta", **delta}
                continue
            if message is not None:
                for event in _end_of_message(message, place, step):
                    yield event
                output.append(event["item"])
            if not output:  # the calls, unless `steps` has yielded them
                output += map(_call_item, step.calls)
            is_whole = step.finish_reason != "length"
            status = "completed" if is_whole else "incomplete"
            usage = usage_of([step], 1, "input", "output")
            n_written = step.prompt_tokens - step.cached_tokens
            usage["input_tokens_details"]["cache_write_tokens"] = n_written
            whole = {**response, "status": status, "output": output, "usage": usage}
            if not is_whole:
                whole["incomplete_details"] = {"reason": "max_output_tokens"}
            yield {"type": f"response.{status}", "response": whole}


def _message_item(status: str) -> dict[str, Any]:
    id = f"msg_{uuid.uuid4().hex}"
    return {"type": "message", "id": id, "status": status, "role": "assistant", "content": []}


def _part(text: str, logprobs: Any = ()) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def _place(item: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the fields that locate the only part of an item."""
    return {"item_id": item["id"], "output_index": index, "content_index": 0}


def _is_message(step: str | Written) -> bool:
    """Return whether a step belongs to a message, and not only to a call or to the reasoning."""
    if isinstance(step, str):
        return True
    return bool(step.text) or not (step.is_calls or step.reasoning)


def _end_of_message(message: dict[str, Any], index: int, written: Written) -> list[dict[str, Any]]:
    """Return the events at the end of a message; the last one has the message."""
    logprobs = token_logprobs(written.logprobs or ())
    part = _part(written.text, logprobs)
    status = "incomplete" if written.finish_reason == "length" else "completed"
    item = {**message, "status": status, "content": [part]}
    if written.probabilities is not None:
        item["probabilities"] = {name or "": p for name, p in written.probabilities.items()}
    place = _place(message, index)
    done = {"text": written.text, "logprobs": logprobs}
    return [
        {"type": "response.output_text.done", **done, **place},
        {"type": "response.content_part.done", "part": part, **place},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _reasoning_item(before: dict[str, Any] | None = None, text: str = "") -> dict[str, Any]:
    """Return a new item, or an item with more text."""
    if before is None:
        id = f"rs_{uuid.uuid4().hex}"
        return {
            "type": "reasoning",
            "id": id,
            "status": "in_progress",
            "summary": [],
            "content": [],
        }
    whole = "".join(part["text"] for part in before["content"]) + text
    return {**before, "content": [{"type": "reasoning_text", "text": whole}]}


def _end_of_reasoning(thought: dict[str, Any], step: str | Written) -> list[dict[str, Any]]:
    """Return the events at the end of the reasoning; the last one has the item."""
    is_cut = False
    if isinstance(step, Written):
        thought = _reasoning_item({**thought, "content": []}, step.reasoning or "")
        is_cut = step.finish_reason == "length" and not step.text
    item = {**thought, "status": "incomplete" if is_cut else "completed"}
    text = item["content"][0]["text"]
    return [
        {"type": "response.reasoning_text.done", "text": text, **_place(item, 0)},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


def _call_item(call: ToolCall | CallPiece) -> dict[str, Any]:
    """Return the item of a call, which may have just begun."""
    arguments, status = "", "in_progress"
    if isinstance(call, ToolCall):
        arguments, status = json.dumps(call.arguments, ensure_ascii=False), "completed"
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    }


def _call_event(piece: CallPiece, index: int) -> dict[str, Any]:
    """Return the event for the beginning of a call, or for a piece of its arguments."""
    item = _call_item(piece)
    if not piece.text:
        return {"type": "response.output_item.added", "output_index": index, "item": item}
    name = "response.function_call_arguments.delta"
    return {"type": name, "delta": piece.text, "item_id": item["id"], "output_index": index}


def _end_of_call(item: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Return the events at the end of a call."""
    done = {"arguments": item["arguments"], "name": item["name"], "item_id": item["id"]}
    name = "response.function_call_arguments.done"
    return [
        {"type": name, "output_index": index, **done},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


RESPONSES = Endpoint(
    "/v1/responses",
    ResponseRequest,
    _respond,
    ResponseJson,
    summary="Answer a conversation, in the form of OpenAI's Responses",
    input_name="input",
)
"""OpenAI's responses."""
