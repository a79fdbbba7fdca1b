"""LoRA adapters, compared with a model whose weights include the same matrices."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from eliza_ffi import CacheOptions, Model
from eliza_ffi.errors import InvalidArgumentError, ModelError, NativeFaultError
from eliza_ffi.library import Library

pytestmark = pytest.mark.slow

RANK, ALPHA, SCALE = 4, 6.0, 0.75
ADAPTED = ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.1.attn_output.weight")
PROMPT = list(range(40, 60))


def shapes_of(path: Path) -> dict[str, tuple[int, int]]:
    """Return [outputs, inputs] of the adapted tensors."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    return {name: tensors[name].data.shape for name in ADAPTED}


def write_adapter(path: Path, matrices: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    for name, (a, b) in matrices.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def matrices(plain_path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    return {
        name: (draw(RANK, n_in), draw(n_out, RANK))
        for name, (n_out, n_in) in shapes_of(plain_path).items()
    }


@pytest.fixture(scope="module")
def adapter(
    tmp_path_factory: pytest.TempPathFactory, matrices: dict[str, tuple[np.ndarray, np.ndarray]]
) -> Path:
    return write_adapter(tmp_path_factory.mktemp("lora") / "adapter.gguf", matrices)


@pytest.fixture(scope="module")
def merged(
    plain_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    matrices: dict[str, tuple[np.ndarray, np.ndarray]],
) -> Path:
    path = tmp_path_factory.mktemp("merged") / "merged.gguf"
    shutil.copyfile(plain_path, path)
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name in matrices:
            a, b = matrices[tensor.name]
            tensor.data[:] += SCALE * ALPHA / RANK * (b @ a)
    reader.data.flush()
    return path


def logprobs_of(model: Model) -> Any:
    found = model.generate(PROMPT, 12, logprobs=3, cache=CacheOptions(type_k="f32", type_v="f32"))
    assert found.logprobs is not None
    return found.tokens, [
        [entry.logprob, *(e.logprob for e in entry.top)] for entry in found.logprobs
    ]


def test_an_adapter_equals_merged_weights(
    library: Library, plain_path: Path, adapter: Path, merged: Path
) -> None:
    with (
        Model(merged, library=library, n_threads=1) as expected,
        Model(plain_path, library=library, n_threads=1, lora=[(adapter, SCALE)]) as adapted,
        Model(plain_path, library=library, n_threads=1) as plain,
    ):
        tokens, logprobs = logprobs_of(adapted)
        expected_tokens, expected_logprobs = logprobs_of(expected)
        assert tokens == expected_tokens
        np.testing.assert_allclose(logprobs, expected_logprobs, atol=2e-3)
        assert not np.allclose(logprobs_of(plain)[1][0], logprobs[0], atol=0.05), (
            "the adapter has an effect"
        )

        labels = ["REPLY", "IGNORE", "SEND_MAIL", "SEND_NOTE"]
        ours = adapted.choose(PROMPT, labels, probabilities=True)
        theirs = expected.choose(PROMPT, labels, probabilities=True)
        assert ours.probabilities is not None and theirs.probabilities is not None
        for name, probability in theirs.probabilities.items():
            assert ours.probabilities[name] == pytest.approx(probability, abs=2e-3)
        np.testing.assert_allclose(adapted.embed("text"), expected.embed("text"), atol=1e-3)
        described = adapted.describe()["model"]["lora"]
        assert described == [{"path": str(adapter), "scale": SCALE}]


def test_two_adapters_add_up(
    library: Library, plain_path: Path, adapter: Path, merged: Path
) -> None:
    halves = [(adapter, SCALE / 2), (adapter, SCALE / 2)]
    with (
        Model(merged, library=library, n_threads=1) as expected,
        Model(plain_path, library=library, n_threads=1, lora=halves) as adapted,
    ):
        np.testing.assert_allclose(logprobs_of(adapted)[1], logprobs_of(expected)[1], atol=2e-3)


def test_a_saved_prompt_belongs_to_its_adapter(
    library: Library, plain_path: Path, adapter: Path, tmp_path: Path
) -> None:
    with Model(plain_path, library=library, n_threads=1, lora=[(adapter, SCALE)]) as adapted:
        adapted.save_prompt_cache(tmp_path / "slot", PROMPT)
        assert adapted.load_prompt_cache(tmp_path / "slot") == len(PROMPT)
    with (
        Model(plain_path, library=library, n_threads=1) as plain,
        pytest.raises(NativeFaultError, match="another model"),
    ):
        plain.load_prompt_cache(tmp_path / "slot")


def test_invalid_adapters_are_rejected(
    library: Library, plain_path: Path, adapter: Path, tmp_path: Path
) -> None:
    def load(*lora: Any) -> None:
        Model(plain_path, library=library, lora=lora).close()

    with pytest.raises(ModelError, match=r"missing\.gguf"):
        load((tmp_path / "missing.gguf", 1.0))
    with pytest.raises(ModelError, match="LoRA adapter .*expect general.type to be 'adapter'"):
        load((plain_path, 1.0))
    wrong = {"blk.9.attn_q.weight": (np.ones((2, 64), "f4"), np.ones((64, 2), "f4"))}
    with pytest.raises(ModelError, match=r"wrong\.gguf"):
        load((write_adapter(tmp_path / "wrong.gguf", wrong), 1.0))
    misshapen = {ADAPTED[0]: (np.ones((2, 63), "f4"), np.ones((64, 2), "f4"))}
    with pytest.raises(ModelError, match=r"misshapen\.gguf"):
        load((write_adapter(tmp_path / "misshapen.gguf", misshapen), 1.0))
    with pytest.raises(InvalidArgumentError, match="a pair of a file and a scale"):
        load(str(adapter))
    for bad in (("x",), (3, 1.0), ("x", "y"), ("\udcff", 1.0), (str(adapter), math.nan)):
        with pytest.raises(InvalidArgumentError, match="scale"):
            load(bad)
    for bad in ("{}", "[1]", '[{"path": ""}]', '[{"scale": 1}]', '[{"path": "x", "scale": "1"}]'):
        with pytest.raises(InvalidArgumentError, match="lora"):
            Model(plain_path, library=library, options={"lora": bad})
