"""The ``eliza-ffi`` command. Each of its commands has a module of its own."""

from __future__ import annotations

import sys

# Importing the modules takes a moment, during which the user may interrupt the command. The import
# fails if a dependency is not installed. Neither should print a traceback.
try:
    from .main import main
except KeyboardInterrupt:
    sys.exit(130)
except ModuleNotFoundError as error:
    if error.name not in ("cffi", "jinja2", "numpy"):
        raise
    sys.exit(f"eliza-ffi: {error.name} is required but not installed: pip install {error.name}")

__all__ = ["main"]
