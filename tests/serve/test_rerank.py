"""Reranking over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served import ask, check_documented
from tiny_files import write_reranker

from eliza_ffi import AsyncModel, Model
from eliza_ffi.library.loading import Library
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.openapi import openapi_document
from eliza_ffi.serve.rerank import RERANK
from eliza_ffi.serve.settings import ServeSettings

QUERY = "How do I get a refund?"
DOCUMENTS = ["a cat", "Refunds take five days.", "", "call us", "a cat sat on the mat " * 30]
LONG = "many words " * 300


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Iterator[Model]:
    path: Path = tmp_path_factory.mktemp("reranker") / "reranker.gguf"
    write_reranker(path)
    with Model(path, library=library) as model:
        yield model


def answers_of(model: Model, *bodies: Any, route: str = "/v1/rerank") -> list[httpx.Response]:
    app = make_app(AsyncModel.of(model), ServeSettings("reranker"))
    return ask(app, *(("POST", route, body) for body in bodies))


@pytest.mark.parametrize(
    "route", ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank"]
)
def test_the_server_reranks_as_in_process(model: Model, route: str) -> None:
    """The other requests have the fields of Dify's client, and of cohere's two clients."""
    body = {"model": "any", "query": QUERY, "documents": DOCUMENTS}
    shown = {**body, "top_n": 2, "return_documents": True, "max_tokens_per_doc": 4096}
    objects = {**shown, "query": {"text": QUERY}, "rank_fields": None}
    objects["documents"] = [{"text": each} for each in DOCUMENTS]
    answers = answers_of(model, body, shown, objects, route=route)
    plain, *others = (each.json() for each in answers)
    expected = model.rerank(QUERY, DOCUMENTS)
    found = [(each["index"], each["relevance_score"]) for each in plain["results"]]
    assert [index for index, _ in found] == [each.index for each in expected]
    assert [score for _, score in found] == pytest.approx([e.score for e in expected], abs=1e-3)
    assert (plain["object"], plain["model"]) == ("list", "reranker")
    n_query = len(model.tokenize(QUERY, add_special=True))
    n = sum(n_query + len(model.tokenize(each)) for each in DOCUMENTS)
    assert plain["usage"] == {"prompt_tokens": n, "total_tokens": n}
    for other in others:
        assert other["results"] == [
            {**each, "document": {"text": DOCUMENTS[each["index"]]}}
            for each in plain["results"][:2]
        ]
        assert other["usage"] == plain["usage"]


def test_requests_of_tei_are_answered_in_its_form(model: Model) -> None:
    """The second one has the fields that LlamaIndex's client of TEI sends, and more."""
    body = {"query": QUERY, "texts": DOCUMENTS}
    fields = {"raw_scores": False, "return_text": False, "truncate": True}
    raw, normal, shown, first = (
        answer.json()
        for answer in answers_of(
            model,
            {**body, "raw_scores": True},
            {**body, **fields},
            {**body, "return_text": True, "truncation_direction": "Right"},
            {**body, "top_n": 1},
            route="/rerank",
        )
    )
    expected = model.rerank(QUERY, DOCUMENTS)
    assert [each["index"] for each in raw] == [each.index for each in expected]
    scores = np.array([each.score for each in expected])
    assert [each["score"] for each in raw] == pytest.approx(scores, abs=1e-3)
    assert [each["score"] for each in normal] == pytest.approx(1 / (1 + np.exp(-scores)), abs=1e-3)
    assert shown == [{**each, "text": DOCUMENTS[each["index"]]} for each in normal]
    assert first == normal[:1]


@pytest.mark.parametrize(
    "body",
    [
        {"documents": DOCUMENTS},
        {"documents": DOCUMENTS, "return_documents": True},
        {"texts": DOCUMENTS, "return_text": True},
    ],
)
def test_answers_match_the_openapi_document(model: Model, body: dict[str, Any]) -> None:
    (answer,) = answers_of(model, {"query": QUERY, **body})
    check_documented(answer, json.loads(openapi_document([RERANK])), "/v1/rerank")


def test_a_text_that_is_too_long_is_cut_if_a_client_wants_that(model: Model) -> None:
    (answer,) = answers_of(model, {"query": QUERY, "texts": ["a", LONG], "truncate": True})
    assert sorted(each["index"] for each in answer.json()) == [0, 1]


def test_only_the_first_tokens_of_a_document_are_read_if_a_client_wants_that(model: Model) -> None:
    cut, short = answers_of(
        model,
        {"query": QUERY, "documents": [LONG, "a"], "max_tokens_per_doc": 4},
        {"query": QUERY, "documents": [model.detokenize(model.tokenize(LONG)[:4]), "a"]},
    )
    assert cut.json() == short.json()


def test_many_documents_of_a_request_keep_their_indices(model: Model) -> None:
    documents = [f"document {i} " * (1 + i % 7) for i in range(80)]
    (answer,) = answers_of(model, {"query": QUERY, "documents": documents, "top_n": 50})
    found = [each["index"] for each in answer.json()["results"]]
    expected = [each.index for each in model.rerank(QUERY, documents)]
    assert sorted(found) == sorted(expected[:50])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": []}, "documents: expected 1 or more items, got 0"),
        ({"documents": ["a"] * 2049}, "documents: expected at most 2048 items, got 2049"),
        ({"documents": ["a", 3]}, "documents[1]: expected a string or an object, got 3"),
        ({"documents": [{"title": "a"}]}, "documents[0].title: this field is not supported"),
        ({"documents": ["a"] * 40 + [LONG]}, "documents[40] with the query: expected at most 512"),
        ({"documents": ["a", LONG]}, "documents[1] with the query: expected at most 512"),
        ({"query": None}, "query: expected a string or an object, got null"),
        ({"top_n": 0}, "top_n: expected at least 1, got 0"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc: expected at least 1, got 0"),
        ({"texts": ["a"]}, "the request: expected exactly one of documents and texts"),
        ({"documents": None}, "the request: expected exactly one of documents and texts"),
        ({"documents": None, "texts": ["a", LONG]}, "documents[1] with the query: expected at"),
    ],
)
def test_a_wrong_request_for_reranking_is_explained(
    model: Model, body: dict[str, Any], message: str
) -> None:
    (answer,) = answers_of(model, {"query": QUERY, "documents": ["a"], **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)


def test_errors_about_generating_name_the_endpoint_for_reranking(model: Model) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    (answer,) = answers_of(model, body, route="/v1/chat/completions")
    assert answer.status_code == 501
    assert answer.json()["error"]["message"] == (
        "the model cannot generate text; use /v1/decisions or /v1/rerank"
    )


def test_a_server_of_another_model_does_not_rerank(tiny_model: Model) -> None:
    (answer,) = answers_of(tiny_model, {"query": QUERY, "documents": ["a"]})
    assert answer.status_code == 501
    assert "is not a reranker: it generates text" in answer.json()["error"]["message"]
