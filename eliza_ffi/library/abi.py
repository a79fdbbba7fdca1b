"""What is known of the C ABI besides its header: the versions, what must be there, what came when.

Libraries of the name libelizainference exist in several versions. What a version has is found by
looking each function up; this page says what to make of one that is missing.
"""

from __future__ import annotations

import re

__all__ = [
    "ABI_VERSION",
    "CONTEXT_SIZE_OFFSET",
    "CONTEXT_SIZE_SINCE",
    "KV_TYPES_SINCE",
    "MOBILE_CONFIG_SIZE",
    "OLDEST_ABI_VERSION",
    "PREFIX",
    "REQUIRED_SYMBOLS",
    "SINCE",
    "SUPPLEMENT",
    "supplement_to",
    "symbols_of",
]

ABI_VERSION = 12
"""The newest version of the ABI that is spoken, our library's."""

OLDEST_ABI_VERSION = 4
"""The oldest one. Before, ``disable_thinking`` lay where the grammar does now."""

PREFIX = "eliza_inference_"
"""What the names of the library's functions begin with."""

REQUIRED_SYMBOLS = (
    "eliza_inference_abi_version",
    "eliza_inference_create",
    "eliza_inference_destroy",
    "eliza_inference_free_string",
    "eliza_inference_llm_stream_open",
    "eliza_inference_llm_stream_prefill",
    "eliza_inference_llm_stream_next",
    "eliza_inference_llm_stream_cancel",
    "eliza_inference_llm_stream_close",
)
"""The functions that every accepted version has and that the package cannot do without."""

SINCE = {
    "eliza_inference_llm_mtp_supported": 8,
    "eliza_inference_llm_kv_quant_supported": 8,
    "eliza_inference_tokenize": 9,
    "eliza_inference_detokenize": 9,
    "eliza_inference_embed": 9,
    "eliza_inference_llm_eot_score": 11,
}
"""The version that added a function, where that is after version 4.

Functions that are not listed are as old as version 4, were added between versions, or are this
project's own.
"""

KV_TYPES_SINCE = 8
"""The configuration had 64 bytes before; n_gpu_layers and the KV cache types made it 80."""

CONTEXT_SIZE_SINCE = 9
CONTEXT_SIZE_OFFSET = 80
MOBILE_CONFIG_SIZE = 88
"""Later libraries read an int32 context size behind the 80 bytes; 0 = their own default."""

SUPPLEMENT = {
    "eliza_inference_tts_stream_supported": "int {}(void);",
    "eliza_inference_vision_supported": "int {}(void);",
}
"""Functions of other headers that this package calls where a library has them, with prototypes."""


def supplement_to(cdef: str) -> str:
    """Return the declarations of :data:`SUPPLEMENT` that are not among these."""
    return "\n".join(
        prototype.format(name)
        for name, prototype in SUPPLEMENT.items()
        if not re.search(rf"\b{name}\b", cdef)
    )


def symbols_of(name: str) -> tuple[str, ...]:
    """Return what a function of this short name may be called in a library."""
    return f"{PREFIX}llm_stream_{name}", f"{PREFIX}llm_{name}", PREFIX + name
