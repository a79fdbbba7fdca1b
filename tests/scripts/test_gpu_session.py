"""Models with pooled random weights, which `scripts/gpu_session.sh` measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gpu_session
import numpy as np
import pytest
from gpu_session import MODELS, model_file, pooled_matrix

from eliza_ffi.model import Model


@pytest.mark.parametrize("tensor_type", ["f16", "q8_0", "q4_k"])
def test_rows_of_a_pooled_matrix_differ(tensor_type: str) -> None:
    shape = replace(MODELS["8B-f16"][1], tensor_type=tensor_type)
    matrix = pooled_matrix(shape, "blk.0.attn_q", (500, 512), 1.0)
    assert len(np.unique(matrix, axis=0)) == 500
    assert pooled_matrix(shape, "blk.7.attn_q", (500, 512), 1.0) is matrix


def test_a_model_with_pooled_weights_ranks_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEARSAL", "1")
    monkeypatch.setattr(gpu_session, "cache_dir", lambda: tmp_path)
    file = model_file("smollm2")
    assert file is not None and file.parent == tmp_path / "gpu-session"
    with Model(file, n_ctx=128, n_slots=1) as model:
        ranked = model.rank("Next:", ["yes", "no", "perhaps"], 3)
    assert len(set(ranked.probabilities)) == 3 and sum(ranked.probabilities) == pytest.approx(1)
