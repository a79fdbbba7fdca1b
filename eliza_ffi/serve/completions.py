"""``/v1/completions``: text after a prompt, without a chat template; ``/v1/embeddings``."""

from __future__ import annotations

import asyncio
import base64
import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag
from typing_extensions import NotRequired, TypedDict

from ..errors import InvalidArgumentError
from ..session.requests import prompt_tokens
from ..session.results import TextPiece, TokenLogprob
from ..session.session import Session
from .chat import ChatUsage
from .endpoint import Endpoint, HandlerResult, RequestContext
from .http_error import invalid
from .request_body import Body, NoEffect
from .text import Answer, AnswerRequest, Step, all_answers, chunks, usage_of
from .text_fields import CompletionFields, check_stream_options

DEFAULT_TOKENS = 16  # of `max_tokens`, as at OpenAI
MOST_ANSWERS = 64  # to all prompts of a request
MOST_TOP = 20  # of `logprobs`


def _kind_of_items(value: Any) -> str:
    """Return the tag of a prompt or an input, which depends on the first item of a list."""
    if not isinstance(value, list):
        return "string" if isinstance(value, str) else "none"
    first = value[0] if value else 0
    if isinstance(first, str):
        return "strings"
    return "token lists" if isinstance(first, list) else "tokens"


TokenIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

Texts: TypeAlias = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[TokenIds, Tag("tokens")]
    | Annotated[list[str], Field(max_length=MOST_ANSWERS), Tag("strings")]
    | Annotated[list[TokenIds], Field(max_length=MOST_ANSWERS), Tag("token lists")],
    Discriminator(
        _kind_of_items,
        custom_error_type="unfit",
        custom_error_message="expected a string, token ids, or an array of these",
    ),
]
"""One or several strings, or lists of token ids."""


class CompletionRequest(CompletionFields):
    prompt: Texts
    max_tokens: int | None = Field(None, ge=0, le=2**31 - 1)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MOST_TOP)


class CompletionLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    stop_reason: NotRequired[Literal["context_full"]]
    probabilities: NotRequired[dict[str, float]]


