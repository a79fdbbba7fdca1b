"""``/v1/rerank``: the relevance of documents for a query, as at llama-server, Jina and Cohere.

With ``texts`` in place of ``documents``, request and answer have the form of Hugging Face's Text
Embeddings Inference (TEI).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import Field, model_validator

from ..session.session import Session
from .endpoint import Endpoint, HandlerResult, RequestContext
from .request_body import Body, NoEffect, StringOrObject

MAX_DOCUMENTS = 2048  # as at Jina


class TextObject(Body):
    text: str


Text: TypeAlias = StringOrObject[str, TextObject]


Listed = Field(min_length=1, max_length=MAX_DOCUMENTS)


class RerankRequest(Body):
    query: Text
    documents: Annotated[list[Text], Listed] | None = None
    texts: Annotated[list[str], Listed] | None = None
    model: str | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1)] | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    user: NoEffect
    truncation_direction: NoEffect

    @model_validator(mode="after")
    def _has_documents(self) -> RerankRequest:
        if (self.documents is None) == (self.texts is None):
            raise ValueError("expected exactly one of documents and texts")
        return self


async def _rerank(request: RerankRequest, context: RequestContext) -> HandlerResult:
    query = _text(request.query)
    texts = [_text(each) for each in request.documents or request.texts or ()]
    session = context.model.session.of_kind("reranker")
    n_most = request.max_tokens_per_doc
    if request.truncate:
        n_query = len(session.tokenize(query, add_special=True)) + 8  # tokens between the texts
        n_most = max(1, int(session.describe()["model"]["n_ctx_train"]) - n_query)
    documents = await session.helpers.run(_cut, session, texts, n_most)

    async def scores(part: Sequence[str]) -> list[float]:
        ranked = await context.model.rerank(query, part)
        return [each.score for each in sorted(ranked, key=lambda each: each.index)]

    found = await context.in_groups(documents, scores, "documents", " with the query")
    order = sorted(range(len(found)), key=lambda index: -found[index])[: request.top_n]
    n_tokens = await session.helpers.run(_n_tokens, session, query, documents)
    context.count_tokens(n_tokens, 0)
    if request.texts is not None:
        values = found if request.raw_scores else [0.5 + math.tanh(x / 2) / 2 for x in found]
        shown = [{"text": each} if request.return_text else {} for each in texts]
        return [{"index": index, "score": values[index], **shown[index]} for index in order]
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": found[index]} for index in order
    ]
    if request.return_documents:
        for each in results:
            each["document"] = {"text": texts[each["index"]]}
    return {
        "object": "list",
        "model": context.settings.name,
        "results": results,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def _text(text: str | TextObject) -> str:
    return text if isinstance(text, str) else text.text


def _cut(session: Session, texts: list[str], n: int | None) -> list[str]:
    """Return the first `n` tokens of each text; None = all."""
    if n is None:
        return texts
    read = ((each, session.tokenize(each)) for each in texts)
    return [each if len(ids) <= n else session.detokenize(ids[:n]) for each, ids in read]


def _n_tokens(session: Session, query: str, documents: list[str]) -> int:
    """Count the tokens of all pairs of the query and a document, without a template's tokens."""
    n_query = len(session.tokenize(query, add_special=True))
    return sum(n_query + len(session.tokenize(each)) for each in documents)


RERANK = Endpoint(
    "/v1/rerank",
    RerankRequest,
    _rerank,
    summary="Compute the relevance of documents for a query",
    input_name="documents",
    embeds=True,
    other_paths=("/rerank", "/reranking", "/v1/reranking", "/v2/rerank"),
)
"""The reranking of llama-server, Jina, Cohere and TEI."""
