"""Saved prompts: generation resumes exactly, and unusable files are rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import CacheOptions
from eliza_ffi.errors import (
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    NativeFaultError,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

SYSTEM = "You are a careful assistant who weighs every word. " * 8 + "\n"
QUESTION = "What now?\nAnswer: "
SHAPE: dict[str, Any] = {"n_embd": 64, "n_layers": 2, "tensor_type": "f32"}
LABELS = ["REPLY", "SEND_EMAIL", "SEND_MESSAGE"]


@pytest.fixture(scope="module")
def model_path(random_model_path: Callable[..., Path]) -> Path:
    return random_model_path("llama-spm", n_heads=2, **SHAPE, seed=1)


@pytest.fixture(scope="module")
def new_model(library: Library, model_path: Path) -> Callable[..., Model]:
    def opened(**changes: Any) -> Model:
        return Model(**{"path": model_path, "library": library, "n_threads": 1, **changes})

    return opened


@pytest.fixture
def model(new_model: Callable[..., Model]) -> Iterator[Model]:
    with new_model() as model:
        yield model


@pytest.fixture
def file(new_model: Callable[..., Model], tmp_path: Path) -> Path:
    with new_model() as model:
        model.save_prompt_cache(tmp_path / "system.slot", SYSTEM)
    return tmp_path / "system.slot"


def test_a_restored_prompt_is_not_decoded_again(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    with new_model() as model:
        saved = model.save_prompt_cache(tmp_path / "Grüße.slot", SYSTEM)
        assert saved == len(model.tokenize(SYSTEM, add_special=True)) > 60
        expected = model.generate(SYSTEM + QUESTION, 20)
        choice = model.choose(SYSTEM + QUESTION, LABELS)
    with new_model() as model:
        assert model.load_prompt_cache(tmp_path / "Grüße.slot") == saved
        answer = model.generate(SYSTEM + QUESTION, 20)
        assert answer.tokens == expected.tokens
        assert answer.stats is not None
        assert answer.stats.prompt_tokens_reused >= saved - 1
    with new_model() as model:
        model.load_prompt_cache(str(tmp_path / "Grüße.slot"), cache=CacheOptions(key="room"))
        again = model.choose(SYSTEM + QUESTION, LABELS, cache=CacheOptions(key="room"))
        assert again.value == choice.value
        assert again.logprob == pytest.approx(choice.logprob, abs=1e-4)


# ---- Errors ------------------------------------------------------------------------------------


def test_files_of_other_models_or_of_too_many_tokens_are_rejected(
    model: Model,
    new_model: Callable[..., Model],
    random_model_path: Callable[..., Path],
    file: Path,
) -> None:
    assert model.save_prompt_cache(file, SYSTEM * 3) > 256
    other = random_model_path("llama-spm", n_heads=2, **SHAPE, seed=2)
    with new_model(path=other) as stranger, pytest.raises(ElizaError, match="another model"):
        stranger.load_prompt_cache(file)
    with new_model(n_ctx=256) as small:
        with pytest.raises((ContextFullError, InvalidArgumentError), match="context .* 256"):
            small.load_prompt_cache(file)
        with pytest.raises(ContextFullError):
            small.save_prompt_cache(file.with_name("long.slot"), SYSTEM * 3)
        assert small.generate(QUESTION, 3).tokens
    assert not file.with_name("long.slot").exists()


def test_a_failure_frees_the_slot_and_leaves_no_file(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    nowhere = tmp_path / "no" / "such" / "prompt.slot"
    with new_model(n_slots=2) as model:
        for _ in range(5):
            with pytest.raises(NativeFaultError, match=f"cannot save the slot {nowhere}: "):
                model.save_prompt_cache(nowhere, SYSTEM)
            with pytest.raises(NativeFaultError, match=f"cannot restore the slot {tmp_path}: "):
                model.load_prompt_cache(tmp_path)
        with pytest.raises(InvalidArgumentError, match="the prompt is empty"):
            model.save_prompt_cache(tmp_path / "empty.slot", [])
        assert model.generate(QUESTION, 3, cache=CacheOptions(slot=1)).tokens
    assert list(tmp_path.iterdir()) == []
