"""Random-weight models around a vocabulary: what is copied, what is random, what is refused."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import make_test_models
import numpy as np
import pytest
from fetch_llama_cpp import PINNED, cache_dir, is_complete
from gguf import GGUFReader, GGUFValueType
from make_test_models import ModelError, cached_model, make_model, read_metadata

pytestmark = pytest.mark.slow

N_VOCAB = 300
NOT_UTF8 = b"\xf0\x9f"


def write_vocabulary(file: Path, *, tokenizer: str = "gpt2", without: str = "") -> Path:
    writer = gguf.GGUFWriter(file, "qwen2")
    entries: dict[str, tuple[Any, ...]] = {
        "model": (tokenizer, GGUFValueType.STRING),
        "tokens": (
            [NOT_UTF8, *(f"token {i}".encode() for i in range(1, N_VOCAB))],
            GGUFValueType.ARRAY,
            GGUFValueType.STRING,
        ),
        "scores": ([-0.1 * i for i in range(N_VOCAB)], GGUFValueType.ARRAY, GGUFValueType.FLOAT32),
        "token_type": ([1] * N_VOCAB, GGUFValueType.ARRAY, GGUFValueType.INT32),
        "merges": (["t o", "to k"], GGUFValueType.ARRAY, GGUFValueType.STRING),
        "eos_token_id": (2, GGUFValueType.UINT32),
        "add_bos_token": (True, GGUFValueType.BOOL),
    }
    for key, entry in entries.items():
        if key != without:
            writer.add_key_value(f"tokenizer.ggml.{key}", *entry)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    return str(write_vocabulary(tmp_path / "vocabulary.gguf"))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A llama.cpp source tree with a vocabulary "tiny" and one of an encoder, and a cache."""
    tree = tmp_path / "llama.cpp"
    for sign in ("CMakeLists.txt", "include/llama.h", "src/CMakeLists.txt", "ggml/include/ggml.h"):
        (tree / sign).parent.mkdir(parents=True, exist_ok=True)
        (tree / sign).touch()
    (tree / "models").mkdir()
    write_vocabulary(tree / "models/ggml-vocab-tiny.gguf")
    write_vocabulary(tree / "models/ggml-vocab-encoder.gguf", tokenizer="bert")
    monkeypatch.setenv("LLAMA_CPP_SOURCE", str(tree))
    monkeypatch.setenv("ELIZA_FFI_CACHE", str(tmp_path / "cache"))
    return tree


def tokenizer_of(file: Path) -> dict[str, Any]:
    entries = read_metadata(file).items()
    return {key: entry for key, entry in entries if key.startswith("tokenizer.")}


def tensors_of(file: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in GGUFReader(file).tensors}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, vocabulary: str) -> None:
    first = make_model(vocabulary, tmp_path / "first.gguf", seed=7)
    second = make_model(vocabulary, tmp_path / "second.gguf", seed=7)
    assert first.read_bytes() == second.read_bytes()


def test_another_seed_changes_every_matrix(tmp_path: Path, vocabulary: str) -> None:
    first = tensors_of(make_model(vocabulary, tmp_path / "first.gguf", seed=7))
    second = tensors_of(make_model(vocabulary, tmp_path / "second.gguf", seed=8))
    for name, tensor in first.items():
        assert np.array_equal(tensor.data, second[name].data) == name.endswith("_norm.weight")


def test_the_tokenizer_is_copied_as_it_is(tmp_path: Path, vocabulary: str) -> None:
    model = make_model(vocabulary, tmp_path / "model.gguf")
    assert tokenizer_of(model) == tokenizer_of(Path(vocabulary))
    reader = GGUFReader(model)  # and as an independent reader sees it
    tokens = reader.fields["tokenizer.ggml.tokens"]
    assert len(tokens.data) == N_VOCAB
    assert bytes(tokens.parts[tokens.data[0]]) == NOT_UTF8
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == 2
    assert reader.fields["tokenizer.ggml.add_bos_token"].contents() is True
    assert reader.fields["tokenizer.chat_template"].contents() == "{{ messages }}"


