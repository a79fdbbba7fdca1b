"""A scripted model for the tests of calibrations and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_decisions import MakeModel, ScriptedModel, ask_scripted, scripted_settings

from eliza_ffi.learning import examples, fitting, report


@pytest.fixture
def scripted_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    """Return a function that makes a model with given scores, z[i] for the input "i".

    A mapping z has the scores for each question's instructions. Other inputs have equal scores.
    """
    monkeypatch.setattr(examples, "ask_many", ask_scripted)
    monkeypatch.setattr(fitting, "_features_for", lambda *_: ())
    for module in (fitting, report):
        monkeypatch.setattr(module, "settings_of_prompts", scripted_settings)
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF weights")

    def model(z: Any, **more: Any) -> ScriptedModel:
        def logits(given: Any, question: Any) -> Any:
            rows = z[question.instructions] if isinstance(z, dict) else z
            if given.isdigit():
                return rows[int(given)]
            return np.zeros(rows.shape[1])

        return ScriptedModel(path, logits, **more)

    return model
