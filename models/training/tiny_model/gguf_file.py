"""Write the trained model as a GGUF file for llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from demo_prompts import END_OF_TURN
from tokenizers import Tokenizer

from .network import Network
from .vocabulary import BOS, EOS, PAD, PRE_TOKENIZER, SPECIAL_TOKENS, special_id

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# The names of a layer's weights in our network and in llama.cpp.
_LAYER_TENSORS = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}


def write_gguf(path: Path, network: Network, tokenizer: Tokenizer) -> None:
    """Write the network (matrices in Q8_0), its vocabulary and its chat template."""
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, network)
    _write_vocabulary(writer, tokenizer)
    weights = {name: w.detach().float().numpy() for name, w in network.state_dict().items()}
    _add_tensor(writer, "token_embd.weight", weights["embedding.weight"])
    _add_tensor(writer, "output_norm.weight", weights["norm.weight"])
    for layer in range(network.shape.layers):
        for ours, theirs in _LAYER_TENSORS.items():
            _add_tensor(
                writer, f"blk.{layer}.{theirs}.weight", weights[f"layers.{layer}.{ours}.weight"]
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_metadata(writer: gguf.GGUFWriter, network: Network) -> None:
    shape = network.shape
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("eliza-tiny")
    writer.add_description(
        "A small model that chooses actions and decides whether to respond; trained from scratch "
        "on text written by eliza-ffi's own generator."
    )
    writer.add_license("MIT")
    writer.add_string("eliza.prompt_format", "chat")  # the prompts of its training
    writer.add_string("eliza.prompt_order", "input-first")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(shape.vocabulary)


def _write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    by_id = {index: token for token, index in tokenizer.get_vocab().items()}
    tokens = [by_id[index] for index in range(len(by_id))]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    special = set(SPECIAL_TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(special_id(tokenizer, BOS))
    writer.add_eos_token_id(special_id(tokenizer, EOS))
    writer.add_eot_token_id(special_id(tokenizer, END_OF_TURN))
    writer.add_pad_token_id(special_id(tokenizer, PAD))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensor(writer: gguf.GGUFWriter, name: str, weight: np.ndarray) -> None:
    if weight.ndim == 1:
        writer.add_tensor(name, weight)
        return
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
