"""The check of all architectures finds faults, and survives processes that die or hang."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import check_architectures
import pytest
from backend_suite.comparing import Subject
from backend_suite.every_use import WAYS
from check_architectures import check

from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow


def test_one_architecture_is_checked_in_every_way(
    library: Library, random_model_path: Callable[..., Path], tmp_path: Path
) -> None:
    model = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    shutil.copy(model, tmp_path / "model.gguf")
    writer = tmp_path / "writer"  # takes the place of write_architectures
    writer.write_text(
        f"#!{sys.executable}\nimport shutil, sys\n"
        "name, file = sys.argv[3], f'{sys.argv[2]}/{sys.argv[3]}.gguf'\n"
        f"print(name, shutil.copy('{tmp_path}/model.gguf', file), sep=': ')\n",
        encoding="utf-8",
    )
    writer.chmod(0o700)
    subject = Subject(library.path, 0, check_architectures.OPTIONS)
    report = check("llama", writer, tmp_path, subject)
    assert (report.verdict, report.why) == ("exact", "")
    # Five questions in all strategies; in four rounds together, in two ways; as endings; with
    # masks, in two ways. Three prompts are restored.
    assert report.n_choices == 5 * len(WAYS) + 4 * 2 * 5 + 3 + 5 + 2 * 5
