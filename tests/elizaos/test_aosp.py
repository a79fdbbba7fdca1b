"""elizaOS's binding for phones: its names, its 88-byte configuration, and its optional trie."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from elizaos_fake import BYTES, ELIZAOS, STREAM, TEXT, TRIE, Fakes
from sync_runner import SyncRunner

from eliza_ffi._resources import default_model_path
from eliza_ffi.elizaos import FfiStreamingGenerateArgs
from eliza_ffi.elizaos.aosp import AospStreamingLlmBinding
from eliza_ffi.errors import ContextFullError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("aosp"))


def context_size_of(config: bytes) -> int:
    return int(struct.unpack_from("<i", config, 80)[0])


def test_a_generation_works_under_elizaos_names(fakes: Fakes, tmp_path: Path) -> None:
    fake = fakes(STREAM | {"llm_stream_save_slot", "llm_stream_restore_slot"})
    binding = AospStreamingLlmBinding(Library(fake.path), context_size=4096)
    assert binding.llm_stream_supported()
    ctx = binding.create("any")
    stream = binding.llm_stream_open(ctx, StreamConfig(max_tokens=24, top_k=40))
    assert struct.unpack_from("<iffi", fake.config) == (24, 0.0, 1.0, 40)
    assert context_size_of(fake.config) == 4096
    binding.llm_stream_prefill(stream, [1])
    tokens: list[int] = []
    while not (step := binding.llm_stream_next(stream)).done:
        tokens += step.tokens
    assert tuple(tokens) == BYTES
    binding.llm_stream_save_slot(stream, tmp_path / "slot")
    binding.llm_stream_restore_slot(stream, tmp_path / "slot")
    binding.llm_stream_cancel(stream)
    binding.llm_stream_close(stream)
    binding.destroy(ctx)
    assert fake.harm == ""


def test_a_stream_can_override_the_context_size(fakes: Fakes) -> None:
    fake = fakes(STREAM)
    binding = AospStreamingLlmBinding(Library(fake.path), context_size=4096)
    ctx = binding.create("any")
    for size, given in ((512, 512), (None, 4096), (0, 0)):
        binding.llm_stream_open(ctx, StreamConfig(), size)
        assert context_size_of(fake.config) == given
    for size in (-1, 2**31):
        with pytest.raises(InvalidArgumentError, match=rf"context_size must be .*, got {size}$"):
            binding.llm_stream_open(ctx, StreamConfig(), size)
    with pytest.raises(InvalidArgumentError, match=r"context_size must be .*, got 'x'$"):
        AospStreamingLlmBinding(Library(fake.path), context_size="x")  # type: ignore[arg-type]
    binding.destroy(ctx)


def test_the_trie_needs_both_of_its_functions(fakes: Fakes) -> None:
    for functions in (ELIZAOS, ELIZAOS | TRIE - {"clear_token_trie"}):
        binding = AospStreamingLlmBinding(Library(fakes(functions).path))
        assert binding.llm_stream_set_token_trie is None
        assert binding.llm_stream_clear_token_trie is None
    fake = fakes(ELIZAOS | TRIE)
    binding = AospStreamingLlmBinding(Library(fake.path))
    set_trie, clear_trie = binding.llm_stream_set_token_trie, binding.llm_stream_clear_token_trie
    assert set_trie is not None
    assert clear_trie is not None
    ctx = binding.create("any")
    stream = binding.llm_stream_open(ctx, StreamConfig())
    set_trie(stream, "{}", 0)
    clear_trie(stream)
    assert fake.calls[-2:] == ["set", "clear"]
    binding.destroy(ctx)


def test_support_follows_the_librarys_probes(fakes: Fakes) -> None:
    """A missing probe means "no", except for text generation, where it means "yes"."""
    newest = AospStreamingLlmBinding(Library(fakes(ELIZAOS).path))
    assert newest.llm_mtp_supported()
    assert newest.llm_kv_quant_supported()
    oldest = AospStreamingLlmBinding(Library(fakes(STREAM).path))
    assert oldest.llm_stream_supported()
    assert not oldest.llm_mtp_supported()
    assert not oldest.llm_kv_quant_supported()
    stub = AospStreamingLlmBinding(Library(fakes(ELIZAOS, "STUB").path))
    assert not stub.llm_stream_supported()


def test_a_runner_accepts_this_binding(fakes: Fakes) -> None:
    fake = fakes(STREAM)
    binding = AospStreamingLlmBinding(Library(fake.path), context_size=1024)
    ctx = binding.create("any")
    result = SyncRunner(binding, ctx).generate_with_usage(FfiStreamingGenerateArgs([1]))
    assert result.text == TEXT
    assert context_size_of(fake.config) == 1024
    binding.destroy(ctx)


def test_this_projects_library_uses_the_context_size(library: Library) -> None:
    binding = AospStreamingLlmBinding(library, context_size=256)
    ctx = binding.create(str(default_model_path()))
    stream = binding.llm_stream_open(ctx, StreamConfig())
    binding.llm_stream_prefill(stream, [5] * 250)
    with pytest.raises(ContextFullError, match="context"):
        binding.llm_stream_prefill(stream, [6] * 250)
    with pytest.raises(InvalidArgumentError, match="n_ctx"):
        binding.llm_stream_open(ctx, StreamConfig(), 512)
    binding.llm_stream_close(stream)
    binding.destroy(ctx)