class CompletionResponse(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: ChatUsage


@dataclass(frozen=True)
class _Prompt:
    """A prompt as it was sent, as text and as tokens."""

    sent: str | Sequence[int]
    text: str
    tokens: Sequence[int]


async def _complete(request: CompletionRequest, context: RequestContext) -> HandlerResult:
    check_stream_options(request.stream_options, request.stream)
    session = context.model.session
    distinct = await session.helpers.run(_prompts, session, request.prompt)
    answers_request = _answer_request(request, distinct)
    n = answers_request.n
    prompts = [prompt for prompt in distinct for _ in range(n)]  # of each answer
    if len(prompts) > MOST_ANSWERS:
        raise invalid("n", f"expected at most {MOST_ANSWERS} answers, got {len(prompts)}")
    head = context.head("cmpl", "text_completion")
    scored = await _scored(request, context, distinct)
    if request.max_tokens == 0:
        answers = [Answer("", "length", len(prompt.tokens), 0, 0) for prompt in prompts]
    elif request.stream:
        texts = _StreamedTexts([each.text if request.echo else "" for each in prompts])
        return await chunks(context, answers_request, head, texts.of, request.with_usage)
    else:
        answers = await all_answers(context, answers_request)
    if scored:
        answers = [
            replace(each, logprobs=(*scored[i // n], *(each.logprobs or ())))
            for i, each in enumerate(answers)
        ]
    choices = [
        {"index": i, **_choice(prompt.text + each.text if request.echo else each.text, each)}
        for i, (prompt, each) in enumerate(zip(prompts, answers, strict=True))
    ]
    return {**head, "choices": choices, "usage": usage_of(answers, n)}


async def _scored(
    request: CompletionRequest, context: RequestContext, prompts: Sequence[_Prompt]
) -> list[tuple[TokenLogprob, ...]]:
    """Return the log-probabilities of the prompts' tokens, if they are part of the answer."""
    if not request.echo or request.logprobs is None:
        return []
    score = partial(
        context.model.prompt_logprobs, top=request.logprobs, timeout=context.deadline.left
    )
    return await asyncio.gather(*(score(prompt.tokens) for prompt in prompts))


def _listed(texts: Any) -> list[str | list[int]]:
    """Return one or several strings, or lists of token ids, as a list."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts


def _prompts(session: Session, sent: Any) -> list[_Prompt]:
    prompts = []
    for each in _listed(sent):
        try:
            tokens = [int(token) for token in prompt_tokens(session, each)]
            text = each if isinstance(each, str) else session.detokenize(tokens, True)
        except InvalidArgumentError as error:
            raise invalid("prompt", str(error)) from error
        prompts.append(_Prompt(each, text, tokens))
    return prompts


def _answer_request(request: CompletionRequest, prompts: Sequence[_Prompt]) -> AnswerRequest:
    limit_field, limit = request.limit()
    picks_label = isinstance(limit, tuple)
    has_logprobs = request.logprobs is not None
    if request.max_tokens == 0 and not request.echo:
        raise invalid("max_tokens", "expected at least 1 without echo, got 0")
    if has_logprobs and picks_label:
        raise invalid("logprobs", "not supported with exact choices, which have `probabilities`")
    if has_logprobs and request.echo and request.stream:
        raise invalid("stream", "not supported together with echo and logprobs")
    if request.max_tokens == 0 and request.stream:
        raise invalid("stream", "not supported with max_tokens 0")
    default = 0 if limit is not None else DEFAULT_TOKENS
    return AnswerRequest(
        # The last spaces of a text join the label.
        [prompt.sent if picks_label else prompt.tokens for prompt in prompts],
        n=request.n or 1,
        max_tokens=default if request.max_tokens is None else request.max_tokens,
        sampling=request.sampling(1.0 if limit is None else 0.0),
        stop=request.stops,
        logprobs=request.logprobs,
        limit=limit,
        limit_field=limit_field,
    )


def _choice(text: str, answer: Answer) -> dict[str, Any]:
    return {
        "text": text,
        "logprobs": None if answer.logprobs is None else _logprobs(answer.logprobs, _Offsets()),
        **answer.reasons,
        **answer.named_probabilities,
    }


class _Offsets:
    """Finds where tokens begin in the text of one answer, in characters."""

    def __init__(self, begin: int = 0) -> None:
        self._n_chars = begin
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, entry: TokenLogprob) -> int:
        """Return the index of the first character that a token writes, wholly or in part."""
        begin = self._n_chars
        self._n_chars += len(self._decoder.decode(entry.bytes))
        return begin


def _logprobs(entries: Sequence[TokenLogprob], offsets: _Offsets) -> dict[str, Any]:
    found = [_named(each) for each in entries]
    return {
        "tokens": [name for name, _ in found],
        "token_logprobs": [None if math.isnan(each.logprob) else each.logprob for each in entries],
        "top_logprobs": [top for _, top in found],
        "text_offset": [offsets.next(each) for each in entries],
    }


def _named(entry: TokenLogprob) -> tuple[str, dict[str, float] | None]:
    """Return the name of a token, and the log-probabilities of the alternatives by their names.

    Two tokens may have the same text, for example a letter and the token for its byte. The less
    probable one is named ``token_id:N``, as in vLLM.
    """
    name, top = _name(entry), {}
    for other in entry.top:
        key = _name(other)
        key = f"token_id:{other.token}" if key in top else key
        top[key] = other.logprob
        if other.token == entry.token:
            name = key
    return name, top or None


def _name(entry: TokenLogprob) -> str:
    """Return the text of a token; as bytes, in OpenAI's form, if it is not a whole character."""
    try:
        return entry.bytes.decode() if entry.bytes else entry.text
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.bytes)


class _StreamedTexts:
    """Writes the choices of the chunks of a stream; each answer has a text at its beginning."""

    def __init__(self, beginnings: list[str]) -> None:
        self._beginnings = beginnings
        self._offsets = [_Offsets(len(text)) for text in beginnings]

    def of(self, index: int, step: Step) -> Iterator[dict[str, Any]]:
        text = self._beginnings[index] + (step if isinstance(step, str) else "")
        self._beginnings[index] = ""
        choice: dict[str, Any] = {"text": text, "logprobs": None, "finish_reason": None}
        logged = step.logprobs if isinstance(step, TextPiece) else None
        if isinstance(step, Answer):
            choice, logged = _choice(text, step), step.unsent
        if logged is not None:
            choice["logprobs"] = _logprobs(logged, self._offsets[index])
        yield choice


COMPLETIONS = Endpoint(
    "/v1/completions",
    CompletionRequest,
    _complete,
    CompletionResponse,
    summary="Continue a prompt",
    input_name="prompt",
)
"""OpenAI's completions."""

# ---- Embeddings --------------------------------------------------------------------------------


class EmbeddingsRequest(Body):
    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: NoEffect


class Embedding(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(TypedDict):
    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


async def _embed(request: EmbeddingsRequest, context: RequestContext) -> dict[str, Any]:
    session = context.model.session
    try:
        texts, n_tokens = await session.helpers.run(_texts, session, request.input)
        vectors = await context.deadline.before_end(context.model.embed(texts))
    except InvalidArgumentError as error:
        raise invalid("input", str(error)) from error
    context.metrics.count_tokens(n_tokens, 0)
    is_packed = request.encoding_format == "base64"
    embeddings = [
        base64.b64encode(each.astype("<f4").tobytes()).decode() if is_packed else each.tolist()
        for each in vectors
    ]
    return {
        "object": "list",
        "model": context.settings.name,
        "data": [
            {"object": "embedding", "index": index, "embedding": each}
            for index, each in enumerate(embeddings)
        ],
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def _texts(session: Session, sent: Any) -> tuple[list[str], int]:
    texts, n_tokens = [], 0
    for each in _listed(sent):
        text = each if isinstance(each, str) else session.detokenize(each)
        tokens = session.tokenize(text, True)  # with the tokens that the model adds
        if not isinstance(each, str) and each not in (tokens, session.tokenize(text)):
            raise InvalidArgumentError(
                f"the token ids do not match the tokens of their string {text[:80]!r}; "
                "send the string"
            )
        texts.append(text)
        n_tokens += len(tokens)
    return texts, n_tokens


EMBEDDINGS = Endpoint(
    "/v1/embeddings",
    EmbeddingsRequest,
    _embed,
    EmbeddingsResponse,
    summary="Compute the embeddings of strings",
    input_name="input",
    embeds=True,
)
"""OpenAI's embeddings."""
