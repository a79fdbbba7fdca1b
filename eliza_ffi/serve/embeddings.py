"""``/v1/embeddings``: vectors of strings."""

from __future__ import annotations

import base64
from typing import Any, Literal

from typing_extensions import TypedDict

from ..errors import InvalidArgumentError
from ..session.session import Session
from .completions import Texts
from .endpoint import Endpoint, Running
from .fields import Body, NoEffect
from .refusals import unfit

__all__ = ["EMBEDDINGS", "EmbeddingsResponse"]


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


async def _embed(request: EmbeddingsRequest, running: Running) -> dict[str, Any]:
    session = running.model.session
    try:
        texts, n_tokens = await session.helpers.run(_texts, session, request.input)
    except InvalidArgumentError as error:
        raise unfit("input", str(error)) from error
    try:
        vectors = await running.deadline.before_end(running.model.embed(texts))
    except InvalidArgumentError as error:
        raise unfit("input", str(error)) from error
    running.metrics.count_tokens(n_tokens, 0)
    is_packed = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if is_packed
            else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "model": running.settings.name,
        "data": data,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def _texts(session: Session, given: Any) -> tuple[list[str], int]:
    """Return the strings of an input, and the number of their tokens."""
    listed = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    texts, n_tokens = [], 0
    for each in listed:
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
