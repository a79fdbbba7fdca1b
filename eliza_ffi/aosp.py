"""elizaOS's binding on phones is in :mod:`eliza_ffi.library.elder`; this name stays."""

from .library.elder.aosp import *  # noqa: F403
from .library.elder.aosp import __all__ as __all__
