"""``/v1/responses``: OpenAI's newer form of chat, without stored state."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Tag

from ..session.results import ReasoningPiece, TextPiece
from ..session.tool_calls import CallPiece, ToolCall
from .chat import (
    ConversationFields,
    Effort,
    Format,
    FunctionDefinition,
    FunctionName,
    FunctionType,
    Mode,
    NamedSchema,
    OtherTool,
    Tool,
    ToolChoice,
    Verbosity,
    allowed_tools,
    by_tool_type,
    conversation_request,
    token_logprobs,
)
from .decisions import (
    FunctionCallItem,
    Item,
    Message,
    RefusalPart,
    TextPart,
    token_usage,
    with_type,
)
from .endpoint import Endpoint, HandlerResult, RequestContext
from .request_body import BY_TYPE, Body, NoEffect, StringOrArray
from .text import Answer, Step, started
from .text_fields import CallArguments, MaxTokens, check_stream_options

# ---- The request --------------------------------------------------------------------------------

Summary: TypeAlias = Literal["auto", "concise", "detailed"]
Include: TypeAlias = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
"""OpenAI's values of `include`. Only log-probabilities can occur here; the other parts belong to
items that no answer has."""

TextContent: TypeAlias = StringOrArray[str, list[Annotated[TextPart | RefusalPart, BY_TYPE]]]


class TalkItem(Message):
    content: TextContent
    probabilities: NoEffect


class CallItem(FunctionCallItem):
    arguments: CallArguments
    namespace: str | None = None


class CallOutputItem(Item):
    type: Literal["function_call_output"]
    call_id: str
    output: TextContent


class ReasoningText(Body):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Item):
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
            TalkItem | CallItem | CallOutputItem | ReasoningItem,
            BY_TYPE,
            BeforeValidator(_with_type),
        ]
    ],
    Field(min_length=1),
]


class FlatSchemaFormat(NamedSchema):
    type: Literal["json_schema"]
    name: NoEffect


class TextConfig(Body):
    format: Format[FlatSchemaFormat] | None = None
    verbosity: Verbosity | None = Field(None, description="accepted, without effect")


class FlatTool(FunctionDefinition, FunctionType):
    """A tool; pydantic checks the fields of the last class first."""

    defer_loading: NoEffect


class Namespace(Body):
    """Functions with a common name, which begins the names that the model uses for them."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: list[Annotated[Tool[FlatTool], by_tool_type("function")]]


