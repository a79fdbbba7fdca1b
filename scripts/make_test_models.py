"""Make small llama models with random weights around real vocabularies, for tests and benchmarks.

llama.cpp's source tree contains the vocabularies of well-known models (``ggml-vocab-*.gguf``, 32k
to 262k tokens) without weights. This script copies a tokenizer from one of them and adds a
transformer of any width and depth. Such a model generates noise, but the cost and behaviour of
tokenizing, decoding, masking and sampling equal a trained model's with the same vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import q4_k
from fetch_llama_cpp import cache_dir, source_tree
from gguf import GGMLQuantizationType, GGUFValueType, LlamaFileType
from gguf_file import Entry, read_gguf
from numpy.typing import NDArray

# Part of the cache path. Raise it whenever the same parameters give other bytes.
FORMAT_VERSION = 1

# The default standard deviation of the logits: similar to trained models, and large enough that two
# tokens of a large vocabulary almost never tie.
LOGIT_STD = 2.5

TENSOR_TYPES = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_k": (GGMLQuantizationType.Q4_K, LlamaFileType.MOSTLY_Q4_K_M),
}
BLOCKS = {"q8_0": 32, "q4_k": q4_k.BLOCK}


class ModelError(ValueError):
    """The model cannot be made; the message is one line for the user."""


@dataclass(frozen=True)
class Shape:
    """Size, weights and numeric type of a model."""

    # Width of the residual stream, a multiple of ``n_heads`` (of 32 for ``q8_0``, of 256 for
    # ``q4_k``).
    n_embd: int = 64
    # Depth and attention heads. A quantized KV cache needs ``n_embd / n_heads`` to be a multiple of
    # 32.
    n_layers: int = 2
    n_heads: int = 4
    # Key and value heads; 0 means half of ``n_heads`` (all of them if that number is odd).
    n_head_kv: int = 0
    n_ff: int = 0  # width of the feed-forward layer; 0 means ``2 * n_embd``
    seed: int = 1  # seed of the weights; the same seed gives the same bytes
    # Type of the matrices: ``f32``, ``f16``, ``q8_0`` or ``q4_k``. Norms are always f32.
    tensor_type: str = "f16"
    context_length: int = 4096  # trained context length in the file's metadata, in tokens
    tied: bool = False  # whether the output matrix is the embedding matrix
    # Standard deviation of the logits: 0 for a model to which all tokens are equally probable, 10
    # for a confident one.
    logit_std: float = LOGIT_STD

    @property
    def kv_heads(self) -> int:
        half = self.n_heads // 2 if self.n_heads % 2 == 0 else self.n_heads
        return self.n_head_kv or half

    @property
    def ff_width(self) -> int:
        return self.n_ff or 2 * self.n_embd

    @property
    def head_width(self) -> int:
        return self.n_embd // self.n_heads

    @property
    def name(self) -> str:
        tied = "-tied" if self.tied else ""
        std = "" if self.logit_std == LOGIT_STD else f"-std{self.logit_std:g}"
        return (
            f"e{self.n_embd}-l{self.n_layers}-h{self.n_heads}-kv{self.kv_heads}-ff{self.ff_width}"
            f"-c{self.context_length}-s{self.seed}-{self.tensor_type}{tied}{std}"
        )


def read_tokenizer(file: Path) -> dict[str, Entry]:
    """Read the metadata about the tokenizer of a GGUF file, by the names of the entries."""
    try:
        entries = read_gguf(file, with_tensors=False).entries
    except (OSError, struct.error, ValueError) as error:
        raise ModelError(f"cannot read the vocabulary {file}: {error}") from error
    named = {entry.key.decode(): entry for entry in entries}
    return {name: entry for name, entry in named.items() if name.startswith("tokenizer.")}


def add_entries(writer: gguf.GGUFWriter, entries: dict[str, Entry]) -> None:
    for name, entry in entries.items():
        item_kind = None if entry.item_kind is None else GGUFValueType(entry.item_kind)
        writer.add_key_value(name, entry.value, GGUFValueType(entry.kind), item_kind)


def vocabulary_file(vocab: str) -> Path:
    """Return a vocabulary of llama.cpp by a name such as ``llama-bpe``, or any GGUF file."""
    if vocab.endswith(".gguf"):
        return Path(vocab)
    files = sorted((source_tree(with_models=True) / "models").glob("ggml-vocab-*.gguf"))
    known = {file.stem.removeprefix("ggml-vocab-"): file for file in files}
    if vocab not in known:
        raise ModelError(f"vocabulary: expected one of {', '.join(known)}; got {vocab!r}")
    return known[vocab]


def random_matrix(seed: int, name: str, size: tuple[int, int], std: float) -> NDArray[np.float32]:
    """Return a matrix of normal values, which depends only on the seed, its name and its size."""
    random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    weights: NDArray[np.float32] = random.standard_normal(size, dtype=np.float32)
    weights *= std
    return weights


def matrices(shape: Shape, n_vocab: int) -> dict[str, tuple[int, int, float]]:
    """Return rows, columns and standard deviation of every matrix, by its GGUF name.

    A matrix with m columns and a standard deviation of 1 / sqrt(m) preserves the size of its input.
    The output matrix gets a vector of length sqrt(n_embd) from the final norm, which determines its
    scale. Queries and keys are larger, so that attention selects tokens instead of averaging them,
    and the logits depend on the whole context.
    """
    keep, keep_ff = 1 / math.sqrt(shape.n_embd), 1 / math.sqrt(shape.ff_width)
    output = shape.logit_std * keep
    kv_width = shape.kv_heads * shape.head_width
    table = {"token_embd": (n_vocab, shape.n_embd, output if shape.tied else 1.0)}
    if not shape.tied:
        table["output"] = (n_vocab, shape.n_embd, output)
    for layer in range(shape.n_layers):
        block = f"blk.{layer}."
        table[block + "attn_q"] = (shape.n_embd, shape.n_embd, 1.5 * keep)
        table[block + "attn_k"] = (kv_width, shape.n_embd, 1.5 * keep)
        table[block + "attn_v"] = (kv_width, shape.n_embd, keep)
        table[block + "attn_output"] = (shape.n_embd, shape.n_embd, keep)
        table[block + "ffn_gate"] = (shape.ff_width, shape.n_embd, keep)
        table[block + "ffn_up"] = (shape.ff_width, shape.n_embd, keep)
        table[block + "ffn_down"] = (shape.n_embd, shape.ff_width, 2 * keep_ff)
    return table


def stored_matrix(shape: Shape, name: str, size: tuple[int, int], std: float) -> NDArray[Any]:
    """Return a matrix of `random_matrix` in the type of the model, as a GGUF file stores it."""
    weights = random_matrix(shape.seed, name, size, std)
    if shape.tensor_type == "q4_k":
        return q4_k.quantize_q4_k(weights)
    quantized: NDArray[Any] = gguf.quants.quantize(weights, TENSOR_TYPES[shape.tensor_type][0])
    return quantized


def write_model(
    file: Path,
    name: str,
    tokenizer: dict[str, Entry],
    shape: Shape,
    matrix_of: Callable[[Shape, str, tuple[int, int], float], NDArray[Any]] = stored_matrix,
) -> None:
    """Write a GGUF file with the given tokenizer metadata and the weights of `matrix_of`."""
    n_vocab = len(tokenizer["tokenizer.ggml.tokens"].value)
    matrix_type, file_type = TENSOR_TYPES[shape.tensor_type]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(n_vocab)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.ff_width)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(10000.0)
    add_entries(writer, tokenizer)

    norms = [f"blk.{i}.{norm}" for i in range(shape.n_layers) for norm in ("attn_norm", "ffn_norm")]
    for norm in (*norms, "output_norm"):
        writer.add_tensor(f"{norm}.weight", np.ones(shape.n_embd, dtype=np.float32))
    for matrix, (rows, columns, std) in matrices(shape, n_vocab).items():
        stored = matrix_of(shape, matrix, (rows, columns), std)
        writer.add_tensor(f"{matrix}.weight", stored, raw_dtype=matrix_type)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def cached_model(vocab: str, **parameters: Any) -> Path:
    """Return a model in the user cache, written on first use.

    `vocab` is the name of a vocabulary, such as ``llama-spm``, or the path of a GGUF file, and
    `parameters` are the fields of `Shape`. A ModelError is raised if the vocabulary is unknown or
    broken. A failure leaves no partial file.
    """
    shape = Shape(**parameters)
    file = vocabulary_file(vocab)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    label = file.stem.removeprefix("ggml-vocab-")
    folder = cache_dir() / "test-models" / f"v{FORMAT_VERSION}"
    out = folder / f"{label}-{digest}-{shape.name}.gguf"
    if out.is_file():
        return out
    tokenizer = read_tokenizer(file)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=folder) as scratch:
        unfinished = Path(scratch) / "model.gguf"
        write_model(unfinished, f"random {label} {shape.name}", tokenizer, shape)
        return unfinished.replace(out)
