"""The model in the repository matches its README."""

from __future__ import annotations

import hashlib
import re

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

MODELS = ROOT / "models"
README = (MODELS / "README.md").read_text(encoding="utf-8")


def test_the_model_has_the_size_and_checksum_in_the_readme() -> None:
    """It is at most 5 MB."""
    content = (MODELS / "eliza-tiny.gguf").read_bytes()
    assert len(content) <= 5_000_000
    assert hashlib.sha256(content).hexdigest() in README
    assert f"{len(content):,} bytes" in README


def test_the_model_has_the_properties_in_the_readme(library: Library) -> None:
    with Model(library=library) as model:
        facts = model.describe()["model"]
    vocabulary = re.search(r"BPE, ([\d,]+) tokens", README)
    assert vocabulary is not None
    assert facts["n_vocab"] == int(vocabulary[1].replace(",", ""))
    assert facts["n_ctx_train"] == 2048
    assert f"{facts['n_params'] / 1e6:.2f} million weights" in README
    assert facts["has_chat_template"]
