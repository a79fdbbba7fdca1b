"""Facts about the C ABI that its header does not state: its versions and when functions were added.

There are several versions of libelizainference. The package looks up each function by name, and
this module says what a missing function means.
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
"""The newest ABI version that the package accepts: the version of this project's library."""

OLDEST_ABI_VERSION = 4
"""The oldest ABI version that the package accepts.

In earlier configurations, ``disable_thinking`` is where the grammar is now.
"""

PREFIX = "eliza_inference_"
"""The prefix of the names of the library's functions."""

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
"""This version added n_gpu_layers and the KV cache types to the configuration.

It grew from 64 to 80 bytes.
"""

CONTEXT_SIZE_SINCE = 9
CONTEXT_SIZE_OFFSET = 80
MOBILE_CONFIG_SIZE = 88
"""Version 9 and later read an int32 context size after the 80 bytes; 0 = the library's default."""

SUPPLEMENT = {
    "eliza_inference_tts_stream_supported": "int {}(void);",
    "eliza_inference_vision_supported": "int {}(void);",
}
"""Prototypes of functions from other headers, which the package calls if a library has them."""


def supplement_to(cdef: str) -> str:
    """Return the declarations of :data:`SUPPLEMENT` that `cdef` lacks."""
    return "\n".join(
        prototype.format(name)
        for name, prototype in SUPPLEMENT.items()
        if not re.search(rf"\b{name}\b", cdef)
    )


def symbols_of(name: str) -> tuple[str, ...]:
    """Return the names that a function with this short name may have in a library."""
    return f"{PREFIX}llm_stream_{name}", f"{PREFIX}llm_{name}", PREFIX + name
