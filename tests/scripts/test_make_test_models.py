"""Test models are reproducible, and have the tokenizer of the vocabulary they are made from."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader
from make_test_models import ModelError, make_model, read_metadata

from eliza_ffi._resources import default_model_path

pytestmark = pytest.mark.slow

VOCABULARY = default_model_path()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = make_model(str(VOCABULARY), tmp_path / "first.gguf", seed=7)
    second = make_model(str(VOCABULARY), tmp_path / "second.gguf", seed=7)
    assert first.read_bytes() == second.read_bytes()


def test_the_tokenizer_is_copied_unchanged(tmp_path: Path) -> None:
    model = make_model(str(VOCABULARY), tmp_path / "model.gguf")
    ours, original = (GGUFReader(file).fields for file in (model, VOCABULARY))
    names = [name for name in original if name.startswith("tokenizer.")]
    assert len(names) > 5
    for name in names:
        assert ours[name].contents() == original[name].contents(), name


def test_a_truncated_vocabulary_is_rejected(tmp_path: Path) -> None:
    whole = Path(VOCABULARY).read_bytes()
    for length in (1, 20, 100, 5000):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_metadata(tmp_path / "cut.gguf")
