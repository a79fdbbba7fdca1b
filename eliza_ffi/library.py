"""Find, load and probe libelizainference.

The declarations come from the C header itself, so the header stays the one source of truth. Every
function it declares is looked up by name: a library of an earlier version lacks some of them, and
what it lacks is known before the first call instead of crashing in it.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cffi

from . import _resources
from .errors import AbiMismatchError, LibraryLoadError, LibraryNotFoundError

__all__ = [
    "ABI_VERSION",
    "LIBRARY_VARIABLE",
    "OLDEST_ABI_VERSION",
    "Library",
    "cdef_from_header",
    "declared_functions",
    "find_library",
    "header_ffi",
]

ABI_VERSION = 12
OLDEST_ABI_VERSION = 4
LIBRARY_VARIABLE = "ELIZA_INFERENCE_LIBRARY"

PREFIX = "eliza_inference_"

REQUIRED_SYMBOLS = (
    "eliza_inference_abi_version",
    "eliza_inference_create",
    "eliza_inference_destroy",
    "eliza_inference_free_string",
    "eliza_inference_llm_stream_open",
    "eliza_inference_llm_stream_prefill",
    "eliza_inference_llm_stream_close",
)
"""Without these nothing works; of ``next`` and ``generate``, one is needed too."""

PULL_SYMBOLS = ("eliza_inference_llm_stream_next", "eliza_inference_llm_stream_generate")


def cdef_from_header(header: str) -> str:
    """Turn the text of the C header into declarations that ``cffi.FFI.cdef`` reads.

    Drops comments, preprocessor lines, what is inside ``#ifdef __cplusplus``, and ``ELIZA_API``.
    """
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    kept = []
    in_cplusplus = False
    for line in text.splitlines():
        directive = line.lstrip()
        if directive.startswith("#"):
            if directive.startswith("#ifdef __cplusplus"):
                in_cplusplus = True
            elif directive.startswith("#endif"):
                in_cplusplus = False
        elif not in_cplusplus and line.strip():
            kept.append(line.replace("ELIZA_API ", ""))
    return "\n".join(kept) + "\n"


def declared_functions(header: str) -> tuple[str, ...]:
    """Return the names of the functions the header declares, in its order."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return tuple(re.findall(r"^ELIZA_API\b[^;({]*?\b(\w+)\s*\(", text, flags=re.MULTILINE))


@functools.cache
def header_ffi() -> tuple[Any, tuple[str, ...]]:
    """Return the one FFI object of this process and the functions declared in it."""
    header = _resources.header_path().read_text(encoding="utf-8")
    ffi: Any = cffi.FFI()  # what it makes of C is not known to a type checker
    ffi.cdef(cdef_from_header(header))
    return ffi, declared_functions(header)


def library_file_name() -> str:
    """Return what the library's file is called on this platform."""
    if sys.platform == "win32":
        return "libelizainference.dll"
    return "libelizainference.dylib" if sys.platform == "darwin" else "libelizainference.so"


def find_library(
    path: str | os.PathLike[str] | None = None, bundle: str | os.PathLike[str] | None = None
) -> Path:
    """Return the path of the library to load.

    Looked for in this order: `path`; the environment variable ``ELIZA_INFERENCE_LIBRARY``; inside
    this package; in ``build/cpu`` of a source checkout; in ``lib/`` of the model bundle.

    Parameters
    ----------
    path
        Use this file and no other.
    bundle
        A model bundle directory, or the path of a model file, which has no ``lib/``.

    Raises
    ------
    LibraryNotFoundError
        If there is none, or if a path that was asked for by name is not a file. Such a path is
        never skipped in favour of another.
    """
    if path is not None:
        return _named_file(Path(path), "the library path given")
    variable = os.environ.get(LIBRARY_VARIABLE)
    if variable:
        return _named_file(Path(variable), f"{LIBRARY_VARIABLE}={variable}")
    candidates = list(_candidates(bundle))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise LibraryNotFoundError(
        f"{library_file_name()} not found; looked at: {looked}. "
        f"Build it with 'make cpu', or set {LIBRARY_VARIABLE} to its path"
    )


def _named_file(path: Path, origin: str) -> Path:
    if not path.is_file():
        raise LibraryNotFoundError(f"{origin} is not a file: {path}")
    return path.resolve()


def _candidates(bundle: str | os.PathLike[str] | None) -> Iterable[Path]:
    name = library_file_name()
    for folder in _resources.package_folders():
        yield folder / "lib" / name
    root = _resources.checkout_root()
    if root is not None:
        yield root / "build" / "cpu" / name
    if bundle is not None:
        yield Path(bundle) / "lib" / name


class Library:
    """A loaded libelizainference.

    Attributes
    ----------
    path : Path
        The file it was loaded from.
    abi_version : str
        What the library says of itself, such as ``"12"``.
    missing_symbols : tuple of str
        Functions of the header that this library does not have, in the header's order.
    ffi, lib
        The cffi objects. :mod:`eliza_ffi.binding` calls through them; nothing else should.

    Raises
    ------
    LibraryNotFoundError
        See :func:`find_library`.
    LibraryLoadError
        If the dynamic linker refuses the file, or a required symbol is missing.
    AbiMismatchError
        If its ABI version is not between 4 and 12.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        bundle: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = find_library(path, bundle)
        self.ffi, declared = header_ffi()
        try:
            # Local, so that another llama.cpp in the process keeps its own symbols.
            self.lib: Any = self.ffi.dlopen(str(self.path), self.ffi.RTLD_NOW | self.ffi.RTLD_LOCAL)
        except OSError as error:
            # cffi adds what it looked for besides, which misleads where a path was given.
            reason = str(error).partition(".  Additionally")[0]
            raise LibraryLoadError(reason) from error
        self._present = frozenset(name for name in declared if hasattr(self.lib, name))
        self.missing_symbols = tuple(name for name in declared if name not in self._present)
        self._check_required_symbols()
        self.abi_version = self._checked_abi_version()

    def has(self, symbol: str) -> bool:
        """Return whether the library has this function of the header."""
        return symbol in self._present

    def _check_required_symbols(self) -> None:
        missing = [name for name in REQUIRED_SYMBOLS if name not in self._present]
        if not any(name in self._present for name in PULL_SYMBOLS):
            missing.append(" or ".join(PULL_SYMBOLS))
        if missing:
            raise LibraryLoadError(
                f"{self.path} is not a usable libelizainference: it lacks {', '.join(missing)}"
            )

    def _checked_abi_version(self) -> str:
        pointer = self.lib.eliza_inference_abi_version()
        text = self.ffi.string(pointer).decode("utf-8", "replace") if pointer else ""
        is_known = text.isdecimal() and OLDEST_ABI_VERSION <= int(text) <= ABI_VERSION
        if not is_known:
            raise AbiMismatchError(
                f"{self.path} speaks ABI version {text!r}; this package speaks "
                f"{ABI_VERSION} and accepts {OLDEST_ABI_VERSION} to {ABI_VERSION}"
            )
        return text
