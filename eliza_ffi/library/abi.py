"""The constants of the C ABI that its header does not state."""

from __future__ import annotations

ABI_VERSION = 12
"""The ABI version of this project's library, and of the libraries of elizaOS that can be loaded."""

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
"""The functions that the package cannot work without."""

CONTEXT_SIZE_OFFSET = 80
MOBILE_CONFIG_SIZE = 88
"""elizaOS's library reads a configuration of 88 bytes, with the context size at byte 80."""

SUPPLEMENT = ("eliza_inference_tts_stream_supported", "eliza_inference_vision_supported")
"""Probes that another header declares, as ``int name(void)``."""


def symbols_of(name: str) -> tuple[str, ...]:
    """Return the full names that a function may have in a library, given its short name."""
    return f"{PREFIX}llm_stream_{name}", f"{PREFIX}llm_{name}", PREFIX + name
