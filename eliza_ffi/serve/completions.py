"""``/v1/completions``: text after a prompt, without a chat template; ``/v1/embeddings``."""

from __future__ import annotations

import base64
import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from ..errors import InvalidArgumentError
from ..session.requests import prompt_tokens
from ..session.results import TextPiece, TokenLogprob
from ..session.session import Session
from .deadline import all_of
from .endpoint import Endpoint, HandlerResult, RequestContext, item_name
from .http_error import invalid
from .request_body import Body, NoEffect
from .settings import ServeSettings
from .text import (
    Answer,
    AnswerRequest,
    Step,
    all_answers,
    chunks,
    default_tokens,
    sampling_defaults,
    usage_of,
)
from .text_fields import CompletionFields, check_stream_options

DEFAULT_TOKENS = 16  # of `max_tokens`, as at OpenAI
MAX_ANSWERS = 64  # to all prompts of a request
MAX_TOP = 20  # of `logprobs`
MAX_TEXTS = 2048  # of a request for embeddings, as at OpenAI


def _kind_of_items(value: Any) -> str:
    """Return the tag of a prompt or an input, which depends on the first item of a list."""
    if not isinstance(value, list):
        return "string" if isinstance(value, str) else "none"
    first = value[0] if value else 0
    if isinstance(first, str):
        return "strings"
    return "token lists" if isinstance(first, list) else "tokens"


TokenIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

_BY_FIRST_ITEM = Discriminator(
    _kind_of_items,
    custom_error_type="unfit",
    custom_error_message="expected a string, token ids, or an array of these",
)

Prompts: TypeAlias = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[TokenIds, Tag("tokens")]
    | Annotated[list[str], Field(max_length=MAX_ANSWERS), Tag("strings")]
    | Annotated[list[TokenIds], Field(max_length=MAX_ANSWERS), Tag("token lists")],
    _BY_FIRST_ITEM,
]
"""One or several strings, or lists of token ids, each with an answer of its own."""


class CompletionRequest(CompletionFields):
    prompt: Prompts
    max_tokens: int | None = Field(None, ge=0, le=2**31 - 1)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)


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
    answers_request = _answer_request(context.settings, request, distinct)
    n = answers_request.n
    prompts = [prompt for prompt in distinct for _ in range(n)]  # of each answer
    if len(prompts) > MAX_ANSWERS:
        raise invalid("n", f"expected at most {MAX_ANSWERS} answers, got {len(prompts)}")
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
        {"index": i, **_whole_choice(prompt.text if request.echo else "", each)}
        for i, (prompt, each) in enumerate(zip(prompts, answers, strict=True))
    ]
    return {**head, "choices": choices, "usage": usage_of(answers, n)}


async def _scored(
    request: CompletionRequest, context: RequestContext, prompts: Sequence[_Prompt]
) -> list[tuple[TokenLogprob, ...]]:
    """Return the log-probabilities of the prompts' tokens, if they are part of the answer."""
    if not request.echo or request.logprobs is None:
        return []
    top = request.logprobs

    async def scored(prompt: _Prompt) -> tuple[TokenLogprob, ...]:
        async with part():
            score = context.model.prompt_logprobs
            found = await score(prompt.tokens, top=top, timeout=context.deadline.left)
            context.count_tokens(len(found), 0)
            return found

    async with context.place.in_parts(len(prompts)) as part:
        return await all_of(map(scored, prompts))


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


def _answer_request(
    settings: ServeSettings, request: CompletionRequest, prompts: Sequence[_Prompt]
) -> AnswerRequest:
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
    default = default_tokens(settings, limit) or (DEFAULT_TOKENS if limit is None else 0)
    return AnswerRequest(
        # The last spaces of a text join the label.
        [prompt.sent if picks_label else prompt.tokens for prompt in prompts],
        n=request.n or 1,
        max_tokens=default if request.max_tokens is None else request.max_tokens,
        sampling=request.sampling(sampling_defaults(settings, limit is None)),
        stop=request.stops,
        logprobs=request.logprobs,
        limit=limit,
        limit_field=limit_field,
    )


def _whole_choice(echo: str, answer: Answer) -> dict[str, Any]:
    """Return the choice for an answer whose text begins with the prompt `echo`."""
    logprobs = answer.logprobs
    found = None if logprobs is None else _logprobs(logprobs, _Offsets(echo=echo))
    return _choice(echo + answer.text, found, answer)


def _choice(text: str, logprobs: dict[str, Any] | None, answer: Answer) -> dict[str, Any]:
    return {
        "text": text,
        "logprobs": logprobs,
        **answer.reasons,
        **answer.named_probabilities,
    }


class _Offsets:
    """Finds where tokens begin in the text of one answer, in characters.

    The text begins with `echo`, which spells control tokens out. The answer leaves them out.
    """

    def __init__(self, begin: int = 0, echo: str = "") -> None:
        self._n_chars = begin
        self._echo = echo
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, entry: TokenLogprob) -> int:
        """Return the index of the first character that a token writes, wholly or in part."""
        unfinished = self._decoder.getstate()[0]
        if unfinished and entry.bytes and not 0x80 <= entry.bytes[0] < 0xC0:
            self._n_chars += len(self._decoder.decode(b"", True))  # it remains unfinished
        begin = self._n_chars
        if not entry.bytes and self._echo.startswith(entry.text, begin):
            self._n_chars += len(entry.text)
        else:  # also for a BOS that the tokenizer has added
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
            choice, logged = _choice(text, None, step), step.unsent
        if logged is not None:
            choice["logprobs"] = _logprobs(logged, self._offsets[index])
        yield choice


COMPLETIONS = Endpoint(
    "/v1/completions",
    CompletionRequest,
    _complete,
    summary="Continue a prompt",
    input_name="prompt",
)
"""OpenAI's completions."""

# ---- Embeddings --------------------------------------------------------------------------------


Texts: TypeAlias = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[TokenIds, Tag("tokens")]
    | Annotated[list[str], Field(max_length=MAX_TEXTS), Tag("strings")]
    | Annotated[list[TokenIds], Field(max_length=MAX_TEXTS), Tag("token lists")],
    _BY_FIRST_ITEM,
]
"""One or several strings, or lists of token ids."""


class EmbeddingsRequest(Body):
    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: NoEffect


async def _embed(request: EmbeddingsRequest, context: RequestContext) -> dict[str, Any]:
    session = context.model.session.of_kind("encoder")
    texts, n_tokens = await session.helpers.run(_texts, session, request.input)
    vectors = await context.in_groups(texts, context.model.embed, "input")
    context.count_tokens(n_tokens, 0)
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
    listed = _listed(sent)
    for i, each in enumerate(listed):
        try:
            text = each if isinstance(each, str) else session.detokenize(each)
            tokens = session.tokenize(text, True)  # with the tokens that the model adds
        except InvalidArgumentError as error:
            raise invalid("input", str(error), item_name("input", i, len(listed))) from error
        if not isinstance(each, str) and each not in (tokens, session.tokenize(text)):
            problem = f"the token ids do not match the tokens of their string {text[:80]!r}"
            place = item_name("input", i, len(listed))
            raise invalid("input", f"{problem}; send the string", place)
        texts.append(text)
        n_tokens += len(tokens)
    return texts, n_tokens


EMBEDDINGS = Endpoint(
    "/v1/embeddings",
    EmbeddingsRequest,
    _embed,
    summary="Compute the embeddings of strings",
    input_name="input",
    embeds=True,
)
"""OpenAI's embeddings."""
