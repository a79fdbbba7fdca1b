"""Call the C library, with one method for each C function.

This is the lowest layer of the package. It checks that arguments fit their C types, and turns
negative statuses into exceptions. cffi releases the GIL during every call. The methods are grouped
into one base class per topic. :mod:`eliza_ffi.library.older` handles older versions of the library.
"""

from __future__ import annotations

from .cffi_values import CffiStream, token_array
from .context_calls import ContextCalls, VerifierEvent
from .protocol import StreamConfig, StreamStats, StreamStep, TrieLeaf
from .state_calls import StateCalls
from .stream_calls import StreamCalls
from .text_calls import EotScore, TextCalls
from .trie_calls import TrieCalls

__all__ = [
    "CffiBinding",
    "CffiStream",
    "EotScore",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TrieLeaf",
    "VerifierEvent",
    "token_array",
]


class CffiBinding(ContextCalls, StreamCalls, StateCalls, TrieCalls, TextCalls):
    """Calls libelizainference: this project's library, or another library of that name.

    Parameters
    ----------
    library
        The loaded library.

    Notes
    -----
    A call on a closed stream or context raises an error. So does a call on a stream while another
    call is running on the same stream.
    """
