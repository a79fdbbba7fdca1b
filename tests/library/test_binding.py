"""Direct calls of the native library: buffers, leaves, masks, errors, closed handles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import (
    AbiMismatchError,
    BusyError,
    ContextFullError,
    GenerationCancelledError,
    InvalidArgumentError,
    ModelError,
    NativeFaultError,
    NotSupportedError,
    OutOfMemoryError,
    error_from_status,
)
from eliza_ffi.library import binding as binding_module
from eliza_ffi.library import cffi_values
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library
from eliza_ffi.library.protocol import Hidden, StreamConfig, StreamStep


@pytest.fixture(scope="session")
def binding(library: Library) -> CffiBinding:
    return CffiBinding(library)


@pytest.fixture(scope="session")
def ctx(binding: CffiBinding, random_model_path: Callable[..., Path]) -> Iterator[Any]:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    ctx = binding.create(str(path))
    binding.set_option(ctx, "n_ctx", "512")
    binding.set_option(ctx, "n_threads", "1")
    yield ctx
    binding.destroy(ctx)


@pytest.fixture
def stream(binding: CffiBinding, ctx: Any) -> Iterator[Any]:
    stream = binding.open(ctx, StreamConfig(max_tokens=6))
    binding.prefill(stream, [1, 5, 9])
    yield stream
    binding.close(stream)


def leaf_payload(*leaves: tuple[str, list[int]]) -> str:
    listed = [{"name": name, "tokens": tokens} for name, tokens in leaves]
    return json.dumps({"modelId": "m", "descriptors": [{"path": "p", "leaves": listed}]})


def test_the_text_buffer_grows_if_a_token_does_not_fit(
    binding: CffiBinding, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cffi_values, "TEXT_CAP", 1)
    small = cffi_values.CffiStream(stream.ctx)
    small.pointer = stream.pointer
    steps: list[StreamStep] = []
    while not steps or not steps[-1].done:
        steps.append(binding.next(small))
    assert sum(len(step.tokens) for step in steps) == 6
    assert "".join(step.text for step in steps)
    assert small.text_cap > 1


def test_streams_are_freed_without_cffis_private_gc(library: Library, tmp_path: Path) -> None:
    """Three streams use the only slot in turn. The first is closed, the second only deleted."""
    program = (
        "import _cffi_backend, cffi\n"
        "gc = _cffi_backend.gcp\n"
        "del _cffi_backend.gcp\n"
        "cffi.FFI.gc = lambda self, cdata, destructor, size=0: gc(cdata, destructor, size)\n"
        "from eliza_ffi.errors import BusyError\n"
        "from eliza_ffi.library.binding import CffiBinding\n"
        "from eliza_ffi.library.loading import Library\n"
        "from eliza_ffi.library.protocol import StreamConfig\n"
        "from eliza_ffi.model import Model\n"
        "with Model(n_slots=1, options={'slot_wait_ms': '0'}) as model:\n"
        "    binding, ctx = model.binding, model.session.ctx\n"
        "    stream = binding.open(ctx, StreamConfig())\n"
        "    try:\n"
        "        binding.open(ctx, StreamConfig())\n"
        "        raise SystemExit('a second stream was opened')\n"
        "    except BusyError:\n"
        "        pass\n"
        "    binding.close(stream)\n"
        "    stream = binding.open(ctx, StreamConfig())\n"
        "    del stream\n"
        "    print(model.choose('x', ['a', 'b']).value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, LIBRARY_VARIABLE: str(library.path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout in ("a\n", "b\n"), done.stderr


def test_the_text_buffer_has_a_maximum_size(
    binding: CffiBinding, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding_module, "LARGEST_TEXT_CAP", 1)
    stream.text_cap = 1
    with pytest.raises(InvalidArgumentError, match="text_cap: expected room"):
        for _ in range(6):
            binding.next(stream)


def test_returning_true_from_the_token_callback_cancels(binding: CffiBinding, stream: Any) -> None:
    seen: list[int] = []

    def on_token(token: int, text: str) -> bool:
        seen.append(token)
        return len(seen) == 2

    with pytest.raises(GenerationCancelledError):
        binding.generate(stream, 0, on_token)
    assert len(seen) == 2


def test_the_leaf_is_available_after_the_span_has_ended(binding: CffiBinding, stream: Any) -> None:
    assert binding.token_trie_leaf(stream) is None
    name = "a name of more than 256 bytes " * 20
    binding.set_token_trie(stream, leaf_payload((name, [300, 301])), 0)
    assert binding.next(stream).tokens == (300,)
    assert binding.token_trie_leaf(stream) is None
    assert binding.stats(stream).trie_active
    assert binding.next(stream).tokens == (301,)
    leaf = binding.token_trie_leaf(stream)
    assert leaf is not None
    assert leaf.name == name
    assert leaf.logprob == 0.0
    assert not binding.stats(stream).trie_active


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (-1, NotSupportedError),
        (-2, InvalidArgumentError),
        (-3, ModelError),
        (-4, NativeFaultError),
        (-5, OutOfMemoryError),
        (-6, AbiMismatchError),
        (-7, GenerationCancelledError),
        (-8, BusyError),
        (-9, ContextFullError),
        (-10, InvalidArgumentError),
        (-99, NativeFaultError),
    ],
)
def test_each_status_has_an_exception_class(status: int, kind: type[Exception]) -> None:
    error = error_from_status(status, "", "open a door")
    assert type(error) is kind
    assert str(error).startswith("cannot open a door: ")
    assert str(error).endswith(f"(status {status})")
    said = error_from_status(status, " the door is stuck\n", "open a door")
    assert str(said) == f"cannot open a door: the door is stuck (status {status})"


def test_words_in_a_path_do_not_affect_the_error_class(
    binding: CffiBinding, tmp_path: Path
) -> None:
    for words in ("context full", "out of memory", "in use by", "not fit the context"):
        with pytest.raises(ModelError, match=words):
            binding.create(str(tmp_path / words / "model.gguf"))
        ctx = binding.create(str(default_model_path()))
        stream = binding.open(ctx, StreamConfig())
        with pytest.raises(NativeFaultError, match=words):
            binding.restore_slot(stream, str(tmp_path / words))
        binding.close(stream)
        binding.destroy(ctx)


def test_errors_are_subclasses_of_standard_exceptions() -> None:
    assert issubclass(InvalidArgumentError, ValueError)
    assert issubclass(OutOfMemoryError, MemoryError)


def test_a_failed_open_raises_the_exception_of_its_status(library: Library) -> None:
    binding = CffiBinding(library)
    ctx = binding.create(str(default_model_path()))
    for key, value in {"n_slots": "1", "slot_wait_ms": "0"}.items():
        binding.set_option(ctx, key, value)
    with pytest.raises(InvalidArgumentError, match="cannot open a stream: .*gbnf"):
        binding.open(ctx, StreamConfig(gbnf_grammar="root ::= in use by ("))
    only = binding.open(ctx, StreamConfig())
    with pytest.raises(BusyError, match="cannot open a stream: "):
        binding.open(ctx, StreamConfig())
    binding.close(only)
    binding.destroy(ctx)


def test_a_leaf_name_above_the_maximum_buffer_size_raises(
    binding: CffiBinding, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding_module, "LARGEST_TEXT_CAP", 256)
    binding.set_token_trie(stream, leaf_payload(("n" * 300, [300])), 0)
    binding.next(stream)
    with pytest.raises(NativeFaultError, match="cannot read the leaf's name"):
        binding.token_trie_leaf(stream)


# ---- Embeddings of several texts, means of hidden states, rerankers ----------------------------


@pytest.mark.parametrize("wrong_range", [(0, 3), (-1, 1), (0,), (0, 1, 2), "01", (1, 1)])
def test_a_wrong_range_of_hidden_states_is_named(
    binding: CffiBinding, ctx: Any, wrong_range: Any
) -> None:
    hidden = Hidden((1,), ((0, 1), wrong_range), n_embd=64)
    with pytest.raises(InvalidArgumentError, match=r"ranges\[1\]"):
        binding.decide(ctx, binding.decision(StreamConfig(), [7, 11], hidden=hidden))


def test_a_model_without_the_pooling_of_rerankers_cannot_rerank(
    binding: CffiBinding, ctx: Any
) -> None:
    with pytest.raises(NotSupportedError, match="the model is not a reranker"):
        binding.rerank(ctx, "query", ["document"])
