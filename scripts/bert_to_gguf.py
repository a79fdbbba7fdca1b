"""Convert a sentence encoder with the architecture BERT to a GGUF file.

The encoder is a zip archive as sentence-transformers writes it: ``config.json``,
``1_Pooling/config.json``, ``model.safetensors`` and ``tokenizer.json``. The names of tensors and
metadata are those of llama.cpp's ``convert_hf_to_gguf.py``. Large matrices are written as f16.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

ARCHITECTURE = gguf.MODEL_ARCH.BERT


def write_encoder(archive: Path, out: Path, name: str) -> None:
    """Write a sentence encoder as a GGUF file. The same archive always gives the same bytes."""
    with zipfile.ZipFile(archive) as files:
        config = json.loads(files.read("config.json"))
        pooling = json.loads(files.read("1_Pooling/config.json"))
        tokenizer = json.loads(files.read("tokenizer.json"))
        weights = files.read("model.safetensors")
    if not pooling["pooling_mode_mean_tokens"] or config["hidden_act"] != "gelu":
        raise ValueError(f"{archive}: expected mean pooling and the activation function gelu")
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCHITECTURE])
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    add_vocabulary(writer, tokenizer)
    names = gguf.get_tensor_name_map(ARCHITECTURE, config["num_hidden_layers"])
    for key, weight in read_safetensors(weights):
        # llama.cpp computes positions itself. The pooler classifies pairs of sentences.
        if key == "embeddings.position_ids" or key.startswith("pooler."):
            continue
        renamed = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if renamed is None:
            raise ValueError(f"{archive}: unknown tensor {key}")
        is_f32 = weight.ndim == 1 or renamed.startswith(("token_types.", "position_embd."))
        writer.add_tensor(renamed, weight.astype(np.float32 if is_f32 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: dict[str, Any]) -> None:
    """Add the vocabulary of a WordPiece tokenizer, whose special tokens are ``[CLS]`` etc."""
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError("tokenizer.json: expected the token ids 0, 1, 2 and so on")
    writer.add_tokenizer_model("bert")
    writer.add_token_list([piece_in_llama_cpp(piece) for piece in pieces])
    writer.add_token_types(
        [gguf.TokenType.CONTROL if p in special else gguf.TokenType.NORMAL for p in pieces]
    )
    writer.add_bos_token_id(ids["[CLS]"])
    writer.add_sep_token_id(ids["[SEP]"])
    writer.add_unk_token_id(ids["[UNK]"])
    writer.add_pad_token_id(ids["[PAD]"])
    writer.add_mask_token_id(ids["[MASK]"])


def piece_in_llama_cpp(piece: str) -> str:
    """Mark the pieces at the beginning of a word, where WordPiece marks all other pieces."""
    if piece.startswith("[") and piece.endswith("]"):
        return piece
    return piece[2:] if piece.startswith("##") else "\u2581" + piece


def read_safetensors(data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """Read the f32 and integer tensors of a safetensors file, in the order of their names.

    The file begins with the length of its header. The header is JSON, and has the type, shape and
    place of each tensor.
    """
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    dtypes: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
    for key, tensor in sorted(header.items()):
        if key != "__metadata__":
            begin, end = (8 + length + offset for offset in tensor["data_offsets"])
            flat = np.frombuffer(data[begin:end], dtypes[tensor["dtype"]])
            yield key, flat.reshape(tensor["shape"])
