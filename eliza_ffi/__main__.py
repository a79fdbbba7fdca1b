"""``python -m eliza_ffi`` is the ``eliza-ffi`` command."""

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
