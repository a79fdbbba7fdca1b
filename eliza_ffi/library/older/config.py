"""The configuration of a stream, laid out so that every version of the library can read it."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidArgumentError, NotSupportedError
from ..abi import (
    CONTEXT_SIZE_OFFSET,
    CONTEXT_SIZE_SINCE,
    KV_TYPES_SINCE,
    MOBILE_CONFIG_SIZE,
)
from ..cffi_values import config_struct
from ..loading import Library, header_ffi
from ..protocol import StreamConfig

__all__ = ["check_config", "config_buffer"]

LARGEST_INT32 = 2**31 - 1


def config_buffer(config: StreamConfig, context_size: int = 0) -> tuple[Any, Any]:
    """Return a pointer to the C struct and what must live as long as it is used.

    The struct is 88 bytes. Those who know 64 or 80 of them read no further; those who know all of
    them would otherwise take what lies behind the struct for the context's size.

    Parameters
    ----------
    config
        The first 80 bytes.
    context_size
        In tokens, at byte 80; 0 = the library's default.
    """
    if not 0 <= context_size <= LARGEST_INT32:
        raise InvalidArgumentError(
            f"the context size must be 0 to {LARGEST_INT32} tokens, not {context_size}"
        )
    ffi, _ = header_ffi()
    struct, strings = config_struct(config)
    size = ffi.sizeof("eliza_llm_stream_config_t")
    # As 64-bit words, which is how the struct must be aligned.
    words = ffi.new("uint64_t[]", MOBILE_CONFIG_SIZE // 8)
    ffi.memmove(words, struct, size)
    ffi.cast("int32_t *", words)[CONTEXT_SIZE_OFFSET // 4] = context_size
    return ffi.cast("eliza_llm_stream_config_t *", words), (words, strings)


def check_config(library: Library, config: StreamConfig, context_size: int = 0) -> None:
    """Raise NotSupportedError for a setting that the library would not even read."""
    for name in ("cache_type_k", "cache_type_v"):
        value = getattr(config, name)
        if value not in (None, "", "f16"):
            _check_version(library, f"{name} {value!r}", KV_TYPES_SINCE)
    if context_size:
        _check_version(library, "a context size for each stream", CONTEXT_SIZE_SINCE)


def _check_version(library: Library, what: str, since: int) -> None:
    if library.version < since:
        raise NotSupportedError(
            f"{library.path} (ABI version {library.abi_version}) does not read {what}, "
            f"which came with version {since}"
        )
