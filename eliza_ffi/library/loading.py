"""Find, load and probe libelizainference. Its functions are those that the C header declares."""

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
from ..errors import AbiMismatchError, LibraryLoadError, LibraryNotFoundError, NotSupportedError
from .abi import ABI_VERSION, PREFIX, REQUIRED_SYMBOLS, SUPPLEMENT
from .log_lines import forward_log_lines

__all__ = [
    "ABI_VERSION",
    "LIBRARY_VARIABLE",
    "PREFIX",
    "REQUIRED_SYMBOLS",
    "Library",
    "cdef_from_header",
    "declared_functions",
    "find_library",
    "header_ffi",
]

LIBRARY_VARIABLE = "ELIZA_FFI_LIBRARY"
"""The environment variable with the path of the library to load."""

TRUST_VARIABLE = "ELIZA_TRUST_BUNDLE"

C_TYPES = (
    *("char **", "char *[]", "char[]", "double *", "double[]", "eliza_choice_t *"),
    *(
        "eliza_decide_t",
        "eliza_decide_t *",
        "eliza_ending_t *",
        "eliza_ending_t[]",
        "eliza_finish_reason",
        "eliza_llm_stream_config_t",
    ),
    *("eliza_llm_stream_config_t *", "eliza_llm_stream_stats_t", "eliza_llm_stream_stats_t *"),
    *("eliza_log_callback", "eliza_progress_callback", "eliza_rank_options_t"),
    *("eliza_rank_options_t *", "eliza_ranked_t[]", "eliza_ranking_t *", "eliza_strategy"),
    *("eliza_token_callback", "eliza_token_logprob_t[]", "eliza_verifier_callback", "float *"),
    *("float[]", "int *", "int **", "int32_t *", "int32_t[]", "int64_t *", "int64_t[]", "int[]"),
    *("size_t *", "uint32_t[]", "uint64_t *", "uint64_t[]", "uint8_t[]"),
)
"""Every C type whose name this folder passes to cffi."""


def cdef_from_header(header: str) -> str:
    """Convert the text of the C header to declarations for ``cffi.FFI.cdef``, without comments,
    preprocessor lines, ``#ifdef __cplusplus`` blocks and ``ELIZA_API``."""
    text = re.sub(r"/\*.*?\*/", "", check_text("header", header), flags=re.DOTALL)
    lines = []
    in_cplusplus = False
    for line in text.splitlines():
        directive = line.lstrip()
        if directive.startswith("#"):
            if directive.startswith("#ifdef __cplusplus"):
                in_cplusplus = True
            elif directive.startswith("#endif"):
                in_cplusplus = False
        elif not in_cplusplus and line.strip():
            lines.append(line.replace("ELIZA_API ", ""))
    return "\n".join(lines) + "\n"


def declared_functions(header: str) -> tuple[str, ...]:
    """Return the names of the functions that the header declares, in the header's order."""
    text = re.sub(r"/\*.*?\*/", "", check_text("header", header), flags=re.DOTALL)
    return tuple(re.findall(r"^ELIZA_API\b[^;({]*?\b(\w+)\s*\(", text, flags=re.MULTILINE))


@functools.cache
def header_ffi() -> tuple[Any, tuple[str, ...]]:
    """Return the FFI object of this process and the names of the header's functions."""
    header = _resources.header_text()
    ffi: Any = cffi.FFI()  # Any, because a type checker cannot know the C declarations
    ffi.cdef(cdef_from_header(header) + "".join(f"int {name}(void);" for name in SUPPLEMENT))
    # Parse all types now: an interrupt while cffi parses a type leaves its parser locked for ever.
    for c_type in C_TYPES:
        ffi.typeof(c_type)
    return ffi, declared_functions(header)


def library_file_name() -> str:
    if sys.platform == "win32":
        return "elizainference.dll"
    return "libelizainference.dylib" if sys.platform == "darwin" else "libelizainference.so"


