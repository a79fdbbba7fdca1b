"""Libraries that lack functions: errors name missing functions, and all others work."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from elizaos_fake import ELIZAOS, GENERATE, REQUIRED, STREAM, TEXT, TRIE, Fakes, bound, opened
from sync_runner import SyncRunner

from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.elizaos import FfiStreamingGenerateArgs
from eliza_ffi.errors import (
    AbiMismatchError,
    InvalidArgumentError,
    LibraryLoadError,
    NotSupportedError,
    TokenTrieError,
)
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import PREFIX, Library
from eliza_ffi.library.protocol import StreamConfig


def payload(name: str) -> TokenTreePayload:
    return TokenTreePayload.from_json(
        '{"modelId":"m","descriptors":[{"path":"p","leaves":'
        f'[{{"name":"{name}","tokens":[65]}}]}}]}}'
    )


CALLS: dict[str, Callable[[CffiBinding, Any, Any], Any]] = {
    "set_verifier_callback": lambda b, ctx, s: b.set_verifier_callback(ctx, None),
    "llm_stream_save_slot": lambda b, ctx, s: b.save_slot(s, "/dev/null"),
    "tokenize": lambda b, ctx, s: b.tokenize(ctx, "text"),
    "embed": lambda b, ctx, s: b.embed(ctx, "text"),
    "llm_eot_score": lambda b, ctx, s: b.eot_score(ctx, [65], 65),
    "llm_stream_generate": lambda b, ctx, s: b.generate(s, 0, lambda token, text: False),
    "set_token_trie": lambda b, ctx, s: b.set_token_trie(s, "{}", 0),
    "llm_stream_fill": lambda b, ctx, s: b.fill(s, {}),
    "prepare_choices": lambda b, ctx, s: b.prepare_choices(ctx, ["A"]),
    "set_option": lambda b, ctx, s: b.set_option(ctx, "n_ctx", "8"),
}
"""A method of each kind. All find their function in the same way."""


@pytest.mark.parametrize("name", CALLS)
def test_the_error_names_a_missing_function(name: str, fakes: Fakes) -> None:
    fake = fakes(ELIZAOS)
    binding, ctx, stream = opened(fake)
    if binding.library.has(PREFIX + name):
        CALLS[name](binding, ctx, stream)
        return
    with pytest.raises(NotSupportedError) as caught:
        CALLS[name](binding, ctx, stream)
    assert str(caught.value) == f"{fake.path} has no {PREFIX}{name}"


@pytest.mark.parametrize("version", ["11", "13", "new"])
def test_an_unsupported_version_is_rejected(version: str, fakes: Fakes) -> None:
    with pytest.raises(AbiMismatchError, match=f"expected ABI version 12, got '{version}'; "):
        Library(fakes(ELIZAOS, f'VERSION_TEXT="{version}"').path)


def test_a_library_that_can_only_push_tokens_is_rejected(fakes: Fakes) -> None:
    path = fakes((STREAM | GENERATE) - {"llm_stream_next"}).path
    with pytest.raises(LibraryLoadError) as caught:
        Library(path)
    assert str(caught.value) == (
        f"{path} is not a usable libelizainference: it lacks eliza_inference_llm_stream_next"
    )


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_library_without_a_required_function_is_rejected(name: str, fakes: Fakes) -> None:
    with pytest.raises(LibraryLoadError, match=f"it lacks {PREFIX}{name}$"):
        Library(fakes(STREAM - {name}).path)


def test_a_build_without_text_generation_cannot_open_a_stream(fakes: Fakes) -> None:
    binding, ctx = bound(fakes(STREAM, "STUB"))
    with pytest.raises(NotSupportedError, match="without text generation: a build for speech"):
        binding.open(ctx, StreamConfig())


# ---- the configuration -------------------------------------------------------------------------


def test_a_library_reads_a_configuration_of_88_bytes(fakes: Fakes) -> None:
    fake = fakes(STREAM)
    config = {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "slot_id": 3}
    binding, ctx, _ = opened(fake, repeat_penalty=1.25, disable_thinking=True, **config)
    head = struct.unpack_from("<iffifi", fake.config)
    assert head == (7, 0.5, np.float32(0.9), 40, 1.25, 3)
    assert struct.unpack_from("<i", fake.config, 56) == (1,)
    assert fake.config[80:] == bytes(8), "0 = the library's default context size"


# ---- the trie ----------------------------------------------------------------------------------


def test_a_rejected_trie_raises(fakes: Fakes) -> None:
    fake = fakes(STREAM | TRIE)
    binding, ctx = bound(fake)
    runner = SyncRunner(binding, ctx)
    strict = FfiStreamingGenerateArgs([1], token_tree_payload=payload("REFUSE"))
    with pytest.raises(TokenTrieError, match="the library rejected the token trie: status -2"):
        runner.generate_with_usage(strict)
    assert fake.calls == ["open", "prefill", "set", "close"]
    good = FfiStreamingGenerateArgs([1], token_tree_payload=payload("A"))
    assert runner.generate_with_usage(good).text == TEXT
    assert fake.calls[-2:] == ["clear", "close"]


# ---- embeddings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 5000])
def test_an_embedding_may_be_larger_than_the_first_buffer(size: int, fakes: Fakes) -> None:
    binding, ctx = bound(fakes(ELIZAOS, f"EMBEDDING={size}"))
    assert binding.supports("embed")
    for number, pooling in ((1, "mean"), (2, "cls"), (3, "last")):
        embedding = binding.embed(ctx, "Grüße", pooling)
        assert (embedding.shape, embedding.dtype) == ((size,), np.float32)
        assert list(embedding[:3]) == [number, len("Grüße".encode()), 0]
    with pytest.raises(InvalidArgumentError, match="cannot embed the text: nothing to embed"):
        binding.embed(ctx, "!")
