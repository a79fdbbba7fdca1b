"""The library behind :class:`LlmStreamingBinding`: one method per C function, and nothing more.

This is the raw layer: it checks that arguments fit their C types and turns statuses into
exceptions. cffi lets go of the GIL during every call. The methods are in classes by what they are
about. :mod:`eliza_ffi.library.older` has what older versions of the library need besides.
"""

from __future__ import annotations

from .cffi_values import CffiStream, token_array
from .context_calls import ContextCalls, VerifierEvent
from .protocol import LlmStreamingBinding, StreamConfig, StreamStats, StreamStep, TrieLeaf
from .state_calls import StateCalls
from .stream_calls import StreamCalls
from .text_calls import EotScore, TextCalls
from .trie_calls import TrieCalls

__all__ = [
    "CffiBinding",
    "CffiStream",
    "EotScore",
    "LlmStreamingBinding",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TrieLeaf",
    "VerifierEvent",
    "token_array",
]


class CffiBinding(ContextCalls, StreamCalls, StateCalls, TrieCalls, TextCalls):
    """Calls libelizainference, this project's or another of that name.

    Parameters
    ----------
    library
        The loaded library.

    Notes
    -----
    A stream or context that was closed is refused with an error, and so is a second call at once on
    one stream.
    """
