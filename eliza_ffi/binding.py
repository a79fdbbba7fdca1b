"""The binding is in :mod:`eliza_ffi.library`; this name stays for those who import it."""

from .library.binding import *  # noqa: F403
from .library.binding import __all__ as __all__
