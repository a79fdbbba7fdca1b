"""Write small decision models with random weights.

There is one for each type that :mod:`eliza_ffi.decisions.models.decision_model` supports. Each has
a real vocabulary, and a ``systemone`` template and temperatures that we wrote in the style of the
type. The answers have no meaning, but llama-server must compute the same probabilities from the
same file.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from fetch_llama_cpp import cache_dir
from gguf import GGUFValueType
from gguf_file import F32, STRING, U32, Entry
from make_test_models import (
    Shape,
    add_entries,
    random_matrix,
    read_tokenizer,
    vocabulary_file,
    write_model,
)
from numpy.typing import NDArray

# Part of the cache path. Raise it whenever the same definitions give other bytes.
FORMAT_VERSION = 1

TEMPLATES = Path(__file__).with_name("decision_templates")
SHAPE = Shape(n_embd=64, n_layers=2, tied=True, tensor_type="f32", context_length=8192)


@dataclass(frozen=True)
class Definition:
    vocab: str  # a vocabulary in llama.cpp's source tree
    temperatures: tuple[tuple[str, float], ...]  # by type, or by type and bucket
    architecture: str = "llama"
    controls: tuple[str, ...] = ()  # further control tokens; the last one is the mask token


BUCKETS = (
    *(("choice.2", 0.7), ("choice.3_5", 1.9), ("choice.6_10", 1.3), ("choice.11", 2.6)),
    *(("score", 1.6), ("score.3_5", 0.8), ("noul", 1.45)),
)
OF_LEV = (
    *(("choice.small", 1.7), ("choice.mid", 1.2), ("choice.large", 2.2)),
    *(("noul", 1.9), ("noul.small", 1.35), ("score.small", 0.9)),
)
TURNS = ("<|im_start|>", "<|im_end|>")

DEFINITIONS = {
    "openjev": Definition("llama-spm", BUCKETS),
    "lev": Definition("qwen2", OF_LEV),
    "nimble": Definition("deepseek-coder", (("choice", 1.5), ("score", 2.0))),
    "pplx-decider": Definition("llama-bpe", BUCKETS),
    "lfm2-d1": Definition("llama-bpe", BUCKETS),
    "kev": Definition("deepseek-coder", BUCKETS, "qwen35", (*TURNS, "<|box_end|>")),
    "laya": Definition("bert-bge", BUCKETS, "modern-bert"),
    "lfm2-d1-omni": Definition("gpt-2", BUCKETS, "lfm2", (*TURNS, "<|mask|>")),
    "clef": Definition("deepseek-coder", BUCKETS, "clef"),
}
"""Models by type."""

# A block and matrices with biases, which score every token for each type of question.
SCORER = """
64: 2.attn_norm+ 2.ffn_norm+ cls.norm+
64x64: 2.attn_output+ cls+
192x64: 2.attn_qkv+
128x64: 2.ffn_up+
64x128: 2.ffn_down+
1x64: cls.output+
3x64: token_types
"""
# A gated delta net, and attention with gates.
HYBRID = """
4: 0.ssm_a 0.ssm_dt.bias
16: 0.ssm_norm 1.attn_q_norm 1.attn_k_norm
64: output_norm 01.attn_norm 01.post_attention_norm
4x64: 0.ssm_alpha 0.ssm_beta
32x64: 1.attn_k 1.attn_v
64x64: 0.attn_gate 0.ssm_out 1.attn_output
64x128: 01.ffn_down
128x4: 0.ssm_conv1d
128x64: 0.attn_qkv 1.attn_q 01.ffn_gate 01.ffn_up
"""
# In block 0, options read the prompt. In block 1, questions read each other and the prompt.
JOINT_HEAD = """
3: decision.scales
32: decision.option_summary_norm+ decision.field_norm+ decision.option_norm+
32: d0.cross_attn_norm_kv+ d1.attn_norm+ d01.cross_attn_norm+ d01.ffn_norm+
64: decision.hidden_norm+
1x32: decision.scorer_out+
3x32: token_types
32x32: d1.attn_q+ d1.attn_k+ d1.attn_v+ d1.attn_o+
32x32: d01.cross_attn_q+ d01.cross_attn_k+ d01.cross_attn_v+ d01.cross_attn_o+
32x64: decision.proj_memory decision.proj_question decision.proj_option_question
32x64: decision.proj_global decision.proj_option_context decision.proj_option_lexical d01.ffn_down+
32x128: decision.scorer+
64x32: d01.ffn_up+
"""
TENSORS = {
    # The output is a query and a key.
    "qwen35": f"""{HYBRID}
64: cls.output.bias
64x64: cls.output
""",
    "clef": f"{HYBRID}{JOINT_HEAD}",
    # Two blocks of an encoder, and the scorer.
    "modern-bert": f"""{SCORER}
64: token_embd_norm output_norm 01.attn_norm 01.ffn_norm
64x64: 01.attn_output
64x128: 01.ffn_down
192x64: 01.attn_qkv
256x64: 01.ffn_up
""",
    # A convolution, attention, and the scorer.
    "lfm2": f"""{SCORER}
