"""The prefixes of embedding models are found by their names."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from tiny_files import write_bert

from eliza_ffi.cli.console import model_options
from eliza_ffi.cli.main import build_parser
from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.fingerprint import fingerprint_of
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.families import NO_PREFIXES, Prefixes, prefixes
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("e5-base-v2", ("query: ", "passage: ")),
        ("Multilingual E5 Small", ("query: ", "passage: ")),
        ("multilingual_e5_large_instruct", ("Instruct: {question}\nQuery: ", "")),
        ("E5 Mistral 7B Instruct", ("Instruct: {question}\nQuery: ", "")),
        ("nomic-embed-text-v1.5", ("classification: ", "classification: ")),
        ("Nomic Embed Text V2 Moe", ("classification: ", "classification: ")),
        ("Embeddinggemma 300m", ("task: classification | query: ", "title: none | text: ")),
        ("Qwen3 Embedding 0.6B", ("Instruct: {question}\nQuery:", "")),
        ("bge-base-en-v1.5", ("", "")),
        ("all-MiniLM-L6-v2", ("", "")),
        ("Qwen3 0.6B", ("", "")),
        ("snowflake-arctic-embed-m", ("", "")),
        ("theme5", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_name_or_the_file_tells_the_prefixes(name: str, expected: tuple[str, str]) -> None:
    assert prefixes({"name": name, "path": "/models/model.gguf"}) == expected
    assert prefixes({"name": "", "path": f"/models/{name}-Q8_0.gguf"}) == expected
    assert prefixes({"name": name, "pooling": "rank"}) == NO_PREFIXES


def test_the_folder_of_a_file_tells_nothing() -> None:
    assert prefixes({"path": "/e5/model.gguf"}) == NO_PREFIXES


def test_the_architecture_tells_the_prefixes_of_a_model_without_a_name() -> None:
    found = prefixes({"path": "model.gguf", "architecture": "gemma-embedding"})
    assert found.input == "task: classification | query: "


def test_the_question_becomes_the_instruction() -> None:
    found = prefixes({"name": "Qwen3-Embedding-8B"})
    assert found.of_input("Which team?") == "Instruct: Which team?\nQuery:"
    assert Prefixes("query: ", "").of_input("Which {question}?") == "query: "


def test_describe_shows_the_prefixes_of_an_encoder(
    tmp_path: Path, library: Library, tiny_model: Model
) -> None:
    found = {}
    for file in ("e5-small.gguf", "other.gguf", "e5-reranker.gguf"):
        is_reranker = file == "e5-reranker.gguf"
        pooling = gguf.PoolingType.RANK if is_reranker else gguf.PoolingType.MEAN
        write_bert(tmp_path / file, pooling)
        with Model(tmp_path / file, library=library) as model:
            found[file] = model.describe()["model"].get("prefixes")
    assert found == {
        "e5-small.gguf": {"input": "query: ", "option": "passage: "},
        "other.gguf": {"input": "", "option": ""},
        "e5-reranker.gguf": None,
    }
    assert "prefixes" not in tiny_model.describe()["model"]


def test_a_user_can_replace_the_prefixes(
    tmp_path: Path, library: Library, tiny_model: Model
) -> None:
    path, renamed = tmp_path / "e5-small.gguf", tmp_path / "other.gguf"
    for each in (path, renamed):
        write_bert(each)
    question = Choice("Which?", {"money": "bills", "way": "parcels"})
    own = {"input_prefix": "about {question} ", "option_prefix": ""}
    command = ["decide", "--encoder", str(path), "--input-prefix", own["input_prefix"]]
    arguments = build_parser().parse_args([*command, "--option-prefix", ""])
    assert model_options(arguments)["options"] == own
    with Model(renamed, library=library) as model:
        expected = model.decide("about Which? a truck", [question])[0].distribution
        fingerprint = fingerprint_of(model)
    for opening in ({"path": path}, {"path": tiny_model.path, "encoder": path}):
        with Model(**opening, library=library, options=own) as model:
            facts = model.describe()
            of = facts.get("encoder", facts["model"])
            assert of["prefixes"] == {"input": own["input_prefix"], "option": ""}
            assert fingerprint not in fingerprint_of(model)
            if "encoder" not in opening:
                assert model.decide("a truck", [question])[0].distribution == pytest.approx(
                    expected
                )


def test_prefixes_need_an_embedding_model(tmp_path: Path, library: Library) -> None:
    reranker = tmp_path / "reranker.gguf"
    write_bert(reranker, gguf.PoolingType.RANK)
    with pytest.raises(InvalidArgumentError, match="option_prefix is for an embedding model.*rera"):
        Model(reranker, library=library, options={"option_prefix": "a: "})
    with pytest.raises(InvalidArgumentError, match="input_prefix is for an embedding model.*text"):
        Model(library=library, options={"input_prefix": "a: "})
