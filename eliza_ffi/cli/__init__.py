"""The ``eliza-ffi`` command: a file for each of its commands."""

from __future__ import annotations

import sys

# Loading what the command is made of takes a moment, in which it may be interrupted, and fails
# where something it needs is not installed. Neither is worth a traceback.
try:
    from .main import main
except KeyboardInterrupt:
    sys.exit(130)
except ModuleNotFoundError as error:
    if error.name not in ("cffi", "jinja2", "numpy"):
        raise
    sys.exit(f"eliza-ffi: {error.name} is not installed, and is needed: pip install {error.name}")

__all__ = ["main"]
