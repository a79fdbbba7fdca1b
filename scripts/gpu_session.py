"""Write the models that scripts/gpu_session.sh measures, and print their names and paths.

Real models come from the cache of fetch_real_models.py; nothing is downloaded. A real model that is
not there, and large models, get random weights in their shape: time depends on shapes only. A
matrix consists of blocks from a small pool, and is the same in all layers, so 16 GB take seconds.
REHEARSAL=1 writes tiny models.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import make_test_models
import numpy as np
from fetch_llama_cpp import cache_dir
from fetch_real_models import REAL_DATA
from make_test_models import Shape
from numpy.typing import NDArray

POOL = 4096
"""The different blocks of a matrix. The rows differ, so that two tokens do not get equal logits."""

# The shapes of SmolLM2-135M, Gemma 3 270M (with other heads), Llama 3.2 1B and Llama 3.1 8B, in the
# order of their importance.
_8B = Shape(4096, 32, 32, 8, 14336, context_length=8192)
MODELS = {
    "smollm2": ("gpt-2", Shape(576, 30, 9, 3, 1536, tensor_type="q8_0", tied=True)),
    "1B-f16": ("llama-bpe", Shape(2048, 16, 32, 8, 8192, context_length=8192, tied=True)),
    "8B-q4_k": ("llama-bpe", replace(_8B, tensor_type="q4_k")),
    "gemma3-270m": ("gemma-4", Shape(640, 18, 5, 1, 2048, tensor_type="q8_0", tied=True)),
    "8B-f16": ("llama-bpe", _8B),
}


def model_file(name: str) -> Path | None:
    """Return the file of a model, which is written if it is missing; None = the disk is full."""
    real = cache_dir() / "real" / name
    if name in REAL_DATA and (real / REAL_DATA[name].file_names[0]).exists():
        return real / REAL_DATA[name].file_names[0]
    is_tiny = "REHEARSAL" in os.environ
    file = cache_dir() / "gpu-session" / f"{name}-{'tiny' if is_tiny else 'random'}.gguf"
    if file.exists():
        return file
    vocab, shape = MODELS[name]
    if is_tiny:
        shape = replace(shape, n_embd=256, n_layers=2, n_heads=4, n_head_kv=2, n_ff=512)
    tokenizer = make_test_models.read_tokenizer(make_test_models.vocabulary_file(vocab))
    sizes = make_test_models.matrices(shape, len(tokenizer["tokenizer.ggml.tokens"].value)).values()
    file.parent.mkdir(parents=True, exist_ok=True)
    room = 2.2 * sum(rows * columns for rows, columns, _ in sizes)
    if room > shutil.disk_usage(file.parent).free:
        return None
    unfinished = file.with_suffix(".part")
    make_test_models.write_model(unfinished, f"random {name}", tokenizer, shape, pooled_matrix)
    _pooled.cache_clear()
    return unfinished.replace(file)


def pooled_matrix(shape: Shape, name: str, size: tuple[int, int], std: float) -> NDArray[Any]:
    """Return a matrix in the type of the model; the matrices of all layers are the same."""
    return _pooled(shape, name.rpartition(".")[2], size, std)


@functools.cache
def _pooled(shape: Shape, name: str, size: tuple[int, int], std: float) -> NDArray[Any]:
    block = make_test_models.BLOCKS.get(shape.tensor_type, 64)
    pool = make_test_models.stored_matrix(shape, name, (POOL, block), std)
    drawn = np.random.default_rng(shape.seed).integers(POOL, size=(size[0], size[1] // block))
    return pool[drawn].reshape(size[0], -1)


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        if file := model_file(name):
            print(name, file, flush=True)
        else:
            print(f"{name}: the disk has no room for it", file=sys.stderr)


if __name__ == "__main__":
    main()
