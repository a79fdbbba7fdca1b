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

from .. import _resources
from ..checks import check_flag, check_path, check_text
from ..errors import (
    AbiMismatchError,
    LibraryLoadError,
    LibraryNotFoundError,
    NotSupportedError,
)
from .abi import (
    ABI_VERSION,
    OLDEST_ABI_VERSION,
    PREFIX,
    REQUIRED_SYMBOLS,
    SINCE,
    SUPPLEMENT,
    supplement_to,
)
from .log_lines import forward_log_lines

__all__ = [
    "ABI_VERSION",
    "LIBRARY_VARIABLE",
    "OLDEST_ABI_VERSION",
    "PREFIX",
    "REQUIRED_SYMBOLS",
    "Library",
    "cdef_from_header",
    "declared_functions",
    "find_library",
    "header_ffi",
]

LIBRARY_VARIABLE = "ELIZA_INFERENCE_LIBRARY"
"""The environment variable that names the library to load."""

TRUST_VARIABLE = "ELIZA_TRUST_BUNDLE"

C_TYPES = (
    "char **",
    "char[]",
    "double *",
    "double[]",
    "eliza_ending_t[]",
    "eliza_finish_reason",
    "eliza_log_callback",
    "eliza_llm_stream_config_t",
    "eliza_llm_stream_config_t *",
    "eliza_llm_stream_stats_t",
    "eliza_llm_stream_stats_t *",
    "eliza_progress_callback",
    "eliza_strategy",
    "eliza_token_callback",
    "eliza_token_logprob_t[]",
    "eliza_verifier_callback",
    "float *",
    "float[]",
    "int *",
    "int **",
    "int32_t *",
    "int32_t[]",
    "int64_t *",
    "int64_t[]",
    "int[]",
    "size_t *",
    "uint8_t[]",
    "uint32_t[]",
    "uint64_t[]",
)
"""All that this room asks cffi for by name."""


def cdef_from_header(header: str) -> str:
    """Turn the text of the C header into declarations that ``cffi.FFI.cdef`` reads.

    Drops comments, preprocessor lines, what is inside ``#ifdef __cplusplus``, and ``ELIZA_API``.
    """
    text = re.sub(r"/\*.*?\*/", "", check_text("header", header), flags=re.DOTALL)
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
    text = re.sub(r"/\*.*?\*/", "", check_text("header", header), flags=re.DOTALL)
    return tuple(re.findall(r"^ELIZA_API\b[^;({]*?\b(\w+)\s*\(", text, flags=re.MULTILINE))


@functools.cache
def header_ffi() -> tuple[Any, tuple[str, ...]]:
    """Return the one FFI object of this process and the functions that the header declares."""
    header = _resources.header_path().read_text(encoding="utf-8")
    declarations = cdef_from_header(header)
    ffi: Any = cffi.FFI()  # what it makes of C is not known to a type checker
    ffi.cdef(declarations + supplement_to(declarations))
    # An interrupt while cffi reads a type would leave its parser locked for good.
    for c_type in C_TYPES:
        ffi.typeof(c_type)
    return ffi, declared_functions(header)


def library_file_name() -> str:
    """Return what the library's file is called on this platform."""
    if sys.platform == "win32":
        return "libelizainference.dll"
    return "libelizainference.dylib" if sys.platform == "darwin" else "libelizainference.so"


