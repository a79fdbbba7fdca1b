"""`detect_capabilities` reports the capabilities of a library."""

from __future__ import annotations

import json

import pytest
from older_fake import GENERATE, STREAM, TRIE, Fakes, functions_of_version

from eliza_ffi import cli
from eliza_ffi._resources import default_model_path
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.capabilities import InferenceCapabilities, detect_capabilities
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


def test_a_missing_library_has_no_capabilities() -> None:
    nothing = detect_capabilities(None)
    assert nothing == InferenceCapabilities()
    assert not any(value for value in nothing.to_dict().values() if value != "none")
    assert nothing.to_mobile() == {
        "streamingLlm": False,
        "mtpSupported": False,
        "omnivoiceStreaming": False,
        "maxContextTokens": 0,
        "recommendedGpuLayers": 0,
    }


def test_the_capabilities_of_this_projects_library(tiny_model: Model) -> None:
    can = detect_capabilities(tiny_model.binding, tiny_model.session.ctx)
    for name in ("streaming_llm", "pull", "push", "cancel", "token_trie", "text_choices", "fill"):
        assert getattr(can, name) is True, name
    assert can.sampling and can.stats and can.tokenizer and can.kv_quant
    assert can.prepared_choices and can.logprobs and can.token_embeddings
    assert can.mtp_supported and can.slots and can.embeddings and can.end_of_turn
    assert can.verifier_events and not (can.vision or can.omnivoice_streaming)
    assert can.trie_modes == ("argmax", "sample", "best-leaf", "stop-at-leaf")
    assert can.max_context_tokens == tiny_model.describe()["model"]["n_ctx_train"]
    assert can.recommended_gpu_layers in (0, -1)
    assert (can.context_size, can.config_size, can.abi_version) == ("option", 80, "12")
    assert can.missing_symbols == ()


@pytest.mark.slow
def test_each_version_has_the_capabilities_of_its_functions(fakes: Fakes) -> None:
    added_in = {"kv_quant": 8, "tokenizer": 9, "embeddings": 9, "end_of_turn": 11}
    for version in range(4, 13):
        can = detect_capabilities(fakes(functions_of_version(version), version).path)
        assert can.streaming_llm and can.pull and can.cancel and can.slots and can.verifier_events
        assert not (can.push or can.token_trie or can.fill or can.text_choices or can.vision)
        assert not (can.prepared_choices or can.logprobs or can.token_embeddings)
        for name, since in added_in.items():
            assert getattr(can, name) is (version >= since), (name, version)
        assert can.mtp_supported is (version >= 8)
        assert can.context_size == ("config" if version >= 9 else "none")
        assert can.config_size == {4: 64, 8: 80}.get(version, 64 if version < 8 else 88)
        assert (can.max_context_tokens, can.recommended_gpu_layers) == (0, 0)
        assert can.abi_version == str(version)
        assert "eliza_inference_set_token_trie" in can.missing_symbols


def test_push_tries_and_speech_are_detected(fakes: Fakes) -> None:
    functions = STREAM | GENERATE | TRIE | {"tts_stream_supported"}
    can = detect_capabilities(Library(fakes(functions).path))
    assert (can.pull, can.push, can.token_trie, can.omnivoice_streaming) == (True,) * 4
    assert can.trie_modes == ("argmax", "sample", "stop-at-leaf")
    half = detect_capabilities(fakes(STREAM | TRIE - {"clear_token_trie"}).path)
    assert not half.token_trie


def test_a_build_without_text_generation_is_detected(fakes: Fakes) -> None:
    can = detect_capabilities(CffiBinding(Library(fakes(STREAM, 12, "STUB").path)))
    assert not can.streaming_llm
    assert can.to_mobile()["streamingLlm"] is False


def test_capabilities_can_be_written_as_json(fakes: Fakes) -> None:
    can = detect_capabilities(fakes(STREAM | GENERATE | TRIE).path)
    facts = json.loads(json.dumps(can.to_dict()))
    facts = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    assert InferenceCapabilities(**facts) == can


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
    assert "capabilities     yes: streaming llm, pull, push, cancel\n" in out
    assert "no: mtp supported, omnivoice streaming, text choices, " in out
    assert "config size: 88\n" in out
