"""elizaOS's binding on phones: the streams' functions by its names, and a context size.

The phone's loader hands ``open`` a configuration of 88 bytes that ends with the context's size in
tokens. It counts on every function of a stream but the two of the token trie, which are there only
where the library has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..checks import check_whole
from ..library.binding import CffiBinding
from ..library.cffi_values import CffiStream
from ..library.loading import Library
from ..library.protocol import StreamConfig

__all__ = ["AospStreamingLlmBinding"]


class AospStreamingLlmBinding(CffiBinding):
    """A binding whose streams have a context of a given size.

    Parameters
    ----------
    library
        The loaded library.
    context_size
        In tokens; 0 = the library's default. A library that has ``set_option`` takes it by that
        as ``n_ctx``, before the first stream of a context; another from the configuration, which it
        reads from ABI version 9 on.

    Notes
    -----
    It serves wherever a :class:`~eliza_ffi.library.CffiBinding` does, so the runners run on it.
    """

    def __init__(self, library: Library, context_size: int = 0) -> None:
        super().__init__(library)
        self.context_size = check_whole("context_size", context_size, 0)
        self._sizes: dict[Any, int] = {}

    def open(self, ctx: Any, config: StreamConfig) -> CffiStream:
        """Open a stream; raises NotSupportedError where the context's size would not be read."""
        return self.llm_stream_open(ctx, config)

    def destroy(self, ctx: Any) -> None:
        """Free a context and close its streams."""
        super().destroy(ctx)
        self._sizes.pop(ctx, None)

    def llm_stream_supported(self) -> bool:
        """Return whether the library generates text."""
        probe = "eliza_inference_llm_stream_supported"
        return not self.library.has(probe) or self.library.probe(probe)

    def llm_mtp_supported(self) -> bool:
        """Return whether it drafts tokens."""
        return self.library.probe("eliza_inference_llm_mtp_supported")

    def llm_kv_quant_supported(self) -> bool:
        """Return whether the types of the KV cache can be chosen."""
        return self.library.probe("eliza_inference_llm_kv_quant_supported")

    def llm_stream_open(
        self, ctx: Any, config: StreamConfig, context_size: int | None = None
    ) -> CffiStream:
        """Open a stream; `context_size` in place of the binding's own."""
        size = self.context_size
        if context_size is not None:
            size = check_whole("context_size", context_size, 0)
        self._check_ctx(ctx)
        if size and self.supports("set_option"):
            if self._sizes.get(ctx) != size:
                self.set_option(ctx, "n_ctx", str(size))
                self._sizes[ctx] = size
            size = 0
        return self._open(ctx, config, size)

    llm_stream_prefill = CffiBinding.prefill
    llm_stream_next = CffiBinding.next
    llm_stream_generate = CffiBinding.generate
    llm_stream_cancel = CffiBinding.cancel
    llm_stream_save_slot = CffiBinding.save_slot
    llm_stream_restore_slot = CffiBinding.restore_slot
    llm_stream_close = CffiBinding.close

    @property
    def llm_stream_set_token_trie(self) -> Callable[[CffiStream, str | bytes, int], None] | None:
        """What starts a span, as ``set_token_trie``; None where the library has no trie."""
        return self.set_token_trie if self._has_trie else None

    @property
    def llm_stream_clear_token_trie(self) -> Callable[[CffiStream], None] | None:
        """What ends it, as ``clear_token_trie``; None where the library has no trie."""
        return self.clear_token_trie if self._has_trie else None

    @property
    def _has_trie(self) -> bool:
        return self.supports("set_token_trie") and self.supports("clear_token_trie")
