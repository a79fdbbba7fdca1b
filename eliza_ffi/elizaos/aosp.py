"""elizaOS's binding for phones: stream functions under elizaOS's names, and a context size.

elizaOS's loader on phones passes ``open`` a configuration of 88 bytes, which ends with the context
size in tokens. The loader requires every stream function except the two for token tries, which are
optional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..checks import check_whole
from ..library.binding import CffiBinding
from ..library.cffi_values import CffiStream
from ..library.loading import Library
from ..library.protocol import StreamConfig


class AospStreamingLlmBinding(CffiBinding):
    """A binding that opens streams with a given context size.

    Parameters
    ----------
    library
        The loaded library.
    context_size
        The context size in tokens; 0 = the library's default. If the library has ``set_option``,
        the size is set as option ``n_ctx`` before the first stream of a context is opened. If it
        does not, the size is passed in each stream's configuration.

    Notes
    -----
    This is a subclass of :class:`~eliza_ffi.library.CffiBinding`, so the runners accept it.
    """

    def __init__(self, library: Library, context_size: int = 0) -> None:
        super().__init__(library)
        self.context_size = check_whole("context_size", context_size, 0)
        self._sizes: dict[Any, int] = {}

    def open(self, ctx: Any, config: StreamConfig, context_size: int | None = None) -> CffiStream:
        """Do the same as :meth:`llm_stream_open`."""
        return self.llm_stream_open(ctx, config, context_size)

    def destroy(self, ctx: Any) -> None:
        """Close the streams of a context and free it."""
        super().destroy(ctx)
        self._sizes.pop(ctx, None)

    def llm_stream_supported(self) -> bool:
        """Return whether the library generates text."""
        probe = "eliza_inference_llm_stream_supported"
        return not self.library.has(probe) or self.library.probe(probe)

    def llm_mtp_supported(self) -> bool:
        """Return whether the library drafts tokens."""
        return self.library.probe("eliza_inference_llm_mtp_supported")

    def llm_kv_quant_supported(self) -> bool:
        """Return whether the data types of the KV cache can be set."""
        return self.library.probe("eliza_inference_llm_kv_quant_supported")

    def llm_stream_open(
        self, ctx: Any, config: StreamConfig, context_size: int | None = None
    ) -> CffiStream:
        """Open a stream. `context_size` overrides the binding's context size."""
        size = self.context_size
        if context_size is not None:
            size = check_whole("context_size", context_size, 0)
        self._check_ctx(ctx)
        if size and self.supports("set_option"):
            if self._sizes.get(ctx) != size:
                self.set_option(ctx, "n_ctx", str(size))
                self._sizes[ctx] = size
            size = 0
        return super().open(ctx, config, size)

    llm_stream_prefill = CffiBinding.prefill
    llm_stream_next = CffiBinding.next
    llm_stream_generate = CffiBinding.generate
    llm_stream_cancel = CffiBinding.cancel
    llm_stream_save_slot = CffiBinding.save_slot
    llm_stream_restore_slot = CffiBinding.restore_slot
    llm_stream_close = CffiBinding.close

    @property
    def llm_stream_set_token_trie(self) -> Callable[[CffiStream, str | bytes, int], None] | None:
        """The method ``set_token_trie``; None if the library has no token trie."""
        return self.set_token_trie if self._has_trie else None

    @property
    def llm_stream_clear_token_trie(self) -> Callable[[CffiStream], None] | None:
        """The method ``clear_token_trie``; None if the library has no token trie."""
        return self.clear_token_trie if self._has_trie else None

    @property
    def _has_trie(self) -> bool:
        return self.supports("set_token_trie") and self.supports("clear_token_trie")