def find_library(
    path: str | os.PathLike[str] | None = None,
    bundle: str | os.PathLike[str] | None = None,
    *,
    trust_bundle: bool | None = None,
) -> Path:
    """Return the path of the library to load.

    Looked for in this order: `path`; the environment variable ``ELIZA_INFERENCE_LIBRARY``; inside
    this package; in ``build/cpu`` of a source checkout; in ``lib/`` of the model bundle, if that is
    trusted: a library is a program, and a bundle may come from anyone.

    Parameters
    ----------
    path
        Use this file and no other.
    bundle
        A model bundle directory, or the path of a model file, which has no ``lib/``.
    trust_bundle
        Whether to load what the bundle brings; None = if ``ELIZA_TRUST_BUNDLE`` is ``1``.

    Raises
    ------
    LibraryNotFoundError
        If there is none, or if a path that was asked for by name is not a file. Such a path is
        never skipped in favour of another.
    """
    if bundle is not None:
        check_path("bundle", bundle)
    if trust_bundle is not None:
        check_flag("trust_bundle", trust_bundle)
    if path is not None:
        return _named_file(Path(check_path("path", path)), "the library path given")
    variable = os.environ.get(LIBRARY_VARIABLE)
    if variable:
        return _named_file(Path(variable), f"{LIBRARY_VARIABLE}={variable}")
    if trust_bundle is None:
        trust_bundle = os.environ.get(TRUST_VARIABLE) == "1"
    brought = None if bundle is None else Path(bundle) / "lib" / library_file_name()
    candidates = list(_candidates())
    if brought is not None and trust_bundle:
        candidates.append(brought)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    untrusted = ""
    if brought is not None and not trust_bundle and brought.is_file():
        untrusted = (
            f"; the bundle's own, {brought}, is a program of whoever made the bundle: "
            f"set {TRUST_VARIABLE}=1 to load it"
        )
    raise LibraryNotFoundError(
        f"{library_file_name()} not found; looked at: {looked}. "
        f"Build it with 'make cpu', or set {LIBRARY_VARIABLE} to its path{untrusted}"
    )


def _named_file(path: Path, origin: str) -> Path:
    if not path.is_file():
        raise LibraryNotFoundError(f"{origin} is not a file: {path}")
    return path.resolve()


def _candidates() -> Iterable[Path]:
    name = library_file_name()
    for folder in _resources.package_folders():
        yield folder / "lib" / name
    root = _resources.checkout_root()
    if root is not None:
        yield root / "build" / "cpu" / name


@functools.cache
def _loaded(path: Path, _identity: tuple[int, int]) -> Any:
    """Return cffi's object for a file, one for as long as it is the same file.

    What cffi learns of a library's functions stays until the process ends.
    """
    ffi, _ = header_ffi()
    try:
        # Local, so that another llama.cpp in the process keeps its own symbols.
        return ffi.dlopen(str(path), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
    except OSError as error:
        # cffi adds what it looked for besides, which misleads where a path was given.
        reason = str(error).partition(".  Additionally")[0]
        raise LibraryLoadError(reason) from error


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
        The cffi objects. :mod:`eliza_ffi.library.binding` calls through them; nothing else should.

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
        trust_bundle: bool | None = None,
    ) -> None:
        self.path = find_library(path, bundle, trust_bundle=trust_bundle)
        self.ffi, declared = header_ffi()
        status = self.path.stat()
        self.lib: Any = _loaded(self.path, (status.st_ino, status.st_mtime_ns))
        self._present = frozenset(n for n in (*declared, *SUPPLEMENT) if hasattr(self.lib, n))
        self.missing_symbols = tuple(name for name in declared if name not in self._present)
        self._check_required_symbols()
        self.abi_version = self._checked_abi_version()
        if not self.is_older:
            forward_log_lines(self.ffi, self.lib)

    def has(self, symbol: str) -> bool:
        """Return whether the library has this function."""
        return check_text("symbol", symbol) in self._present

    def need(self, symbol: str) -> None:
        """Raise :class:`~eliza_ffi.errors.NotSupportedError` if it has not, naming both."""
        if self.has(symbol):
            return
        since = SINCE.get(symbol, 0)
        came = f", which came with version {since}" if since > self.version else ""
        raise NotSupportedError(
            f"{self.path} (ABI version {self.abi_version}) has no {symbol}{came}"
        )

    def probe(self, symbol: str) -> bool:
        """Return what a function such as ``..._supported`` answers; False where it is missing."""
        return self.has(symbol) and int(getattr(self.lib, symbol)()) == 1

    @property
    def version(self) -> int:
        """`abi_version` as a number."""
        return int(self.abi_version)

    @property
    def is_older(self) -> bool:
        """Whether this is an older version, or another library of the same name.

        Such a library may crash on a closed handle, or when two calls run on one stream at once.
        This project's library returns an error, and has ``last_error`` for the error's text.
        """
        return "eliza_inference_last_error" not in self._present

    def _check_required_symbols(self) -> None:
        missing = [name for name in REQUIRED_SYMBOLS if name not in self._present]
        if missing:
            raise LibraryLoadError(
                f"{self.path} is not a usable libelizainference: expected the functions that every "
                f"library of ABI version {OLDEST_ABI_VERSION} to {ABI_VERSION} has, "
                f"but it lacks {', '.join(missing)}"
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
