"""Write a stream's configuration in a layout that every version of the library can read."""

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
    """Return a pointer to the C struct, and the objects that own the memory it uses.

    The struct always has 88 bytes. A library that reads 64 or 80 bytes ignores the rest. A library
    that reads 88 bytes finds a context size at byte 80, and never unrelated memory.

    Parameters
    ----------
    library
        The library that reads the configuration.
    config
        The contents of the first 80 bytes.
    context_size
        The context size in tokens, at byte 80; 0 = the library's default.

    Raises
    ------
    NotSupportedError
        If the library's version does not support a setting.
    """
    for name in ("cache_type_k", "cache_type_v"):
        value = getattr(config, name)
        if value not in (None, "", "f16"):
            _check_version(library, f"{name}={value!r}", KV_TYPES_SINCE)
    if context_size:
        _check_version(library, "a context size per stream", CONTEXT_SIZE_SINCE)
    ffi, _ = header_ffi()
    struct, strings = config_struct(config)
    words = ffi.new("uint64_t[]", MOBILE_CONFIG_SIZE // 8)  # uint64_t aligns the struct's pointers
    ffi.memmove(words, struct, ffi.sizeof("eliza_llm_stream_config_t"))
    ffi.cast("int32_t *", words)[CONTEXT_SIZE_OFFSET // 4] = context_size
    return ffi.cast("eliza_llm_stream_config_t *", words), (words, strings)


def _check_version(library: Library, what: str, since: int) -> None:
    if library.version < since:
        raise NotSupportedError(
            f"{library.path} (ABI version {library.abi_version}) does not support {what}, "
            f"which was added in version {since}"
        )
