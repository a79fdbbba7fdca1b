"""Models for the tests of decisions: one without a chat template, and a scripted one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_decisions import MakeModel, ScriptedModel, ask_scripted, scripted_settings

from eliza_ffi import Model
from eliza_ffi.decisions import examples
from eliza_ffi.decisions.learning import fitting, report
from eliza_ffi.library import Library


@pytest.fixture(scope="session")
def plain_model(library: Library, random_model_path: Callable[..., Path]) -> Iterator[Model]:
    """Return a model without a chat template, with random weights in full precision."""
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1, tensor_type="f32")
    with Model(path, library=library, n_ctx=4096, n_threads=1) as model:
        yield model


@pytest.fixture
def scripted_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    """Return a function that makes a model with given scores, z[i] for the input "i".

    Other inputs have the scores `plain`. A mapping z has the scores for each question's
    instructions.
    """
    monkeypatch.setattr(examples, "ask_many", ask_scripted)
    monkeypatch.setattr(fitting, "_layers_for", lambda *_: ())
    for module in (fitting, report):
        monkeypatch.setattr(module, "settings_of_prompts", scripted_settings)
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF weights")

    def model(z: Any, plain: Any = None, **more: Any) -> ScriptedModel:
        def logits(given: Any, question: Any) -> Any:
            rows = z[question.instructions] if isinstance(z, dict) else z
            if given.isdigit():
                return rows[int(given)]
            return np.zeros(rows.shape[1]) if plain is None else plain

        return ScriptedModel(path, logits, **more)

    return model
