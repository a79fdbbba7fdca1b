"""What the library and llama.cpp log, handed to :mod:`logging` as ``eliza_ffi.native``."""

from __future__ import annotations

import atexit
import functools
import logging
import threading
from typing import Any

__all__ = ["forward_log_lines", "raise_interrupt"]

logger = logging.getLogger("eliza_ffi.native")
# Else warnings would go to stderr where nobody has set logging up.
logger.addHandler(logging.NullHandler())

LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}

_of_thread = threading.local()


def forward_log_lines(ffi: Any, lib: Any) -> None:
    """Have a library log there from now on, if the program has set logging up by now."""
    if _is_listened_to():
        _forward(ffi, lib)


def raise_interrupt() -> None:
    """Raise what interrupted the logging during the call of C that has returned, if anything."""
    error = getattr(_of_thread, "interrupt", None)
    if error is not None:
        _of_thread.interrupt = None
        raise error


def _is_listened_to() -> bool:
    listening: logging.Logger | None = logger
    while listening is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in listening.handlers):
            return True
        listening = listening.parent if listening.propagate else None
    return False


@functools.cache
def _forward(ffi: Any, lib: Any) -> None:
    setter = lib.eliza_inference_set_log_callback
    setter(_log_callback(ffi), ffi.NULL)
    # No line may come once there is nobody to take it.
    atexit.register(setter, ffi.NULL, ffi.NULL)


@functools.cache
def _log_callback(ffi: Any) -> Any:
    def on_text(number: int, text: Any, user: Any) -> None:
        try:
            _log(LEVELS.get(number, logging.INFO), ffi.string(text).decode("utf-8", "replace"))
        except KeyboardInterrupt as error:  # which must not cross the C code
            _of_thread.interrupt = error

    return ffi.callback("eliza_log_callback", on_text)


def _log(level: int, text: str) -> None:
    # llama.cpp writes some lines in several pieces, and dots while it loads.
    line = getattr(_of_thread, "line", "") + text
    is_whole = line.endswith("\n") or level >= logging.WARNING
    _of_thread.line = "" if is_whole else line
    if is_whole and line.strip(" .\n"):
        logger.log(level, "%s", line.strip())