def _qualified(namespace: str | None, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


class FlatName(FunctionName, FunctionType):
    """The name of a tool that must be called."""


class AllowedFlatFunctions(Body):
    """A choice that leaves out all other tools."""

    type: Literal["allowed_tools"]
    mode: Mode
    tools: list[FlatName] = Field(min_length=1)


class Reasoning(Body):
    effort: Effort | None = None
    summary: Summary | None = Field(None, description="accepted, without effect")
    generate_summary: Summary | None = Field(None, description="accepted, without effect")


class ObfuscationOptions(Body):
    include_obfuscation: NoEffect


class ResponseRequest(ConversationFields):
    input: StringOrArray[str, TalkItems]
    instructions: str | None = None
    max_output_tokens: MaxTokens | None = None
    text: TextConfig | None = None
    tools: (
        list[
            Annotated[
                Tool[FlatTool] | Annotated[Namespace, Tag("a namespace")],
                by_tool_type("function", "namespace"),
            ]
        ]
        | None
    ) = None
    tool_choice: ToolChoice[FlatName | AllowedFlatFunctions] | None = None
    reasoning: Reasoning | None = None
    include: list[Include] | None = None
    max_tool_calls: NoEffect
    stream_options: ObfuscationOptions | None = None
    previous_response_id: None = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    metadata: dict[str, str] | None = None

    def _tools(self) -> Iterator[tuple[str | None, FlatTool | OtherTool]]:
        """Return all tools with their namespaces."""
        for tool in self.tools or ():
            if isinstance(tool, Namespace):
                yield from ((tool.name, each) for each in tool.tools)
            else:
                yield None, tool

    @property
    def ignored_tools(self) -> Sequence[str]:
        return [
            _qualified(namespace, tool.called)
            for namespace, tool in self._tools()
            if isinstance(tool, OtherTool)
        ]

    def functions(self) -> list[tuple[str | None, FlatTool]]:
        """Return all functions with their namespaces."""
        return [
            (namespace, tool) for namespace, tool in self._tools() if isinstance(tool, FlatTool)
        ]

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
            elif isinstance(item, CallItem):
                name = _qualified(item.namespace, item.name)
                function = {"name": name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                # A call belongs to the text before it: some templates reject two turns in a row.
                last = talk[-1] if talk and talk[-1]["role"] == "assistant" else {}
                if not last or (thought and "tool_calls" not in last):
                    talk.append({"role": "assistant", "content": None, **thought})
                    thought = {}
                talk[-1].setdefault("tool_calls", []).append(call)
            elif isinstance(item, CallOutputItem):
                content = _text(item.output)
                talk.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
            else:
                role = "system" if item.role == "developer" else item.role
                own = thought if role == "assistant" else {}
                talk.append({"role": role, "content": _text(item.content), **own})
                thought = {}
        return talk


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.refusal if part.type == "refusal" else part.text for part in content)


# ---- The handler --------------------------------------------------------------------------------


async def _respond(request: ResponseRequest, context: RequestContext) -> HandlerResult:
    check_stream_options(request.stream_options, request.stream)
    choice: Any = request.tool_choice
    named = choice.model_dump() if isinstance(choice, FlatName) else None
    functions = [
        (_qualified(space, tool.name), (space, tool)) for space, tool in request.functions()
    ]
    tools = [{**tool.model_dump(exclude_none=True), "name": name} for name, (_, tool) in functions]
    shown_choice: Any = named or choice or "auto"
    if isinstance(choice, AllowedFlatFunctions):
        tools = allowed_tools(tools, [each.name for each in choice.tools])
        shown_choice, choice = choice.model_dump(), choice.mode
    answer_request = await conversation_request(
        context,
        request,
        request.messages(),
        limited=request.limit(text=request.text.format if request.text else None),
        tools=tools,
        tool_choice={"type": "function", "function": named} if named else choice,
        effort=request.reasoning.effort if request.reasoning else None,
        max_tokens=request.max_output_tokens,
        length_field="max_output_tokens",
        has_logprobs="message.output_text.logprobs" in (request.include or ()),
    )
    response = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": context.settings.name,
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "tool_choice": shown_choice,
        "tools": [each.model_dump() for each in request.tools or ()],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_output_tokens,
        "previous_response_id": None,
        "store": False,
        "truncation": "disabled",
    }
    (steps,) = await started(context, answer_request, with_steps=bool(request.stream))
    events = _events(
        response, steps, {name: (space, tool.name) for name, (space, tool) in functions}
    )
    if request.stream:
        return events
    async with aclosing(events):
        async for event in events:
            if event["type"] in ("response.completed", "response.incomplete"):
                return dict(event["response"])
    raise AssertionError("the last event has the response")


