"""Token trees are in :mod:`eliza_ffi.choices`; this name stays for those who import it."""

from .choices.token_tree import *  # noqa: F403
from .choices.token_tree import __all__ as __all__
