"""The configuration of a stream, in a layout that every version of the library can read."""

from __future__ import annotations

from typing import Any

from ...errors import NotSupportedError
from ..abi import (
    CONTEXT_SIZE_OFFSET,
    CONTEXT_SIZE_SINCE,
    KV_TYPES_SINCE,
    MOBILE_CONFIG_SIZE,
)
from ..cffi_values import config_struct
from ..loading import Library, header_ffi
from ..protocol import StreamConfig

__all__ = ["older_config"]


def older_config(library: Library, config: StreamConfig, context_size: int = 0) -> tuple[Any, Any]:
    """Return a pointer to the C struct, and the objects that it points into.

    The struct has 88 bytes. A library that knows 64 or 80 of them ignores the rest. A library that
    knows all 88 always finds its context size there, not the bytes of something else.

    Parameters
    ----------
    library
    config
        The first 80 bytes.
    context_size
        In tokens, at byte 80; 0 = the library's default.

    Raises
    ------
    NotSupportedError
        If the library's version does not read one of the settings.
    """
    for name in ("cache_type_k", "cache_type_v"):
        value = getattr(config, name)
        if value not in (None, "", "f16"):
            _check_version(library, f"{name} {value!r}", KV_TYPES_SINCE)
    if context_size:
        _check_version(library, "a context size for each stream", CONTEXT_SIZE_SINCE)
    ffi, _ = header_ffi()
    struct, strings = config_struct(config)
    words = ffi.new("uint64_t[]", MOBILE_CONFIG_SIZE // 8)  # 64-bit words align the struct
    ffi.memmove(words, struct, ffi.sizeof("eliza_llm_stream_config_t"))
    ffi.cast("int32_t *", words)[CONTEXT_SIZE_OFFSET // 4] = context_size
    return ffi.cast("eliza_llm_stream_config_t *", words), (words, strings)


def _check_version(library: Library, what: str, since: int) -> None:
    if library.version < since:
        raise NotSupportedError(
            f"{library.path} (ABI version {library.abi_version}) does not read {what}, "
            f"which came with version {since}"
        )
