"""Binary payloads are in :mod:`eliza_ffi.choices`; this name stays for those who import it."""

from .choices.rtkt import *  # noqa: F403
from .choices.rtkt import __all__ as __all__