16: 1.attn_q_norm 1.attn_k_norm
64: token_embd_norm 01.attn_norm 01.ffn_norm
32x64: 1.attn_k 1.attn_v
64x3: 0.shortconv.conv
64x64: 0.shortconv.out_proj 1.attn_q 1.attn_output
64x128: 01.ffn_down
128x64: 01.ffn_gate 01.ffn_up
192x64: 0.shortconv.in_proj
""",
}
"""The tensors of each architecture by their size. Numbers in front of a name are those of blocks; a
d before them means blocks of the head. A plus sign means that there is a bias, too."""

SCORING = {"block_count": 3, "decision.block_count": 1, "attention.causal": False}
OF_HYBRID = {
    **{"block_count": 2, "attention.head_count_kv": 2, "attention.key_length": 16},
    **{"attention.value_length": 16, "full_attention_interval": 2},
    **{"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16},
    **{"ssm.time_step_rank": 4, "ssm.group_count": 2, "rope.dimension_sections": [4, 2, 2, 0]},
}
METADATA: dict[str, dict[str, Any]] = {
    "qwen35": {**OF_HYBRID, "embedding_length_out": 64},
    "clef": {
        **{**OF_HYBRID, "decision.block_count": 1, "decision.routing_block_count": 1},
        "decision.head_count": 4,
    },
    "modern-bert": {
        **{"attention.head_count_kv": 4, "attention.sliding_window": 64},
        **{**SCORING, "decision.max_head_tokens": 192},
    },
    "lfm2": {**SCORING, "attention.head_count_kv": [0, 2, 4], "shortconv.l_cache": 3},
}


def cached_decision_model(type: str, shape: Shape = SHAPE) -> Path:
    """Return the model of a type in the user cache, written on first use.

    `shape` is for types with the architecture ``llama``; others have one shape.
    """
    definition = DEFINITIONS[type]
    kind = definition.architecture
    template = (TEMPLATES / f"{type}.jinja").read_text("utf-8").removesuffix("\n")
    parts = definition, template, shape, TENSORS.get(kind), METADATA.get(kind)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    out = cache_dir() / "test-models" / f"decisions-v{FORMAT_VERSION}" / f"{type}-{digest}.gguf"
    if out.is_file():
        return out
    entries = _entries(type, definition, template)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=out.parent) as scratch:
        unfinished = Path(scratch) / "model.gguf"
        if kind == "llama":
            write_model(unfinished, f"random {type}", entries, shape)
        else:
            _write(unfinished, kind, entries)
        return unfinished.replace(out)


def _entries(type: str, definition: Definition, template: str) -> dict[str, Entry]:
    """Return the metadata entries about the tokenizer and about decisions."""
    entries = read_tokenizer(vocabulary_file(definition.vocab))

    def put(name: str, kind: int, value: Any) -> None:
        entries[name] = Entry(name.encode(), kind, value)

    for control in definition.controls:
        tokens, types = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type"))
        mask = len(entries[tokens].value)
        put("tokenizer.ggml.mask_token_id", U32, mask)
        for name, value in ((tokens, control.encode()), (types, int(gguf.TokenType.CONTROL))):
            entries[name] = replace(entries[name], value=[*entries[name].value, value])
    if definition.architecture != "llama":
        put("tokenizer.ggml.token_type_count", U32, 3)
    prefix = f"{definition.architecture}.decision."
    put(f"{prefix}type", STRING, type)
    put("tokenizer.chat_template.systemone", STRING, template)
    for name, temperature in definition.temperatures:
        put(f"{prefix}temperature.{name}", F32, temperature)
    return entries


def _write(file: Path, architecture: str, entries: dict[str, Entry]) -> None:
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_context_length(SHAPE.context_length)
    writer.add_embedding_length(SHAPE.n_embd)
    writer.add_feed_forward_length(SHAPE.ff_width)
    writer.add_head_count(SHAPE.n_heads)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    kinds = {int: GGUFValueType.UINT32, bool: GGUFValueType.BOOL, list: GGUFValueType.ARRAY}
    for name, value in METADATA[architecture].items():
        writer.add_key_value(f"{architecture}.{name}", value, kinds[type(value)])
    add_entries(writer, entries)
    n_vocab = len(entries["tokenizer.ggml.tokens"].value)
    for line in f"{n_vocab}x{SHAPE.n_embd}: token_embd{TENSORS[architecture]}".split("\n"):
        size, _, names = line.partition(": ")
        for name in itertools.chain.from_iterable(map(_full_names, names.split())):
            writer.add_tensor(name, _values(name, *map(int, size.split("x"))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _full_names(name: str) -> list[str]:
    """Return the names in a file that a name in `TENSORS` stands for."""
    blocks, _, rest = name.rstrip("+").partition(".")
    numbers = blocks.removeprefix("d")
    begin = "dec." if blocks.startswith("d") else ""
    bases = [f"{begin}blk.{i}.{rest}" for i in numbers] if numbers.isdigit() else [name.rstrip("+")]
    if name.endswith((".bias", "ssm_a", "decision.scales")):
        return bases
    ends = [".weight", ".bias"] if name.endswith("+") else [".weight"]
    return [base + end for base in bases for end in ends]


def _values(name: str, rows: int, columns: int = 0) -> NDArray[np.float32]:
    if name.endswith("norm.weight"):
        return np.ones(rows, np.float32)
    if name.endswith("ssm_a"):
        return np.full(rows, -0.5, np.float32)  # a decay
    if name.endswith(".bias") or not columns:
        return random_matrix(SHAPE.seed, name, (1, rows), 0.2).reshape(rows)
    std = 1.0 if name == "token_embd.weight" else 1.5 / math.sqrt(columns)
    return random_matrix(SHAPE.seed, name, (rows, columns), std)