def find_library(
    path: str | os.PathLike[str] | None = None,
    bundle: str | os.PathLike[str] | None = None,
    *,
    trust_bundle: bool | None = None,
) -> Path:
    """Return the path of the library to load.

    The search order is: `path`; the environment variable ``ELIZA_FFI_LIBRARY``; this package;
    ``build/cpu`` of a source checkout, or else an installed package; ``lib/`` of the model bundle,
    if the bundle is trusted. A library can run any code, so load it only from a bundle whose author
    you trust.

    >>> "elizainference" in find_library().name
    True

    Parameters
    ----------
    path
        The library's file. The other places are not searched.
    bundle
        A model bundle directory. The path or name of a model is also accepted, but has no effect.
    trust_bundle
        Whether to load the library in the bundle. None = only if ``ELIZA_TRUST_BUNDLE`` is ``1``.

    Raises
    ------
    LibraryNotFoundError
        If no library is found, or if `path` or the environment variable names a missing file. Such
        a file is never skipped in favour of another place.
    """
    if bundle is not None:
        check_path("bundle", bundle)
    if trust_bundle is not None:
        trust_bundle = check_flag("trust_bundle", trust_bundle)
    if path is not None:
        return _named_file(Path(check_path("path", path)), "the library path given")
    variable = os.environ.get(LIBRARY_VARIABLE)
    if variable:
        return _named_file(Path(variable), f"{LIBRARY_VARIABLE}={variable}")
    if trust_bundle is None:
        trust_bundle = os.environ.get(TRUST_VARIABLE) == "1"
    in_bundle = None
    if bundle is not None:
        in_bundle = Path(bundle).expanduser() / "lib" / library_file_name()
    candidates = list(_candidates())
    if in_bundle is not None and trust_bundle:
        candidates.append(in_bundle)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    searched = ", ".join(str(candidate) for candidate in candidates)
    untrusted = ""
    if in_bundle is not None and not trust_bundle and in_bundle.is_file():
        untrusted = (
            f". The bundle has a library, {in_bundle}: if you trust the bundle's author, "
            f"set {TRUST_VARIABLE}=1 to load it"
        )
    raise LibraryNotFoundError(
        f"{library_file_name()} not found; looked at: {searched}. "
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
        # A program in the root of a checkout imports the sources even if the package is installed.
        installed = (each / "eliza_ffi" / "lib" / name for each in _resources.import_folders())
        yield from filter(Path.is_file, installed)


@functools.cache
def _loaded(path: Path, _identity: tuple[int, int]) -> Any:
    """Return cffi's object for a library file, cached until the file changes, because cffi keeps
    data about each function of a loaded library until the process ends."""
    ffi, _ = header_ffi()
    try:
        # RTLD_LOCAL, so that another llama.cpp in this process keeps its own symbols.
        return ffi.dlopen(str(path), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
    except OSError as error:
        # cffi appends a list of other places that it tried, which misleads if a path was given.
        reason = str(error).partition(".  Additionally")[0]
        raise LibraryLoadError(reason) from error


class Library:
    """A loaded libelizainference.

    Attributes
    ----------
    path : Path
        The file of the library.
    abi_version : str
        The version that the library reports, such as ``"12"``.
    functions : frozenset of str
        The names of the functions that the library has.
    missing_symbols : tuple of str
        Functions that the header declares and this library lacks, in the header's order.
    is_elizaos : bool
        Whether this is elizaOS's own library, or another one of the same name. Such a library may
        crash on a closed handle, or when two calls run on one stream at the same time. This
        project's library returns an error instead. It is recognized by its function ``last_error``.
    ffi, lib
        The cffi objects. Only :mod:`eliza_ffi.library` should use them.

    Raises
    ------
    LibraryNotFoundError
        See :func:`find_library`.
    LibraryLoadError
        If the dynamic linker cannot load the file, or a required function is missing.
    AbiMismatchError
        If the library's ABI version is not 12.
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
        self.functions = frozenset(n for n in (*declared, *SUPPLEMENT) if hasattr(self.lib, n))
        self.missing_symbols = tuple(name for name in declared if name not in self.functions)
        self.is_elizaos = "eliza_inference_last_error" not in self.functions
        self._check_required_symbols()
        self.abi_version = self._checked_abi_version()
        self.forward_log_lines()

    def forward_log_lines(self) -> None:
        """Forward the library's log lines from now on, if the program has set up logging."""
        if not self.is_elizaos:
            forward_log_lines(self.ffi, self.lib)

    def has(self, symbol: str) -> bool:
        """Return whether the library has a function of this name."""
        if not isinstance(symbol, str):
            check_text("symbol", symbol)
        return symbol in self.functions

    def need(self, symbol: str) -> None:
        """Raise :class:`~eliza_ffi.errors.NotSupportedError` if the library lacks a function."""
        if self.has(symbol):
            return
        raise NotSupportedError(f"{self.path} has no {symbol}")

    def probe(self, symbol: str) -> bool:
        """Call a function such as ``..._supported``; return whether it exists and is not 0."""
        return self.has(symbol) and int(getattr(self.lib, symbol)()) > 0

    def _check_required_symbols(self) -> None:
        missing = [name for name in REQUIRED_SYMBOLS if name not in self.functions]
        if missing:
            raise LibraryLoadError(
                f"{self.path} is not a usable libelizainference: it lacks {', '.join(missing)}"
            )

    def _checked_abi_version(self) -> str:
        pointer = self.lib.eliza_inference_abi_version()
        text = self.ffi.string(pointer).decode("utf-8", "replace") if pointer else ""
        if text != str(ABI_VERSION):
            raise AbiMismatchError(
                f"{self.path}: expected ABI version {ABI_VERSION}, got {text!r}; load another "
                "build of the library, or another version of eliza-ffi"
            )
        return text
