"""Rerankers: the relevance of documents, in process and on the command line.

The tests use a BERT with random weights. The reference implementation reads the states of the first
token and applies the two layers of the head with numpy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from both_faces import check_cancelling_ends_calls
from command import runner
from tiny_files import write_bert, write_causal_reranker, write_reranker

from eliza_ffi import AsyncModel, Model, RerankResult
from eliza_ffi.errors import InvalidArgumentError, ModelError, NotSupportedError
from eliza_ffi.library.loading import Library

QUERY = "How do I get a refund?"
DOCUMENTS = ["a cat", "Refunds take five days.", "", "call us", "a cat sat on the mat " * 30]
LONG = "many words " * 300


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reranker") / "reranker.gguf"
    write_reranker(path)
    return path


@pytest.fixture(scope="module")
def model(path: Path, library: Library) -> Iterator[Model]:
    with Model(path, library=library) as model:
        yield model


def relevance(model: Model, query: str, document: str) -> float:
    """Return the relevance as the reference implementation computes it."""
    cls, sep = model.tokenize("", add_special=True)
    tokens = [cls, *model.tokenize(query), sep, *model.tokenize(document)]
    return score_of(model, tokens)


@cache
def weights_of(path: str) -> dict[str, Any]:
    return {each.name: each.data for each in gguf.GGUFReader(path).tensors}


def score_of(model: Model, tokens: list[int]) -> float:
    first = model.binding.token_embeddings(model.session.ctx, tokens, [0])[0]
    weights = weights_of(model.path)
    hidden = np.tanh(weights["cls.weight"] @ first + weights["cls.bias"])
    return float((weights["cls.output.weight"] @ hidden + weights["cls.output.bias"])[0])


# ---- In process --------------------------------------------------------------------------------


def test_documents_are_sorted_by_the_relevance_of_the_reference(model: Model) -> None:
    found = model.rerank(QUERY, DOCUMENTS)
    expected = [relevance(model, QUERY, each) for each in DOCUMENTS]
    assert np.diff(sorted(expected)).min() > 0.01, "the test needs values that differ"
    for each in found:
        assert each.score == pytest.approx(expected[each.index], abs=1e-3)
        assert each.probability == pytest.approx(1 / (1 + np.exp(-each.score)))
    assert sorted(each.index for each in found) == list(range(len(DOCUMENTS)))
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert model.rerank(QUERY, iter(DOCUMENTS), top_n=2) == found[:2]
    assert model.rerank(QUERY, DOCUMENTS, top_n=99) == found
    assert model.rerank(QUERY, []) == []


@pytest.mark.parametrize(
    ("query", "document"), [("a cat", "a dog"), ("{document}", "b"), ("a [SEP] b", "[CLS] c")]
)
def test_texts_do_not_change_the_template_of_a_reranker(
    query: str, document: str, path: Path, tmp_path: Path, library: Library
) -> None:
    """Placeholders and control tokens in a text are plain text."""
    write_bert(
        tmp_path / "model.gguf",
        gguf.PoolingType.RANK,
        rerank_template="[CLS]query: {query} [SEP]text: {document}[SEP]",
    )
    with Model(tmp_path / "model.gguf", library=library) as model:
        (found,) = model.rerank(query, [document])
        cls, sep = model.tokenize("", add_special=True)
        tokens = [cls, *model.tokenize(f"query: {query} "), sep]
        tokens += [*model.tokenize(f"text: {document}"), sep]
        assert found.score == pytest.approx(score_of(model, tokens), abs=1e-3)


def test_many_documents_have_the_relevance_of_single_ones(model: Model) -> None:
    documents = [f"document {i} " * (1 + i % 40) for i in range(100)]
    found = {each.index: each.score for each in model.rerank(QUERY, documents)}
    for i in (0, 31, 32, 33, 71, 99):
        (alone,) = model.rerank(QUERY, [documents[i]])
        assert alone.index == 0
        assert found[i] == pytest.approx(alone.score, abs=1e-3)


def test_a_causal_reranker_reads_documents_of_any_length(tmp_path: Path, library: Library) -> None:
    """It takes several passes for a long document, and the last token has the relevance."""
    write_causal_reranker(tmp_path / "model.gguf")
    documents = [*DOCUMENTS, LONG, LONG + LONG, "the end"]
    with Model(tmp_path / "model.gguf", library=library) as model:
        weights = {each.name: each.data for each in gguf.GGUFReader(model.path).tensors}
        found = {each.index: each for each in model.rerank(QUERY, documents)}
        expected = []
        for document in documents:
            tokens = [*model.tokenize("", add_special=True), *model.tokenize(QUERY)]
            tokens += model.tokenize(document)
            last = model.binding.token_embeddings(model.session.ctx, tokens, [len(tokens) - 1])[0]
            yes, no = weights["cls.output.weight"] @ last
            expected.append(1 / (1 + np.exp(no - yes)))
    assert np.ptp(expected) > 0.1, "the test needs values that differ"
    assert [found[i].score for i in range(len(documents))] == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("index", [0, 3, 40, 59])
def test_a_document_that_is_too_long_is_named(model: Model, index: int) -> None:
    documents = ["a"] * 60
    documents[index] = LONG
    reason = rf"the query with documents\[{index}\]: expected at most 512 tokens, got \d+$"
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        model.rerank(QUERY, documents)
    assert (caught.value.argument, caught.value.index) == ("documents", index)
    with pytest.raises(InvalidArgumentError, match="the query with document: expected at most 512"):
        model.rerank(QUERY, [LONG])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"query": 3}, "query must be a string"),
        ({"documents": "a text"}, "documents must be a list"),
        ({"documents": ["a", None]}, r"documents\[1\] must be a string"),
        ({"top_n": 0}, "top_n must be a whole number of 1 or more"),
    ],
)
def test_wrong_arguments_of_rerank_are_named(
    model: Model, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        model.rerank(**{"query": QUERY, "documents": ["a"], **arguments})


def test_only_a_reranker_reranks(tiny_model: Model, encoder_file: Path, library: Library) -> None:
    with pytest.raises(NotSupportedError, match="is not a reranker: it generates text"):
        tiny_model.rerank(QUERY, DOCUMENTS)
    with (
        Model(encoder_file, library=library) as encoder,
        pytest.raises(NotSupportedError, match=r"not a reranker: .* computes embeddings \(embed\)"),
    ):
        encoder.rerank(QUERY, DOCUMENTS)


def test_a_reranker_without_a_head_says_so(tmp_path: Path, library: Library) -> None:
    write_bert(tmp_path / "headless.gguf", gguf.PoolingType.RANK, has_head=False)
    with (
        Model(tmp_path / "headless.gguf", library=library) as model,
        pytest.raises(ModelError, match="has no classification head"),
    ):
        model.rerank("a query", ["a document"])


GENERATING: dict[str, Callable[[Model], Any]] = {
    "choose": lambda m: m.choose("x", ["a", "b"]),
    "rank": lambda m: m.rank("x", ["a", "b"], 1),
    "fill": lambda m: m.fill("x", {"type": "integer"}),
    "generate": lambda m: m.generate("x"),
    "chat": lambda m: m.generate([{"role": "user", "content": "hi"}]),
    "stream": lambda m: [*m.stream("x")],
    "call_tool": lambda m: m.call_tool(
        [{"role": "user", "content": "hi"}], [{"name": "f", "parameters": {"type": "object"}}]
    ),
    "prepare_labels": lambda m: m.prepare_labels(["a", "b"]),
    "prompt_logprobs": lambda m: m.prompt_logprobs("x"),
    "hidden_states": lambda m: m.hidden_states("x"),
    "end_of_turn": lambda m: m.end_of_turn("x", 5),
}


@pytest.mark.parametrize("name", GENERATING)
def test_errors_about_generating_name_what_the_model_can_do(
    model: Model, encoder_file: Path, library: Library, name: str
) -> None:
    with pytest.raises(NotSupportedError, match=r"cannot generate text: .*relevance .*\(rerank\)"):
        GENERATING[name](model)
    with (
        Model(encoder_file, library=library) as encoder,
        pytest.raises(NotSupportedError, match=r"cannot generate text: .*embeddings \(embed\)"),
    ):
        GENERATING[name](encoder)


def test_a_reranker_embeds_only_with_a_named_pooling(model: Model) -> None:
    with pytest.raises(NotSupportedError, match=r"no pooling for embeddings: .*\(rerank\)"):
        model.embed("a text")
    assert np.linalg.norm(model.embed("a text", "mean")) == pytest.approx(1, abs=1e-5)


def test_rerank_is_awaited_and_can_be_cancelled(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = AsyncModel.of(model)
    assert asyncio.run(face.rerank(QUERY, DOCUMENTS)) == model.rerank(QUERY, DOCUMENTS)
    work = partial(face.rerank, QUERY, ["a document"] * 100_000)
    check_cancelling_ends_calls(monkeypatch, model.binding, "rerank", work)


def test_the_relevance_of_a_model_with_a_softmax_is_its_probability(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = model.session.describe()
    facts["model"]["architecture"] = "qwen3"
    monkeypatch.setattr(model.session, "describe", lambda: facts)
    scores = np.array([0.25, 0.75], np.float32)
    monkeypatch.setattr(model.binding, "rerank", lambda *_: scores)
    expected = [RerankResult(1, 0.75, 0.75), RerankResult(0, 0.25, 0.25)]
    assert model.rerank(QUERY, ["a", "b"]) == expected


# ---- On the command line -----------------------------------------------------------------------


def test_the_command_prints_the_most_relevant_files_first(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(capsys, "--library", str(model.binding.library.path))
    files = []
    for i, text in enumerate(DOCUMENTS):
        if text:
            (tmp_path / f"{i}.txt").write_text(text, encoding="utf-8")
            files.append(str(tmp_path / f"{i}.txt"))
    texts = [each for each in DOCUMENTS if each]
    expected = model.rerank(QUERY, texts)
    command = ["rerank", QUERY, *files, "--model", model.path]
    lines = run(*command).out.splitlines()
    assert [line.split()[-1] for line in lines] == [files[each.index] for each in expected]
    assert [float(line.split()[0]) for line in lines] == pytest.approx(
        [each.score for each in expected], abs=1e-3
    )
    found = run(*command, "--json", "--top-n", "1").json
    assert [each["document"] for each in found["results"]] == [files[expected[0].index]]
    (tmp_path / "lines.txt").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    listed = run("rerank", QUERY, str(tmp_path / "lines.txt"), "--lines", "--model", model.path)
    assert [line.split(maxsplit=1)[1].strip() for line in listed.out.splitlines()] == [
        texts[each.index].strip() for each in expected
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rerank", QUERY], 2, "required: FILE"),
        (["rerank", " ", "FILE"], 2, "QUERY is empty"),
        (["rerank", QUERY, "EMPTY"], 2, "is empty: expected a document"),
        (["rerank", QUERY, "EMPTY", "--lines"], 2, "the files have no lines"),
        (["rerank", QUERY, "FILE", "--top-n", "0"], 2, "--top-n: expected 1 or more, got 0"),
        (["rerank", QUERY, "-", "-"], 2, "standard input can be read only once"),
        (["rerank", QUERY, "FILE", "LONG"], 1, "long.txt with the query: expected at most 512"),
        (["rerank", QUERY, "LONG", "--lines"], 1, "long.txt: line 1 with the query: expected"),
        (["rerank", QUERY, "missing.txt"], 1, "missing.txt: No such file"),
    ],
)
def test_a_wrong_command_is_explained(
    model: Model,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    texts = {"FILE": "a text", "EMPTY": "", "LONG": LONG}
    for name, text in texts.items():
        (tmp_path / f"{name.lower()}.txt").write_text(text, encoding="utf-8")
    given = [str(tmp_path / f"{a.lower()}.txt") if a in texts else a for a in arguments]
    run = runner(capsys, "--library", str(model.binding.library.path))
    assert message in run(*given, "--model", model.path, code=code).err
