"""What can be seen of a model's path before the library opens it, and is said in better words."""

from __future__ import annotations

import stat
from pathlib import Path

from ..errors import ModelError

__all__ = ["check_model_path"]

TEXT_FOLDER = "text"
"""Where a bundle has its language model."""

MOST_NAMED = 3
"""Of the models in a folder that an error names."""


def check_model_path(path: str) -> None:
    """Raise ModelError for an empty file, and for a folder that is not a bundle.

    The library finds out what else may be wrong with a path when it opens it.
    """
    place = Path(path)
    try:
        status = place.stat()
        is_folder = stat.S_ISDIR(status.st_mode)
        names = sorted(each.name for each in place.iterdir()) if is_folder else []
    except OSError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise ModelError(
            f"the model {path} is an empty file: expected a GGUF file, got 0 bytes; fetch it again"
        )
    if is_folder and TEXT_FOLDER not in names:
        raise ModelError(
            f"the folder {path} is not a bundle: expected a .gguf file, or a folder with a model "
            f"in its folder {TEXT_FOLDER}/; {_next_step(names)}"
        )


def _next_step(names: list[str]) -> str:
    """Return what to do about a folder, by the names of the files in it."""
    models = [name for name in names if name.endswith(".gguf")]
    if models:
        listed = ", ".join(models[:MOST_NAMED]) + (", ..." if len(models) > MOST_NAMED else "")
        return f"pass the path of a model in it: {listed}"
    if any(name.endswith((".safetensors", ".bin")) for name in names):
        return (
            "its model is not in the GGUF format: fetch the model as a .gguf file, or convert it "
            "with llama.cpp's convert_hf_to_gguf.py"
        )
    return "there is no .gguf file in it"
