"""``/v1/chat/completions``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from ..checks import short_repr
from ..session.results import ReasoningPiece, TextPiece, TokenLogprob
from ..session.tool_calls import CallPiece, ToolCall
from .decisions import RefusalPart
from .endpoint import Endpoint, HandlerResult, RequestContext
from .http_error import invalid
from .offered_tools import function_of, offered_tools
from .request_body import BY_TYPE, Body, NoEffect, StringOrArray, StringOrObject
from .text import (
    Answer,
    AnswerRequest,
    Step,
    Talk,
    all_answers,
    chunks,
    default_tokens,
    sampling_defaults,
    usage_of,
)
from .text_fields import (
    JSON_OBJECT,
    CallArguments,
    CompletionFields,
    JsonSchema,
    Limit,
    MaxTokens,
    TextFields,
    check_stream_options,
)

MAX_LOGPROBS = 20  # as at OpenAI

RESERVED = (
    "add_generation_prompt",
    "bos_token",
    "close_reasoning",
    "continue_final_message",
    "eos_token",
    "messages",
    "self",
    "tools",
)
"""Names that are not allowed in `chat_template_kwargs`."""

Verbosity: TypeAlias = Literal["low", "medium", "high"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

# ---- The request --------------------------------------------------------------------------------


class ChatTextPart(Body):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: NoEffect
    cache_control: NoEffect


ChatParts: TypeAlias = list[Annotated[ChatTextPart | RefusalPart, BY_TYPE]]


class FunctionOfCall(Body):
    name: str
    arguments: CallArguments


class FunctionCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionOfCall
    index: NoEffect


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: StringOrArray[str, ChatParts] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[FunctionCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = Field(None, description="vLLM's name of reasoning_content")
    function_call: None = None
    audio: None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message with the role {self.role} needs a content")
        return self

    annotations: NoEffect
    probabilities: NoEffect

    def written(self) -> dict[str, Any]:
        """Return the message as chat templates expect it."""
        content: Any = self.content
        if isinstance(content, list):
            texts = [each.text if each.type == "text" else each.refusal for each in content]
            content = [{"type": "text", "text": text} for text in texts]
        calls = [each.model_dump(exclude={"index"}) for each in self.tool_calls or ()]
        if content is None:
            content = self.refusal or (None if calls else "")
        reasoning = self.reasoning_content
        optional = {
            "tool_calls": calls or None,
            "name": self.name,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning if reasoning is None else reasoning,
        }
        role = "system" if self.role == "developer" else self.role  # templates lack developer
        more = {name: value for name, value in optional.items() if value is not None}
        return {"role": role, "content": content, **more}


class FunctionName(Body):
    name: str


class FunctionDefinition(FunctionName):
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: NoEffect


class FunctionType(Body):
    type: Literal["function"]


class FunctionTool(FunctionType):
    function: FunctionDefinition


FUNCTIONS = ("function", "namespace")
"""The types of tools that are functions, or consist of functions."""


class OtherTool(Body):
    """A tool that is not a function. The server leaves it out, because it cannot run the tool."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": list(FUNCTIONS)}})]

    @property
    def called(self) -> str:
        """The name of the tool, or its type if it has no name."""
        name = (self.model_extra or {}).get("name")
        return name if isinstance(name, str) and name else self.type


def by_tool_type(*functions: str) -> Discriminator:
    """Select the class of a tool by its type: `OtherTool` for all types except functions."""

    def kind(tool: Any) -> str:
        type = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(type, str) and type not in functions:
            return "another tool"
        return "a namespace" if type == "namespace" else "a function"

    return Discriminator(kind)


T = TypeVar("T")
Tool: TypeAlias = Annotated[T, Tag("a function")] | Annotated[OtherTool, Tag("another tool")]
ToolChoice: TypeAlias = StringOrObject[Literal["auto", "none", "required"], Annotated[T, BY_TYPE]]


class NamedFunction(FunctionType):
    function: FunctionName


Mode: TypeAlias = Literal["auto", "required"]


class NamedFunctions(Body):
    mode: Mode
    tools: list[NamedFunction] = Field(min_length=1)


class AllowedFunctions(Body):
    """A choice that leaves out all other tools."""

    type: Literal["allowed_tools"]
    allowed_tools: NamedFunctions


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


def _format_limit(format: Any) -> Limit | None:
    if isinstance(format, JsonObjectFormat):
        return format.json_schema or JSON_OBJECT
    if isinstance(format, JsonSchemaFormat):
        format = format.json_schema
    return format.json_schema if isinstance(format, NamedSchema) else None


