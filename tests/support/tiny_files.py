"""GGUF files of tiny models with random weights, of several architectures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
from gguf_file import ARRAY, STRING, U32, Entry, Tensor, read_gguf
from make_test_models import add_entries, read_tokenizer, vocabulary_file

from eliza_ffi._resources import default_model_path

WIDTH = 32
HIDDEN = 64


class TinyFile:
    def __init__(
        self, path: Path, kind: str, vocabulary: str | None, width: int = WIDTH, scale: float = 0.1
    ) -> None:
        self.scale = np.float32(scale)
        self.writer = gguf.GGUFWriter(path, kind)
        self.random = np.random.default_rng(0)
        self.n_vocab = 256
        if vocabulary is None:
            self.writer.add_tokenizer_model("no_vocab")
        else:
            tokenizer = read_tokenizer(vocabulary_file(vocabulary))
            add_entries(self.writer, tokenizer)
            self.n_vocab = len(tokenizer["tokenizer.ggml.tokens"].value)
        self.writer.add_vocab_size(self.n_vocab)
        self.writer.add_context_length(512)
        self.writer.add_embedding_length(width)
        self.writer.add_block_count(1)
        self.writer.add_feed_forward_length(HIDDEN)
        self.writer.add_head_count(2)
        self.writer.add_layer_norm_eps(1e-5)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.tensors(self.n_vocab, width, names=["token_embd.weight"])

    def tensors(self, *shape: int, names: list[str]) -> None:
        for name in names:
            values = self.random.standard_normal(shape).astype(np.float32)
            self.writer.add_tensor(name, values * self.scale)

    def finish(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_bert(
    path: Path,
    pooling: gguf.PoolingType = gguf.PoolingType.MEAN,
    width: int = WIDTH,
    rerank_template: str = "",
    *,
    has_head: bool = True,  # of a reranker
    scale: float = 0.1,
) -> None:
    """Write an encoder, or with the pooling ``RANK`` a reranker."""
    model = TinyFile(path, "bert", "bert-bge", width, scale)
    if rerank_template:
        model.writer.add_string("tokenizer.chat_template.rerank", rerank_template)
    model.writer.add_causal_attention(False)
    model.writer.add_pooling_type(pooling)
    if pooling == gguf.PoolingType.RANK and has_head:
        model.tensors(width, width, names=["cls.weight"])
        model.tensors(width, names=["cls.bias"])
        model.tensors(1, width, names=["cls.output.weight"])
        model.tensors(1, names=["cls.output.bias"])
    model.tensors(512, width, names=["position_embd.weight"])
    model.tensors(2, width, names=["token_types.weight"])
    attention = [f"blk.0.attn_{part}" for part in ("q", "k", "v", "output")]
    norms = ["token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"]
    model.tensors(width, width, names=[f"{name}.weight" for name in attention])
    model.tensors(width, names=[f"{name}.weight" for name in norms])
    model.tensors(width, names=[f"{name}.bias" for name in [*attention, *norms]])
    model.tensors(HIDDEN, width, names=["blk.0.ffn_up.weight"])
    model.tensors(HIDDEN, names=["blk.0.ffn_up.bias"])
    model.tensors(width, HIDDEN, names=["blk.0.ffn_down.weight"])
    model.tensors(width, names=["blk.0.ffn_down.bias"])
    model.finish()


def write_reranker(path: Path) -> None:
    """Write a reranker that gives texts values which differ clearly."""
    write_bert(path, gguf.PoolingType.RANK, scale=0.5)


def write_causal_reranker(path: Path) -> None:
    """Write a reranker like Qwen3-Reranker: the embedded model with a random head."""
    model = read_gguf(default_model_path())
    before, after = b"llama.", b"qwen3."
    model.entries = [
        replace(each, key=each.key.replace(before, after, 1))
        if each.key.startswith(before)
        else each
        for each in model.entries
    ]
    model.put(Entry(b"general.architecture", STRING, b"qwen3"))
    model.put(Entry(b"qwen3.pooling_type", U32, gguf.PoolingType.RANK.value))
    model.put(Entry(b"qwen3.classifier.output_labels", ARRAY, [b"yes", b"no"], STRING))
    n_embd, n_layers, n_heads = (
        model.get(b"qwen3." + name)
        for name in (b"embedding_length", b"block_count", b"attention.head_count")
    )
    head = np.random.default_rng(0).standard_normal((2, n_embd)).astype(np.float32) * 0.2
    norm = np.ones(n_embd // n_heads, np.float32)
    model.tensors.append(Tensor(b"cls.output.weight", (n_embd, 2), 0, 0, head.tobytes()))
    for layer in range(n_layers):
        for name in (b"q", b"k"):
            name = b"blk.%d.attn_%s_norm.weight" % (layer, name)
            model.tensors.append(Tensor(name, norm.shape, 0, 0, norm.tobytes()))
    model.place_tensors()
    path.write_bytes(model.to_bytes())
