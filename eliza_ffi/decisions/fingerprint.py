"""Fingerprints, which identify a model in a calibration."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._lazy import once_for_each
from ..errors import ModelError
from ..structured.json_text import json_text
from .models.gguf_metadata import read_metadata

SAMPLES = 256
SAMPLE_BYTES = 4096

FACTS = ("n_params", "n_vocab", "n_layer", "n_embd", "chat_template", "add_bos")
"""The fields of a model's description that affect its answers and are equal on all machines."""


def fingerprint_of(model: Any) -> str:
    """Return the fingerprint of an open model, which does not depend on the path of its file.

    It has the size of the file and a hash of the model's dimensions and templates, of samples of
    its file and of each adapter's, and of given prefixes. Models that differ only between the
    samples have the same fingerprint. That of an encoder follows after a plus sign.
    """
    facts = model.describe()
    own = _fingerprint(facts["model"])
    return f"{own}+{_fingerprint(facts['encoder'])}" if "encoder" in facts else own


def _fingerprint(facts: Mapping[str, Any]) -> str:
    file = file_fingerprint(facts["path"])
    parts: list[Any] = [file, [facts.get(name) for name in FACTS]]
    if facts.get("decision_type"):
        entries = read_metadata(facts["path"], _is_of_decisions)
        parts.append(sorted((name, repr(value)) for name, value in entries.items()))
    for name in ("input_prefix", "option_prefix"):
        if name in facts:  # otherwise those of the model's family
            parts.append([name, facts[name]])
    for adapter in facts.get("lora") or ():
        parts.append([file_fingerprint(adapter["path"]), float(adapter["scale"]).hex()])
    return f"{file.partition('-')[0]}-{_digest(json_text(parts).encode())}"


fingerprint_once = once_for_each(fingerprint_of)
"""Return the fingerprint of a session, which is computed once."""


def _is_of_decisions(name: str) -> bool:
    return name == "tokenizer.chat_template.systemone" or ".decision." in name


def file_fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the size of a file and a hash of samples at 256 positions."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            samples = bytearray()
            for i in range(SAMPLES):
                file.seek(size // SAMPLES * i)
                samples += file.read(SAMPLE_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path} to compute its fingerprint: {error}") from error
    return f"{size}-{_digest(bytes(samples))}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
