"""Binary payloads are in :mod:`eliza_ffi.choices`; this name stays for those who import it."""

from __future__ import annotations

from .choices.rtkt import (
    RtktTree,
    decode_rtkt,
    encode_descriptor,
    encode_rtkt,
)

__all__ = [
    "RtktTree",
    "decode_rtkt",
    "encode_descriptor",
    "encode_rtkt",
]
