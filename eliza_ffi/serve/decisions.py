"""``/v1/decisions`` and ``/v1/systemone``: typed questions about an input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, Tag, ValidationInfo, WrapValidator
from typing_extensions import NotRequired, TypedDict

from ..decisions.answers import Decision, decisions_answer, name_of, systemone_answer
from ..decisions.prompts import as_one_input, input_text
from ..decisions.questions import MAX_OPTIONS
from ..errors import ElizaError, InvalidArgumentError
from .endpoint import Endpoint, RequestContext
from .http_error import SYSTEMONE_PATH, HTTPError, invalid
from .questions import NONE, Questions, SystemoneQuestions, read_questions, without_default
from .request_body import BY_TYPE, Body, NoEffect, StringOrArray, by_kind
from .settings import QuestionSet, ServeSettings

Extra: TypeAlias = Literal["allowed_probability", "prompts", "timings"]
"""Additional fields of an answer, which a request names in `include`."""


def _read_input(status: int) -> WrapValidator:
    """Check an input, but keep its JSON. Images, sound and files get the given status."""

    def read(input: Any, check: Callable[[Any], Any], field: ValidationInfo) -> Any:
        if input is not None:
            try:
                input_text(input)
            except InvalidArgumentError as error:
                raise _media(status, str(error), field) from None
        check(input)
        return as_one_input(input)

    return WrapValidator(read)


def _media(status: int, message: str, field: ValidationInfo) -> HTTPError:
    code = "not_supported" if status == 501 else "invalid_value"
    return HTTPError(status, message, code, field.field_name)


_ABOUT = (
    "They may be left out if `model` names a set of questions of the server. Names must be unique; "
    "the default name of a question is its index. The values of options and the labels of levels "
    "must be unique within a question. A choice has exactly one of `choices` and `criteria`, with "
    f"at most {MAX_OPTIONS} options, including `none`; a score, one of `levels` and `criteria`."
)
_LABELS = "Every label of a question of the type `labels` counts as a question."
MAX_INPUTS = 1000  # of a batch


class _Asking(Body):
    """The fields of both formats."""

    model: str | None = None
    include: list[Extra] | None = Field(None, description="additional fields of the answer")


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
    StringOrArray[str, Items],
    _read_input(400),  # OpenAI's status for unsupported input
    Field(description="a string, or messages, calls and their outputs; only text is supported"),
]


class _DecisionsAsking(_Asking):
    questions: Annotated[
        Questions,
        Field(description=f"{_ABOUT} {_LABELS}", json_schema_extra=without_default),
        WrapValidator(read_questions),
    ] = NONE


class BatchRequest(_DecisionsAsking):
    inputs: Annotated[list[Input], Field(min_length=1, max_length=MAX_INPUTS)]


class DecisionsRequest(_DecisionsAsking):
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


class SystemoneRequest(_Asking):
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
        Field(description=_ABOUT, json_schema_extra=without_default),
        WrapValidator(read_questions),
    ] = NONE
    images: NoMedia | None = None
    files: NoMedia | None = None


# ---- Responses ----------------------------------------------------------------------------------

Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _AnswerJson(TypedDict):
    allowed_probability: NotRequired[Probability]
    abstained: NotRequired[bool]
    certified: NotRequired[bool]
    set: NotRequired[list[str | bool]]


class _NamedJson(_AnswerJson):
    name: str | None


class PredicateJson(_NamedJson):
    type: Literal["predicate"]
    probability: Probability


class OptionProbability(TypedDict):
    value: str | bool
    probability: Probability


class ChoiceJson(_NamedJson):
    type: Literal["choice"]
    choice: str | bool
    confidence: Probability
    probabilities: list[OptionProbability]


class LevelProbability(TypedDict):
    value: int
    label: str
    probability: Probability


class ScoreJson(_NamedJson):
    type: Literal["score"]
    score: float
    confidence: Probability
    probabilities: list[LevelProbability]


class MultiLabelJson(_NamedJson):
    type: Literal["labels"]
    labels: list[str | bool]
    probabilities: list[OptionProbability]


class CachedTokens(TypedDict):
    cached_tokens: int
    cache_write_tokens: int


class ReasoningTokens(TypedDict):
    reasoning_tokens: int


class TokenUsage(TypedDict):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Timings(TypedDict):
    forward_passes: int
    decision_ms: float
    queue_ms: float


class _Decided(TypedDict):
    model: str
    calibrated: NotRequired[bool]
    reasoning: NotRequired[str]
    timings: NotRequired[Timings]
    prompts: NotRequired[list[str]]


class DecisionsResponse(_Decided):
    answers: list[Annotated[PredicateJson | ChoiceJson | ScoreJson | MultiLabelJson, BY_TYPE]]
    usage: TokenUsage


class NoulJson(_AnswerJson):
    type: Literal["noul"]
    noul: Probability


class CriteriaJson(_AnswerJson):
    type: Literal["choice"]
    choice: str
    probabilities: dict[str, Probability]
    confidence: Probability


class CriteriaScoreJson(_AnswerJson):
    type: Literal["score"]
    score: float
    legend: dict[str, str]
    probabilities: dict[str, Probability]
    confidence: Probability


class SystemoneUsage(TypedDict):
    input_tokens: int
    output_tokens: int


class SystemoneResponse(_Decided):
    answers: dict[str, Annotated[NoulJson | CriteriaJson | CriteriaScoreJson, BY_TYPE]]
    usage: SystemoneUsage


# ---- Handlers -----------------------------------------------------------------------------------


async def _decisions(request: DecisionsRequest, context: RequestContext) -> dict[str, Any]:
    return await _answered(request, request.input, context)


async def _answered(
    request: _DecisionsAsking, input: Any, context: RequestContext
) -> dict[str, Any]:
    decision, more = await _decide(request, input, context)
    answers = [decisions_answer(answer) for answer in decision.answers]
    usage = token_usage(decision.usage.input_tokens, decision.usage.cached_tokens)
    return {"answers": answers, "usage": usage, **more}


async def _batch(
    request: BatchRequest, context: RequestContext
) -> AsyncGenerator[dict[str, Any], None]:
    """Answer the questions about each input; yield the answers as they are ready."""
    _asked_set(request, context.settings)  # an error has its own status before the first line
    return _each(request, context)


async def _each(
    request: BatchRequest, context: RequestContext
) -> AsyncGenerator[dict[str, Any], None]:
    # One more decision than the model runs at the same time: its prompt is prepared meanwhile.
    slots = asyncio.Semaphore(context.model.session.decisions_at_once(None) + 1)

    async def answered(index: int, input: Any) -> dict[str, Any]:
        async with slots:
            try:
                return {"index": index, **await _answered(request, input, context)}
            except ElizaError as error:
                http_error = context.http_error(error)
                if http_error is None:
                    raise
                return {"index": index, **http_error.body()}

    tasks = [asyncio.ensure_future(answered(*each)) for each in enumerate(request.inputs)]
    try:
        for ready in asyncio.as_completed(tasks):
            yield await ready
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _systemone(request: SystemoneRequest, context: RequestContext) -> dict[str, Any]:
    try:
        decision, more = await _decide(request, request.state, context)
    except InvalidArgumentError as error:
        if error.argument != "input" or request.state is not None:
            raise
        expected = "expected a string, an object or an array for this model"
        raise invalid("state", f"{expected}, got null") from error
    answers = {
        name_of(answer.name, i): systemone_answer(answer)
        for i, answer in enumerate(decision.answers)
    }
    usage = {"input_tokens": decision.usage.input_tokens, "output_tokens": 0}
    return {"answers": answers, "usage": usage, **more}


async def _decide(
    request: _DecisionsAsking | SystemoneRequest, input: Any, context: RequestContext
) -> tuple[Decision, dict[str, Any]]:
    """Answer the questions of a request; return also the other fields of the response."""
    include = request.include or ()
    asked = _asked_set(request, context.settings)
    questions: Any = asked.questions
    decision = await context.model.decide(
        input,
        questions,
        **asked.asking,
        allowed_probability="allowed_probability" in include,
        timeout=context.deadline.left,
    )
    context.metrics.count_decision(questions, decision)
    if asked.recent is not None:
        asked.recent.add(decision)
    more: dict[str, Any] = {"model": asked.name}
    if decision.reasoning is not None:
        more["reasoning"] = decision.reasoning
    if request.questions is None:
        more["calibrated"] = asked.is_calibrated
    if "timings" in include:
        more["timings"] = {
            "forward_passes": decision.usage.forward_passes,
            "decision_ms": round(decision.usage.seconds * 1e3, 3),
            "queue_ms": round(context.waited * 1e3, 3),
        }
    if "prompts" in include:
        more["prompts"] = await context.model.decision_prompts(input, questions, **asked.asking)
    return decision, more


def _asked_set(
    request: _DecisionsAsking | SystemoneRequest, settings: ServeSettings
) -> QuestionSet:
    known = settings.sets.get(request.model or "")
    if request.questions is not None:
        if known is not None:
            raise invalid("questions", f"the set {known.name!r} has its own; leave them out")
        questions: Any = request.questions  # read_questions has read them
        return QuestionSet(settings.name, questions, settings.asking)
    if known is None:
        names = ", ".join(map(repr, settings.sets))
        choose = f", or `model` must name a set of questions: {names}" if names else ""
        raise invalid("questions", f"this field is missing{choose}")
    return known


def token_usage(n_input: int, n_cached: int, n_output: int = 0, n_reasoning: int = 0) -> TokenUsage:
    """Return the usage of a request in OpenAI's newer form."""
    # Every input token that was not in the KV cache has been written to it.
    details: CachedTokens = {"cached_tokens": n_cached, "cache_write_tokens": n_input - n_cached}
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
    DecisionsResponse,
    summary="Answer questions, in the format of OpenAI",
    input_name="input",
    decides=True,
)
"""OpenAI's format, extended by questions of the type `labels`."""

BATCH = Endpoint(
    "/v1/decisions/batch",
    BatchRequest,
    _batch,
    DecisionsResponse,
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
    SystemoneResponse,
    summary="Answer questions, in the format of llama-server",
    input_name="state",
    decides=True,
)
"""The format of llama-server and other servers."""
