"""Find the file of a model: a local file, a cached file, or a download."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from ..errors import ModelError
from .caches import cached_file, cached_models, model_files
from .download import download
from .names import SUFFIX, HubName, listed, read_name, select, stem_of

__all__ = ["check_exists", "find_model", "name_for_workers"]

MOST_NEAR = 3
"""How many similar models the message about a missing one lists."""


def find_model(
    name: str | os.PathLike[str], progress: Callable[[str, float], None] | None = None
) -> str:
    """Return the path of a model, which is downloaded if it is in no cache.

    A path that does not exist, and the folder of a bundle, are returned unchanged.

    Parameters
    ----------
    name
        A path, or the name of a model in a repository; see :func:`.names.read_name`. In a folder
        of .gguf files, the model is selected as in a repository.
    progress
        Called with ``"download"`` and the fraction done, 0 to 1. None = huggingface_hub draws a
        progress bar if standard error is a terminal.

    Raises
    ------
    ModelError
        If the name selects no model or several, or the download fails.
    NotSupportedError
        If the model must be downloaded and huggingface_hub is not installed.
    InvalidArgumentError
        If `name` is malformed.
    """
    read = read_name(name)
    if isinstance(read, HubName):
        cached = cached_file(read)
        return download(read, progress) if cached is None else str(cached)
    folder = Path(read)
    if not folder.is_dir() or (folder / "text").is_dir():
        return read
    files = model_files(folder, "*.gguf")
    found = select(HubName(read), files)
    if len(found) > 1:
        raise ModelError(
            f"the folder {read} has {len(found)} models: pass the path of one: {listed(found)}"
        )
    return str(files[found[0]]) if found else read


def check_exists(read: str) -> None:
    """Raise ModelError if a path does not exist. The message lists similar models."""
    if os.path.lexists(read):
        return
    if address := re.search(r"(?:huggingface|hf)\.co/([\w.-]+/[\w.-]+)", read):
        raise ModelError(
            f"expected the name of a model without its site: {address[1]!r}, got {read!r}"
        )
    path = Path(read)
    files = model_files(path.parent, f"*{SUFFIX}")
    known = {stem_of(file): str(path.with_name(file)) for file in files}
    for model in cached_models():
        known.setdefault(stem_of(model.name.rpartition("/")[2]), model.name)
    stem = stem_of(path.name.partition(":")[0])  # Ollama writes tags after a colon
    near = [known[each] for each in known if stem.lower() in each.lower()]
    near = (near or [known[each] for each in get_close_matches(stem, known)])[:MOST_NEAR]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ModelError(
        f"no such file or directory: {path.absolute()}; expected a {SUFFIX} file, a folder with "
        f"one, or a model on Hugging Face, as org/repo or org/repo:QUANTIZATION{hint}"
    )


def name_for_workers(name: str | os.PathLike[str]) -> str:
    """Return a name that other processes can use: an absolute path, or a name in a repository."""
    read = read_name(name)
    return os.fspath(name) if isinstance(read, HubName) else str(Path(read).absolute())
