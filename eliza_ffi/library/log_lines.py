"""Forward log lines of the library and of llama.cpp to the logger ``eliza_ffi.native``."""

from __future__ import annotations

import atexit
import functools
import logging
import threading
from typing import Any

logger = logging.getLogger("eliza_ffi.native")
# Without this handler, Python writes warnings to stderr if the program has not set up logging.
logger.addHandler(logging.NullHandler())

# llama.cpp writes about 90 lines at its level INFO while it loads a model; our own library, none.
LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}

_of_thread = threading.local()
interrupts: dict[int, KeyboardInterrupt] = {}
"""The interrupts that arrived in a log callback, by thread. Nearly always empty."""


def forward_log_lines(ffi: Any, lib: Any) -> None:
    """Forward the log lines of a library from now on, if the program has set up logging.

    That is the case if a handler, other than a NullHandler, would receive them.
    """
    current: logging.Logger | None = logger
    while current is not None:
        for handler in current.handlers:
            if not isinstance(handler, logging.NullHandler):
                _forward(ffi, lib)
                return
        current = current.parent if current.propagate else None


def raise_interrupt() -> None:
    """Raise the KeyboardInterrupt that arrived in the log callback during a C call, if any."""
    if interrupts and (error := interrupts.pop(threading.get_ident(), None)) is not None:
        raise error


@functools.cache
def _forward(ffi: Any, lib: Any) -> None:
    setter = lib.eliza_inference_set_log_callback
    setter(_log_callback(ffi), ffi.NULL)
    # The library must not call Python while the interpreter shuts down.
    atexit.register(setter, ffi.NULL, ffi.NULL)


@functools.cache
def _log_callback(ffi: Any) -> Any:
    def on_text(number: int, text: Any, user: Any) -> None:
        try:
            _log(LEVELS.get(number, logging.DEBUG), ffi.string(text).decode("utf-8", "replace"))
        except KeyboardInterrupt as error:  # must not propagate through C code
            interrupts[threading.get_ident()] = error

    return ffi.callback("eliza_log_callback", on_text)


def _log(level: int, text: str) -> None:
    # llama.cpp writes some lines in several pieces, and prints dots while it loads a model.
    line = getattr(_of_thread, "line", "") + text
    is_whole = line.endswith("\n") or level >= logging.WARNING
    _of_thread.line = "" if is_whole else line
    if is_whole and line.strip(" .\n"):
        logger.log(level, "%s", line.strip())