Format: TypeAlias = Annotated[
    TextFormat | JsonObjectFormat | T, BY_TYPE, AfterValidator(_format_limit)
]


class ConversationFields(TextFields):
    """The fields of ``/v1/chat/completions`` and ``/v1/responses``."""

    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="other variables of the chat template, such as enable_thinking"
    )
    think: int | None = Field(
        None,
        ge=0,
        le=2**31 - 1,
        description="with tools or a limit on the answer: reason first, with at most this many "
        "tokens",
    )
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    store: Literal[False] | None = None
    client_metadata: NoEffect


class ChatRequest(CompletionFields, ConversationFields):
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    response_format: Format[JsonSchemaFormat] | None = None
    tools: list[Annotated[Tool[FunctionTool], by_tool_type("function")]] | None = None
    tool_choice: ToolChoice[NamedFunction | AllowedFunctions] | None = None
    reasoning_effort: Effort | None = Field(
        None, description="a variable of the chat template; none = enable_thinking is false"
    )
    verbosity: Verbosity | None = Field(None, description="accepted, without effect")
    modalities: list[Literal["text"]] | None = None
    add_generation_prompt: bool | None = Field(
        None, description="false = the conversation does not end with the assistant's turn"
    )
    continue_final_message: bool | None = Field(
        None, description="continue the last message, which must be the assistant's"
    )

    @property
    def ignored_tools(self) -> Sequence[str]:
        return [tool.called for tool in self.tools or () if isinstance(tool, OtherTool)]

    def ending(self) -> dict[str, bool]:
        """Return how the prompt ends, if it does not end with a new turn of the assistant."""
        if not self.continue_final_message:
            is_usual = self.add_generation_prompt in (None, True)
            return {} if is_usual else {"add_generation_prompt": False}
        field = "continue_final_message"
        if self.add_generation_prompt:
            raise invalid(field, "not supported together with add_generation_prompt: true")
        last = self.messages[-1]
        if last.role != "assistant" or last.tool_calls or last.content is None:
            expected = "a last message of the assistant, with a content and without tool calls"
            raise invalid(field, f"expected {expected}, got one of the role {last.role}")
        return {field: True}


# ---- The handler --------------------------------------------------------------------------------


async def _chat(request: ChatRequest, context: RequestContext) -> HandlerResult:
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs", "this field needs logprobs: true")
    check_stream_options(request.stream_options, request.stream)
    named = request.tool_choice
    tools = [
        tool.model_dump(exclude_none=True)
        for tool in request.tools or ()
        if isinstance(tool, FunctionTool)
    ]
    choice: str | dict[str, Any] | None
    if isinstance(named, AllowedFunctions):
        allowed = named.allowed_tools
        tools = allowed_tools(tools, [each.function.name for each in allowed.tools])
        choice = allowed.mode
    else:
        choice = named.model_dump() if isinstance(named, NamedFunction) else named
    answers_request = await conversation_request(
        context,
        request,
        [each.written() for each in request.messages],
        limited=request.limit(response_format=request.response_format),
        tools=tools,
        tool_choice=choice,
        effort=request.reasoning_effort,
        ending=request.ending(),
        has_logprobs=bool(request.logprobs),
        n=request.n or 1,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        length_field="max_completion_tokens" if request.max_completion_tokens else "max_tokens",
        stop=request.stops,
    )
    if request.stream:
        head = context.head("chatcmpl", "chat.completion.chunk")
        return await chunks(context, answers_request, head, _Deltas().of, request.with_usage)
    answers = await all_answers(context, answers_request)
    return {
        **context.head("chatcmpl", "chat.completion"),
        "choices": [*map(_choice, answers, count())],
        "usage": usage_of(answers, answers_request.n),
    }