def test_metadata_reads_as_the_gguf_package_reads_it(vocabulary: str) -> None:
    ours = read_metadata(Path(vocabulary))
    for key, field in GGUFReader(vocabulary).fields.items():
        if key.startswith("GGUF.") or key == "tokenizer.ggml.tokens":  # one token is not UTF-8
            continue
        value = ours[key].value
        if ours[key].item_type is GGUFValueType.STRING:
            value = [item.decode() for item in value]
        elif ours[key].type is GGUFValueType.STRING:
            value = value.decode()
        elif ours[key].type is GGUFValueType.ARRAY:
            value = list(value)
        assert value == field.contents(), key


def test_the_shape_is_what_was_asked_for(tmp_path: Path, vocabulary: str) -> None:
    model = make_model(
        vocabulary,
        tmp_path / "model.gguf",
        n_embd=96,
        n_layers=3,
        n_heads=6,
        n_head_kv=2,
        n_ff=160,
        context_length=777,
    )
    fields = GGUFReader(model).fields
    llama = {
        key.removeprefix("llama."): field.contents()
        for key, field in fields.items()
        if key.startswith("llama.")
    }
    assert fields["general.architecture"].contents() == "llama"
    assert llama["vocab_size"] == N_VOCAB
    assert llama["embedding_length"] == 96
    assert llama["block_count"] == 3
    assert llama["attention.head_count"] == 6
    assert llama["attention.head_count_kv"] == 2
    assert llama["feed_forward_length"] == 160
    assert llama["context_length"] == 777
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors_of(model).items()}
    assert shapes["token_embd.weight"] == (96, N_VOCAB)
    assert shapes["blk.2.attn_k.weight"] == (96, 32)
    assert shapes["blk.2.ffn_down.weight"] == (160, 96)
    assert len(shapes) == 3 + 3 * 9


def test_a_vocabulary_cut_anywhere_is_refused(tmp_path: Path, vocabulary: str) -> None:
    whole = Path(vocabulary).read_bytes().rstrip(b"\0")
    cut = tmp_path / "cut.gguf"
    for length in random.Random(0).sample(range(1, len(whole)), 200):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_metadata(cut)


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "models" / "model.gguf"
    out.parent.mkdir()
    out.write_bytes(b"an earlier model")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(OSError, match="No space left"):
        make_model(vocabulary, out)
    assert out.read_bytes() == b"an earlier model"
    assert list(out.parent.iterdir()) == [out]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files written so far."""
    files: list[Path] = []
    write: Callable[..., None] = make_test_models.write_model

    def counted(file: Path, *arguments: Any) -> None:
        files.append(file)
        write(file, *arguments)

    monkeypatch.setattr(make_test_models, "write_model", counted)
    return files


def test_a_cached_model_is_made_once(tree: Path, tmp_path: Path, writes: list[Path]) -> None:
    model = cached_model("tiny", seed=3)
    assert model.is_relative_to(tmp_path / "cache")
    assert cached_model("tiny", seed=3) == model
    assert len(writes) == 1
    assert model.read_bytes() == make_model("tiny", tmp_path / "same.gguf", seed=3).read_bytes()


def real_vocabularies() -> Path | None:
    """The vocabularies of the source tree, where one is there already."""
    if own := os.environ.get("LLAMA_CPP_SOURCE"):
        return Path(own) / "models"
    tree = cache_dir() / PINNED.directory_name
    return tree / "models" if is_complete(tree, PINNED) else None


needs_real_vocabularies = pytest.mark.skipif(
    real_vocabularies() is None,
    reason="the llama.cpp source tree is not fetched (scripts/fetch_llama_cpp.py)",
)


@needs_real_vocabularies
@pytest.mark.parametrize(
    ("vocab", "n_tokens"), [("llama-spm", 32_000), ("gpt-2", 50_257), ("gemma-4", 262_144)]
)
def test_a_real_vocabulary_is_copied_as_it_is(tmp_path: Path, vocab: str, n_tokens: int) -> None:
    folder = real_vocabularies()
    assert folder is not None
    model = make_model(vocab, tmp_path / "model.gguf", n_embd=32, n_heads=2)
    tokenizer = tokenizer_of(model)
    assert len(tokenizer["tokenizer.ggml.tokens"].value) == n_tokens
    assert tokenizer == tokenizer_of(folder / f"ggml-vocab-{vocab}.gguf")
