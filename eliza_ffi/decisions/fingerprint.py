"""What a calibration knows a model by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..structured.json_text import json_text
from .models.gguf_metadata import read_metadata

__all__ = ["file_fingerprint", "fingerprint_of"]

SAMPLES = 256
SAMPLE_BYTES = 4096

FACTS = ("n_params", "n_vocab", "n_layer", "n_embd", "chat_template", "add_bos")
"""What of a model's description changes its answers, and not with the machine or the path."""


def fingerprint_of(model: Any) -> str:
    """Return what tells a model from others: the same wherever its file lies.

    The file's size and a hash: of the model's dimensions and chat template, of the template and
    the temperatures of one that was made for decisions, of the file, and of each adapter's file
    with its scale. Files are read at 256 places, as the library does for saved prompts: two models
    that differ only between these are taken for one.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`.

    Raises
    ------
    ModelError
        If a file cannot be read, or what it says of decisions is damaged.
    """
    facts: Mapping[str, Any] = model.describe()["model"]
    file = file_fingerprint(facts["path"])
    parts: list[Any] = [file, [facts.get(name) for name in FACTS]]
    if facts.get("decision_type"):
        said = read_metadata(facts["path"], _is_of_decisions)
        parts.append(sorted((name, repr(value)) for name, value in said.items()))
    for adapter in facts.get("lora") or ():
        parts.append([file_fingerprint(adapter["path"]), float(adapter["scale"]).hex()])
    return f"{file.partition('-')[0]}-{_digest(json_text(parts).encode())}"


def _is_of_decisions(name: str) -> bool:
    return name == "tokenizer.chat_template.systemone" or ".decision." in name


def file_fingerprint(path: str | os.PathLike[str]) -> str:
    """Return a file's size and a hash of what is at 256 places in it.

    Raises
    ------
    ModelError
        If it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            samples = bytearray()
            for i in range(SAMPLES):
                file.seek(size // SAMPLES * i)
                samples += file.read(SAMPLE_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path} to know it again: {error}") from error
    return f"{size}-{_digest(bytes(samples))}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
