"""Capabilities are in :mod:`eliza_ffi.library`; this name stays for those who import it."""

from .library.capabilities import *  # noqa: F403
from .library.capabilities import __all__ as __all__
