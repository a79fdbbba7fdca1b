"""Find the file of a model: a local file, a cached file, or a download."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import ModelError
from .caches import cached_file, model_files
from .download import download
from .names import HubName, listed, read_name, select

__all__ = ["find_model", "name_for_workers"]


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


def name_for_workers(name: str | os.PathLike[str]) -> str:
    """Return a name that other processes can use: an absolute path, or a name in a repository."""
    read = read_name(name)
    return os.fspath(name) if isinstance(read, HubName) else str(Path(read).absolute())
