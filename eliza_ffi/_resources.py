"""Find the files that come with the package, for every kind of installation.

The package may be installed from a wheel or in editable mode, or run from a source checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .errors import ElizaError


def package_folders() -> list[Path]:
    """Return the folders of the package; an editable install has two, the source and the build."""
    return [Path(folder) for folder in sys.modules[__package__].__path__]


def checkout_root() -> Path | None:
    """Return the source checkout that the package runs from, or None if it is installed."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() else None


def import_folders() -> list[Path]:
    """Return the folders in which Python searches for packages."""
    return [Path(folder) for folder in sys.path]


def header_path() -> Path:
    """Return the path of the library's C header, which includes ``eliza.h``."""
    header = Path("eliza") / "eliza_inference.h"
    return _first_file("C header", Path("include") / header, Path("native") / "include" / header)


def header_text() -> str:
    """Return the text of both C headers."""
    path = header_path()
    return "".join(each.read_text(encoding="utf-8") for each in (path.with_name("eliza.h"), path))


def default_model_path() -> Path:
    """Return the path of the embedded model, the small model that comes with the package."""
    model = Path("models") / "eliza-tiny.gguf"
    return _first_file("embedded model", model, model)


def _first_file(what: str, in_package: Path, in_checkout: Path) -> Path:
    candidates = [folder / in_package for folder in package_folders()]
    root = checkout_root()
    if root is not None:
        candidates.append(root / in_checkout)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise ElizaError(f"the {what} is missing from this installation; searched: {looked}")