async def conversation_request(
    context: RequestContext,
    request: ConversationFields,
    messages: list[dict[str, Any]],
    *,
    limited: tuple[str, Limit | None],
    tools: list[dict[str, Any]],
    tool_choice: str | dict[str, Any] | None,
    effort: Effort | None,
    has_logprobs: bool,
    max_tokens: int | None,
    ending: Mapping[str, bool] | None = None,
    **more: Any,
) -> AnswerRequest:
    """Return the request for answers to a conversation.

    The arguments are as in :class:`Talk` and :class:`AnswerRequest`, and None is the server's
    default. An HTTPError names settings that cannot be combined.
    """
    limit_field, limit = limited
    has_tools = bool(tools) and tool_choice != "none"
    named = tool_choice["function"]["name"] if isinstance(tool_choice, dict) else None
    if tool_choice not in (None, "auto", "none") and not tools:
        raise invalid("tool_choice", f"{named or tool_choice!r} needs tools")
    if named is not None:
        allowed_tools(tools, [named])
    if isinstance(limit, tuple) and has_tools:
        raise invalid("tools", "tools cannot be combined with an exact choice; leave one out")
    if has_logprobs and (has_tools or isinstance(limit, tuple)):
        raise invalid("logprobs", "not supported with tools or choices, which have `probabilities`")
    if has_tools and ending:
        raise invalid(next(iter(ending)), "not supported with tools; set tool_choice to none")
    if has_tools:
        tools = await offered_tools(context, tools, messages, named)
    think, settings = request.think or 0, context.settings
    if think and not (has_tools or limit is not None):
        raise invalid("think", "this field needs tools or a limit on the answer")
    if think and ending:
        raise invalid("think", f"not supported together with {next(iter(ending))}")
    if think and effort == "none":
        raise invalid("think", "not supported together with a reasoning effort of none")
    return AnswerRequest(
        talk=Talk(
            messages,
            template_variables(request.chat_template_kwargs or {}, effort),
            ending or {},
            tools if has_tools else [],
            tool_choice or "auto",
            request.parallel_tool_calls is not False,
            without_reasoning=effort == "none",
            think=think,
        ),
        max_tokens=default_tokens(settings, limit) if max_tokens is None else max_tokens,
        sampling=request.sampling(sampling_defaults(settings, limit is None and not has_tools)),
        logprobs=(request.top_logprobs or 0) if has_logprobs else None,
        limit=limit,
        limit_field=limit_field,
        **more,
    )


def allowed_tools(tools: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the tools with the given names; raise an HTTPError if one is missing."""
    known = [function_of(tool)["name"] for tool in tools]
    for name in names:
        if name not in known:
            expected = f"expected the name of a tool ({', '.join(known):.200})"
            raise invalid("tool_choice", f"{expected}, got {short_repr(name)}")
    return [tool for tool, name in zip(tools, known, strict=True) if name in names]


def template_variables(variables: dict[str, Any], effort: Effort | None) -> dict[str, Any]:
    for name in RESERVED:
        if name in variables:
            raise invalid("chat_template_kwargs", f"{name} cannot be set")
    if effort is None:
        return variables
    if effort == "none":
        return {"enable_thinking": False, **variables}
    return {"reasoning_effort": effort, **variables}


# ---- Answers ------------------------------------------------------------------------------------


def _choice(answer: Answer, index: int) -> dict[str, Any]:
    content = None if answer.is_calls else answer.text
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(each) for each in answer.calls]
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs(answer.logprobs),
        **answer.reasons,
        **answer.named_probabilities,
    }


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": call.id, "type": "function", "function": function}


def _logprobs(entries: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
    return None if entries is None else {"content": token_logprobs(entries), "refusal": None}


def token_logprobs(entries: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    return [
        {**_token(each), "top_logprobs": [_token(other) for other in each.top]} for each in entries
    ]


def _token(entry: TokenLogprob) -> dict[str, Any]:
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.bytes)}


class _Deltas:
    """Writes the choices of the chunks of a stream."""

    def __init__(self) -> None:
        self._n_calls: dict[int, int] = {}  # of the answers that have begun

    def of(self, index: int, step: Step) -> Iterator[dict[str, Any]]:
        if index not in self._n_calls:
            self._n_calls[index] = 0
            yield _delta({"role": "assistant", "content": None})
        if isinstance(step, str):
            name = "reasoning_content" if isinstance(step, ReasoningPiece) else "content"
            logprobs = step.logprobs if isinstance(step, TextPiece) else None
            yield _delta({name: step}, logprobs=_logprobs(logprobs))
        elif isinstance(step, CallPiece):
            call: dict[str, Any] = {"function": {"arguments": step.text}}
            if not step.text:  # a call begins
                self._n_calls[index] += 1
                opened = {"name": step.name, "arguments": ""}
                call = {"id": step.id, "type": "function", "function": opened}
            yield _delta({"tool_calls": [{"index": self._n_calls[index] - 1, **call}]})
        elif isinstance(step, Answer):
            ended = {"logprobs": _logprobs(step.unsent), **step.reasons}
            yield _delta({}, **ended, **step.named_probabilities)


def _delta(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"delta": delta, "logprobs": None, "finish_reason": None, **more}


CHAT = Endpoint(
    "/v1/chat/completions",
    ChatRequest,
    _chat,
    summary="Answer a conversation",
    input_name="messages",
)
"""OpenAI's chat completions."""
