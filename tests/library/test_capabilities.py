"""`detect_capabilities` reports the capabilities of a library."""

from __future__ import annotations

import json

import pytest
from elizaos_fake import ELIZAOS, GENERATE, STREAM, TRIE, Fakes

from eliza_ffi import cli
from eliza_ffi._resources import default_model_path
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.capabilities import InferenceCapabilities, detect_capabilities
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


def test_a_missing_library_has_no_capabilities() -> None:
    nothing = detect_capabilities(None)
    assert nothing == InferenceCapabilities()
    assert not any(nothing.to_dict().values())
    assert nothing.to_mobile() == {
        "streamingLlm": False,
        "mtpSupported": False,
        "omnivoiceStreaming": False,
        "maxContextTokens": 0,
        "recommendedGpuLayers": 0,
    }


def test_the_capabilities_of_this_projects_library(tiny_model: Model) -> None:
    can = detect_capabilities(tiny_model.binding, tiny_model.session.ctx)
    assert {name for name, value in can.features.items() if not value} == {"vision"}
    assert can.streaming_llm and can.mtp_supported and not can.omnivoice_streaming
    assert can.trie_modes == ("argmax", "sample", "best-leaf", "stop-at-leaf")
    assert can.max_context_tokens == tiny_model.describe()["model"]["n_ctx_train"]
    assert can.recommended_gpu_layers in (0, -1)
    assert (can.context_size, can.config_size, can.abi_version) == ("option", 80, "12")
    assert can.missing_symbols == ()


def test_the_capabilities_of_elizaos_library(fakes: Fakes) -> None:
    can = detect_capabilities(fakes(ELIZAOS).path)
    assert can.streaming_llm and can.mtp_supported
    assert {name for name, value in can.features.items() if value} == {
        *("embeddings", "end_of_turn", "kv_quant", "slots", "tokenizer", "verifier_events")
    }
    assert (can.context_size, can.config_size, can.abi_version) == ("config", 88, "12")
    assert (can.max_context_tokens, can.recommended_gpu_layers) == (0, 0)
    assert "eliza_inference_set_token_trie" in can.missing_symbols


def test_push_tries_and_speech_are_detected(fakes: Fakes) -> None:
    functions = STREAM | GENERATE | TRIE | {"tts_stream_supported"}
    can = detect_capabilities(Library(fakes(functions).path))
    assert can.features["push"] and can.features["token_trie"] and can.omnivoice_streaming
    assert can.trie_modes == ("argmax", "sample", "stop-at-leaf")
    half = detect_capabilities(fakes(STREAM | TRIE - {"clear_token_trie"}).path)
    assert not half.features["token_trie"]


def test_a_build_without_text_generation_is_detected(fakes: Fakes) -> None:
    can = detect_capabilities(CffiBinding(Library(fakes(STREAM, "STUB").path)))
    assert not can.streaming_llm
    assert can.to_mobile()["streamingLlm"] is False


def test_doctor_shows_the_capabilities(
    library: Library, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(default_model_path())
    assert cli.main(["doctor", "--json", "--model", model, "--library", str(library.path)]) == 0
    shown = json.loads(capsys.readouterr().out)["capabilities"]
    assert shown["fill"] is True
    assert shown["max_context_tokens"] == 2048
    fake = fakes(STREAM | GENERATE)
    assert cli.main(["doctor", "--model", "any", "--library", str(fake.path)]) == 1
    out = capsys.readouterr().out
    assert "capabilities     yes: push, streaming llm\n" in out
    assert "no: text choices, prepared choices, decisions, endings, " in out
