"""Planning is in :mod:`eliza_ffi.skeleton`; this name stays for those who import it."""

from .skeleton.planning import *  # noqa: F403
from .skeleton.planning import __all__ as __all__