async def _events(
    response: dict[str, Any],
    steps: AsyncGenerator[Step, None],
    functions: Mapping[str, tuple[str | None, str]],
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a response. The first one waits for the first step.

    `functions` has the namespace and the name of each function, by the name that the model uses.
    """
    output: _Output | None = None
    async with aclosing(steps):
        async for step in steps:
            if output is None:
                output = _Output(functions)
                yield {"type": "response.created", "response": response}
                yield {"type": "response.in_progress", "response": response}
            for event in output.take(step):
                yield event
            if isinstance(step, Answer):
                usage = token_usage(
                    step.prompt_tokens,
                    step.cached_tokens,
                    step.generated_tokens,
                    step.reasoning_tokens,
                )
                status = _status(step.finish_reason == "length")
                whole = {**response, "status": status, "output": output.items, "usage": usage}
                if status == "incomplete":
                    whole["incomplete_details"] = {"reason": "max_output_tokens"}
                yield {"type": f"response.{status}", "response": whole}


class _Output:
    """Collects the items of a response, and returns the events for them."""

    def __init__(self, functions: Mapping[str, tuple[str | None, str]]) -> None:
        self._functions = functions
        self.items: list[dict[str, Any]] = []  # the finished ones
        self._item: dict[str, Any] = {}  # the item that is being written
        self._text = ""  # of this item

    def take(self, step: Step) -> Iterator[dict[str, Any]]:
        if isinstance(step, CallPiece | ToolCall):
            yield from self._take_call(step)
        elif isinstance(step, ReasoningPiece):
            yield from self._begin("reasoning")
            yield {"type": "response.reasoning_text.delta", "delta": step, **self._part()}
            self._text += step
        elif isinstance(step, str):
            yield from self._begin("message")
            logprobs = step.logprobs if isinstance(step, TextPiece) else None
            delta = {"delta": step, "logprobs": token_logprobs(logprobs or ())}
            yield {"type": "response.output_text.delta", **delta, **self._part()}
        else:
            yield from self._end(step)

    def _take_call(self, step: CallPiece | ToolCall) -> Iterator[dict[str, Any]]:
        name = "response.function_call_arguments"
        item = self._call_item(step)
        location = {"item_id": item["id"], "output_index": len(self.items)}
        if isinstance(step, ToolCall):
            item["arguments"] = self._text
            yield {
                "type": f"{name}.done",
                "arguments": self._text,
                "name": item["name"],
                **location,
            }
            yield self._done(item)
        elif step.text:
            self._text += step.text
            yield {"type": f"{name}.delta", "delta": step.text, **location}
        else:
            if self._item:
                yield from self._end_reasoning("completed")
            yield self._added(item)

    def _begin(self, kind: str) -> Iterator[dict[str, Any]]:
        """Return the events at the beginning of reasoning or a message, unless it has begun."""
        if self._item.get("type") == kind:
            return
        if self._item:
            yield from self._end_reasoning("completed")
        if kind == "reasoning":
            item = {"id": f"rs_{uuid.uuid4().hex}", "summary": []}
        else:
            item = {"id": f"msg_{uuid.uuid4().hex}", "role": "assistant"}
        yield self._added({"type": kind, **item, "status": "in_progress", "content": []})
        if kind == "message":
            yield {"type": "response.content_part.added", "part": _text_part(""), **self._part()}

    def _end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Return the events at the end of an answer."""
        is_cut = answer.finish_reason == "length"
        if answer.reasoning and not self._item and not self.items:  # it was not streamed
            yield from self._begin("reasoning")
            self._text = answer.reasoning
        if self._item.get("type") == "reasoning":
            is_cut_here = is_cut and not (answer.text or answer.is_calls)
            yield from self._end_reasoning(_status(is_cut_here))
        if answer.text or not (answer.is_calls or answer.reasoning):
            yield from self._begin("message")
        if self._item.get("type") == "message":
            logprobs = token_logprobs(answer.logprobs or ())
            part = _text_part(answer.text, logprobs)
            item = {**self._item, "status": _status(is_cut), "content": [part]}
            location = self._part()
            done = {"text": answer.text, "logprobs": logprobs}
            yield {"type": "response.output_text.done", **done, **location}
            yield {"type": "response.content_part.done", "part": part, **location}
            yield self._done({**item, **answer.named_probabilities})
        if not any(item["type"] == "function_call" for item in self.items):
            self.items += map(self._call_item, answer.calls)  # they were not streamed

    def _end_reasoning(self, status: str) -> Iterator[dict[str, Any]]:
        content = [{"type": "reasoning_text", "text": self._text}]
        yield {"type": "response.reasoning_text.done", "text": self._text, **self._part()}
        yield self._done({**self._item, "status": status, "content": content})

    def _call_item(self, call: ToolCall | CallPiece) -> dict[str, Any]:
        """Return the item of a call, which may have just begun."""
        arguments, status = "", "in_progress"
        if isinstance(call, ToolCall):
            arguments, status = json.dumps(call.arguments, ensure_ascii=False), "completed"
        namespace, name = self._functions[call.name]
        return {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "arguments": arguments,
            "status": status,
        }

    def _added(self, item: dict[str, Any]) -> dict[str, Any]:
        self._item, self._text = item, ""
        return {"type": "response.output_item.added", "output_index": len(self.items), "item": item}

    def _done(self, item: dict[str, Any]) -> dict[str, Any]:
        self._item = {}
        self.items.append(item)
        index = len(self.items) - 1
        return {"type": "response.output_item.done", "output_index": index, "item": item}

    def _part(self) -> dict[str, Any]:
        """Return the fields that locate the only part of the item."""
        return {"item_id": self._item["id"], "output_index": len(self.items), "content_index": 0}


def _text_part(text: str, logprobs: Any = ()) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def _status(is_cut: bool) -> str:
    return "incomplete" if is_cut else "completed"


RESPONSES = Endpoint(
    "/v1/responses",
    ResponseRequest,
    _respond,
    summary="Answer a conversation, in the form of OpenAI's Responses",
    input_name="input",
    named_events=True,
)
"""OpenAI's responses."""
