"""The history of the C ABI, which its header does not state.

There are several versions of libelizainference. The package looks up each function by name. This
module says in which version a missing function was added, and how the C struct with a stream's
configuration has grown.
"""

from __future__ import annotations

ABI_VERSION = 12
"""The newest ABI version that the package accepts: the version of this project's library."""

OLDEST_ABI_VERSION = 4
"""The oldest ABI version that the package accepts.

Before version 4, the configuration has ``disable_thinking`` at the offset where version 4 and later
have the grammar.
"""

PREFIX = "eliza_inference_"
"""The prefix of all function names of the library."""

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
"""The functions that the package cannot work without. Every accepted version has them."""

SINCE = {
    "eliza_inference_llm_mtp_supported": 8,
    "eliza_inference_llm_kv_quant_supported": 8,
    "eliza_inference_tokenize": 9,
    "eliza_inference_detokenize": 9,
    "eliza_inference_embed": 9,
    "eliza_inference_llm_eot_score": 11,
}
"""The version that added each function, for functions added after version 4.

All other functions are in version 4 already, were added without a new version number, or exist only
in this project's library.
"""

KV_TYPES_SINCE = 8
"""The version in which a stream's configuration grew from 64 to 80 bytes.

It added n_gpu_layers and the KV cache types.
"""

CONTEXT_SIZE_SINCE = 9
CONTEXT_SIZE_OFFSET = 80
MOBILE_CONFIG_SIZE = 88
"""Since version 9, elizaOS's libraries read an 88-byte configuration.

An int32 at offset 80 is the context size in tokens; 0 = the library's default.
"""

SUPPLEMENT = ("eliza_inference_tts_stream_supported", "eliza_inference_vision_supported")
"""Probes that another header declares, as ``int name(void)``."""


def symbols_of(name: str) -> tuple[str, ...]:
    """Return the full names that a function may have in a library, given its short name."""
    return f"{PREFIX}llm_stream_{name}", f"{PREFIX}llm_{name}", PREFIX + name
