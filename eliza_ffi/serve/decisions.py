"""``/v1/decisions`` and ``/v1/systemone``: typed questions about an input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, Tag, ValidationInfo, WrapValidator

from ..decisions.answers import Decision, decisions_answer, name_of, systemone_answer
from ..decisions.prompts import as_one_input, input_text
from ..decisions.questions import MAX_OPTIONS
from ..errors import ElizaError, InvalidArgumentError, NotTextError
from .deadline import cancelled
from .endpoint import Endpoint, RequestContext
from .http_error import SYSTEMONE_PATH, HTTPError, invalid
from .questions import (
    NONE,
    Questions,
    SystemoneQuestions,
    check_options,
    read_questions,
    without_default,
)
from .request_body import BY_TYPE, Body, NoEffect, NotBlank, StringOrArray, by_kind, read_fields
from .settings import QuestionSet

Extra: TypeAlias = Literal["allowed_probability", "prompts", "timings"]
"""Additional fields of an answer, which a request names in `include`."""


def _read_input(status: int) -> WrapValidator:
    """Check an input, but keep its JSON. Images, sound and files get the given status."""

    def read(input: Any, check: Callable[[Any], Any], field: ValidationInfo) -> Any:
        if input is not None:
            try:
                input_text(input)
            except NotTextError as error:
                raise _media(status, str(error), field) from None
            except InvalidArgumentError as error:
                raise _media(min(status, 422), str(error), field) from None
        check(input)
        return as_one_input(input)

    return WrapValidator(read)


def _media(status: int, message: str, field: ValidationInfo) -> HTTPError:
    code = "not_supported" if status == 501 else "invalid_value"
    return HTTPError(status, message, code, field.field_name)


_ABOUT = (
    "They may be left out, null or empty if `model` names a set of questions of the server. Names "
    "must be unique; the default name of a question is its index. The values of options and the "
    "labels of levels must be unique within a question. A choice has exactly one of `choices` and "
    f"`criteria`, with at most {MAX_OPTIONS} options, including `none`, or as many as the "
    "server's option --max-options allows; a score, one of `levels` "
    "and `criteria`."
)
_LABELS = "Every label of a question of the type `labels` counts as a question."
MAX_INPUTS = 1000  # of a batch


def _may_be_empty(schema: dict[str, Any]) -> None:
    """Describe questions that may be null or empty, as clients send them that need the field."""
    without_default(schema)
    questions = {key: schema.pop(key) for key in [*schema] if key not in ("title", "description")}
    none = {"type": ["array", "object", "null"], "maxItems": 0, "maxProperties": 0}
    schema["anyOf"] = [questions, none]


class _DecisionFields(Body):
    """The fields of both formats."""

    model: str | None = None
    include: list[Extra] | None = Field(None, description="additional fields of the answer")
    explain: bool = Field(False, description="whether to add the effect of each passage")


# ---- The request of /v1/decisions ---------------------------------------------------------------


class TextPart(Body):
    type: Literal["input_text", "output_text", "text"]
    text: str
    prompt_cache_breakpoint: NoEffect
    annotations: NoEffect
    logprobs: NoEffect


class RefusalPart(Body):
    type: Literal["refusal"]
    refusal: str


class JsonPart(Body):
    type: Literal["input_json"]
    data: Annotated[
        Annotated[dict[str, Any], Tag("object")] | Annotated[list[dict[str, Any]], Tag("array")],
        by_kind("object", "array"),
    ]


Parts: TypeAlias = list[Annotated[TextPart | RefusalPart | JsonPart, BY_TYPE]]
Content: TypeAlias = StringOrArray[str, Parts]


class Item(Body):
    id: NoEffect
    status: NoEffect


class Message(Item):
    type: Literal["message"] = "message"
    role: Literal["user", "developer", "system", "assistant"]
    phase: NoEffect


class MessageItem(Message):
    content: Content
    tool_calls: list[dict[str, Any]] | None = None


class FunctionCallItem(Item):
    type: Literal["function_call"]
    name: str
    arguments: str
    call_id: str
    namespace: NoEffect
    caller: NoEffect


class CustomCallItem(Item):
    type: Literal["custom_tool_call"]
    name: str
    input: str
    call_id: str
    namespace: NoEffect


class OutputItem(Item):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


def with_type(item: Any) -> Any:
    """Add the type that a message in a list of items may leave out."""
    return {"type": "message", **item} if isinstance(item, dict) else item


Items: TypeAlias = Annotated[
    list[
        Annotated[
            MessageItem | FunctionCallItem | CustomCallItem | OutputItem,
            BY_TYPE,
            BeforeValidator(with_type),
        ]
    ],
    Field(min_length=1),
]


Input: TypeAlias = Annotated[
    StringOrArray[NotBlank, Items],
    _read_input(400),  # OpenAI's status for unsupported input
    Field(
        description="a string that is not blank, or messages, calls and their outputs; only text "
        "is supported"
    ),
]


class _QuestionFields(_DecisionFields):
    questions: Annotated[
        Questions,
        Field(description=f"{_ABOUT} {_LABELS}", json_schema_extra=_may_be_empty),
        WrapValidator(read_questions),
    ] = NONE


class OneInput(Body):
    input: Input


class BatchRequest(_QuestionFields):
    # Each input is checked when its turn comes, so that a wrong one has an error of its own.
    inputs: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=MAX_INPUTS,
            description="each as `input` of /v1/decisions; the line of a wrong one has an error",
        ),
    ]


class DecisionsRequest(_QuestionFields):
    input: Input
    prompt_cache_key: NoEffect
    prompt_cache_options: NoEffect
    safety_identifier: NoEffect


# ---- The request of /v1/systemone ---------------------------------------------------------------


def _no_media(value: Any, field: ValidationInfo) -> Any:
    if isinstance(value, list) and value:
        raise _media(501, f"{field.field_name}: only text is supported", field)
    return value


NoMedia: TypeAlias = Annotated[
    list[Any],
    BeforeValidator(_no_media),
    Field(max_length=0, description="must be empty: images and files are answered with status 501"),
]


class SystemoneRequest(_DecisionFields):
    model_config = ConfigDict(extra="allow")  # the specification of this format asks for it
    state: Annotated[
        Annotated[str, Tag("string")]
        | Annotated[dict[str, Any], Tag("object")]
        | Annotated[list[Any], Tag("array")]
        | Annotated[None, Tag("null")],
        by_kind("string", "object", "array", "null"),
        _read_input(501),  # llama-server's status if the model reads only text
        Field(
            description="a string or other JSON; images, sound and files are answered with status "
            "501. Only some decision models accept null"
        ),
    ]
    questions: Annotated[
        SystemoneQuestions,
        Field(description=_ABOUT, json_schema_extra=_may_be_empty),
        WrapValidator(read_questions),
    ] = NONE
    images: NoMedia | None = None
    files: NoMedia | None = None


# ---- Handlers -----------------------------------------------------------------------------------


async def _decisions(request: DecisionsRequest, context: RequestContext) -> dict[str, Any]:
    known = _question_set(request, context)
    return await _answered(request, known, request.input, context, context.place.waited)


async def _answered(
    request: _QuestionFields,
    known: QuestionSet,
    input: Any,
    context: RequestContext,
    waited: float,
    id: str = "",
) -> dict[str, Any]:
    decision, more = await _decide(request, known, input, context, waited, id)
    answers = [decisions_answer(answer) for answer in decision.answers]
    cost = decision.usage
    n_thoughts = cost.reasoning_tokens
    usage = token_usage(cost.input_tokens, cost.cached_tokens, n_thoughts, n_thoughts)
    return {"answers": answers, "usage": usage, **more}


async def _batch(
    request: BatchRequest, context: RequestContext
) -> AsyncGenerator[dict[str, Any], None]:
    """Answer the questions about each input; yield the answers as they are ready."""
    # An error has its own status before the first line. All inputs get the same calibration.
    return _each(request, _question_set(request, context), context)


async def _each(
    request: BatchRequest, known: QuestionSet, context: RequestContext
) -> AsyncGenerator[dict[str, Any], None]:
    # One more decision than the model runs at the same time: its prompt is prepared meanwhile.
    slots = asyncio.Semaphore(context.model.session.decisions_at_once(None) + 1)

    async def answered(index: int, input: Any) -> dict[str, Any]:
        try:
            async with slots:
                input = _one_input(index, input)
                async with part() as waited:
                    id = f"{context.record.id}/{index}"
                    answer = await _answered(request, known, input, context, waited, id)
                    own = {"id": id} if known.name in context.learners else {}  # for labels
                    return {"index": index, **own, **answer}
        except HTTPError as error:
            return {"index": index, **error.body()}
        except ElizaError as error:
            http_error = context.http_error(error)
            if http_error is None:
                raise
            return {"index": index, **http_error.body()}

    async with context.place.in_parts(len(request.inputs)) as part:
        tasks = [asyncio.ensure_future(answered(*each)) for each in enumerate(request.inputs)]
        try:
            for ready in asyncio.as_completed(tasks):
                yield await ready
        finally:
            await cancelled(*tasks)


def _one_input(index: int, input: Any) -> Any:
    """Read one input of a batch. If it is wrong, only its own line has an error."""
    name = f"inputs[{index}]"
    try:
        return read_fields(OneInput, {"input": input}).input
    except HTTPError as error:
        problem = error.message.removeprefix("input")
        message = f"{name}: {problem}" if problem == error.message else f"{name}{problem}"
        raise HTTPError(error.status, message, error.code, "inputs") from None


async def _systemone(request: SystemoneRequest, context: RequestContext) -> dict[str, Any]:
    known = _question_set(request, context)
    try:
        decision, more = await _decide(request, known, request.state, context, context.place.waited)
    except InvalidArgumentError as error:
        if error.argument != "input" or request.state is not None:
            raise
        expected = "expected a string, an object or an array for this model"
        raise invalid("state", f"{expected}, got null") from error
    answers = {
        name_of(answer.name, i): systemone_answer(answer)
        for i, answer in enumerate(decision.answers)
    }
    cost = decision.usage
    usage = {"input_tokens": cost.input_tokens, "output_tokens": cost.reasoning_tokens}
    return {"answers": answers, "usage": usage, **more}


async def _decide(
    request: _QuestionFields | SystemoneRequest,
    question_set: QuestionSet,
    input: Any,
    context: RequestContext,
    waited: float,
    id: str = "",
) -> tuple[Decision, dict[str, Any]]:
    """Answer the questions of a request; return also the other fields of the response.

    `waited` is the time in the queue, in seconds, and `id` is the id of a batch's answer.
    """
    include = request.include or ()
    questions: Any = question_set.questions
    if context.cascade is not None:
        if {*include} & {"allowed_probability", "prompts"}:
            raise invalid("include", "with several models (--then), only timings are available")
        if request.explain:
            raise invalid("explain", "expected false with several models (--then), got true")
        decision = await context.cascade.decide_async(
            input, questions, **question_set.cascade_options, timeout=context.deadline.left
        )
    else:
        decision = await context.model.decide(
            input,
            questions,
            **question_set.decide_options,
            allowed_probability="allowed_probability" in include,
            explain=request.explain,
            timeout=context.deadline.left,
        )
    # The questions of a request would add series without a limit.
    name = None if request.questions else question_set.name
    context.metrics.count_decision(questions, decision, name)
    cost = decision.usage
    context.count_tokens(cost.input_tokens, cost.cached_tokens, cost.reasoning_tokens)
    if question_set.name in context.learners:
        context.learners[question_set.name].remember(id or context.record.id, input_text(input))
    more: dict[str, Any] = {"model": question_set.name}
    if decision.stage is not None:
        more["stage"] = decision.stage
    if decision.reasoning is not None:
        more["reasoning"] = decision.reasoning
    if not request.questions:
        more["calibrated"] = question_set.is_calibrated
    if "timings" in include:
        more["timings"] = {
            "forward_passes": decision.usage.forward_passes,
            "decision_ms": round(decision.usage.seconds * 1e3, 3),
            "queue_ms": round(waited * 1e3, 3),
        }
    if "prompts" in include:
        more["prompts"] = await context.model.decision_prompts(
            input, questions, **question_set.decide_options
        )
    return decision, more


def _question_set(
    request: _QuestionFields | SystemoneRequest, context: RequestContext
) -> QuestionSet:
    known, settings = context.question_set(request.model or ""), context.settings
    if request.questions:
        if known is not None:
            raise invalid("questions", f"the set {known.name!r} has its own; leave them out")
        questions: Any = request.questions  # read_questions has read them
        try:
            check_options(questions, settings.max_options)
        except InvalidArgumentError as error:
            raise invalid("questions", str(error)) from error
        return QuestionSet(settings.name, questions, settings.decide_options)
    if known is None:
        names = ", ".join(map(repr, settings.sets))
        choose = f", or `model` must name a set of questions: {names}" if names else ""
        items = "fields" if isinstance(request.questions, dict) else "items"
        problem = "this field is missing"
        if request.questions is not None:
            problem = f"expected 1 or more {items}, got 0"
        raise invalid("questions", f"{problem}{choose}")
    return known


def token_usage(
    n_input: int, n_cached: int, n_output: int = 0, n_reasoning: int = 0
) -> dict[str, Any]:
    """Return the usage of a request in OpenAI's newer form."""
    # Every input token that was not in the KV cache has been written to it.
    details = {"cached_tokens": n_cached, "cache_write_tokens": n_input - n_cached}
    return {
        "input_tokens": n_input,
        "input_tokens_details": details,
        "output_tokens": n_output,
        "output_tokens_details": {"reasoning_tokens": n_reasoning},
        "total_tokens": n_input + n_output,
    }


DECISIONS = Endpoint(
    "/v1/decisions",
    DecisionsRequest,
    _decisions,
    summary="Answer questions, in the format of OpenAI",
    input_name="input",
    decides=True,
)
"""OpenAI's format, extended by questions of the type `labels`."""

BATCH = Endpoint(
    "/v1/decisions/batch",
    BatchRequest,
    _batch,
    summary="Answer questions about many inputs; each line has the answers about one",
    input_name="inputs",
    decides=True,
    lines=True,
)
"""The format of `DECISIONS`, for many inputs."""

SYSTEMONE = Endpoint(
    SYSTEMONE_PATH,
    SystemoneRequest,
    _systemone,
    summary="Answer questions, in the format of llama-server",
    input_name="state",
    decides=True,
)
"""The format of llama-server and other servers."""
