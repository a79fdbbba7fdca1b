"""The library exports exactly the functions of its headers, including all of ABI version 12."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi._resources import header_path
from eliza_ffi.library.loading import Library, declared_functions, header_ffi

HEADERS = sorted(header_path().parent.glob("*.h"))
PREFIX = "eliza_inference_"

TEXT = """
    abi_version create destroy free_string free_tokens mmap_acquire mmap_evict
    llm_stream_supported llm_mtp_supported llm_kv_quant_supported
    llm_stream_open llm_stream_prefill llm_stream_next llm_stream_generate llm_stream_cancel
    llm_stream_reset llm_stream_reset_keep llm_stream_save_slot llm_stream_restore_slot
    llm_stream_close tokenize_supported tokenize detokenize embed_supported embed
    llm_eot_supported llm_eot_score set_verifier_callback
"""
VOICE = """
    tts_synthesize tts_stream_supported tts_synthesize_stream cancel_tts encode_reference
    asr_transcribe asr_timestamps_supported asr_transcribe_timed
    asr_stream_supported asr_stream_open asr_stream_feed asr_stream_partial asr_stream_finish
    asr_stream_close vad_supported vad_open vad_process vad_reset vad_close
    wakeword_supported wakeword_open wakeword_score wakeword_reset wakeword_close
    speaker_supported speaker_open speaker_embed speaker_free speaker_close
    diariz_supported diariz_open diariz_segment diariz_close
    kokoro_supported kokoro_load kokoro_synthesize kokoro_sample_rate
    vision_supported describe_image
"""
ADDITIONS = """
    set_token_trie clear_token_trie token_trie_supported token_trie_leaf token_trie_scores
    set_text_choices last_error set_option llm_stream_stats
"""
SAMPLERS = ("llama_sampler_init_token_trie", "eliza_llama_sampler_init_token_tree")

LATER_VERSIONS = """
    vision_stream_supported describe_image_stream_open
    kokoro_g2p_kind kokoro_synthesize_ipa
"""
"""Functions of versions 13 and 14.

elizaOS's loader rejects a library of version 12 that exports one of them.
"""

CONFIG_OFFSETS = {
    **{"max_tokens": 0, "temperature": 4, "top_p": 8, "top_k": 12, "repeat_penalty": 16},
    **{"slot_id": 20, "prompt_cache_key": 24, "draft_min": 32, "draft_max": 36},
    **{"mtp_drafter_path": 40, "gbnf_grammar": 48, "disable_thinking": 56},
    **{"n_gpu_layers": 60, "cache_type_k": 64, "cache_type_v": 72},
}
VERIFIER_EVENT_OFFSETS = {
    **{"accepted_token_ids": 0, "n_accepted": 8, "rejected_from": 16, "rejected_to": 20},
    **{"corrected_token_ids": 24, "n_corrected": 32},
}


def names(words: str) -> set[str]:
    return {PREFIX + word for word in words.split()}


def declared() -> set[str]:
    return {
        name
        for header in HEADERS
        for name in declared_functions(header.read_text(encoding="utf-8"))
    }


def exported(library: Path) -> set[str]:
    if sys.platform == "win32" or shutil.which("nm") is None:
        pytest.skip("needs nm, which lists exported symbols")
    options = ["-gUj"] if sys.platform == "darwin" else ["-D", "--defined-only", "--format=posix"]
    lines = subprocess.run(
        ["nm", *options, library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    prefix = "_" if sys.platform == "darwin" else ""
    return {line.split()[0].removeprefix(prefix) for line in lines if line.strip()}


def test_all_public_headers_are_checked() -> None:
    assert {header.name for header in HEADERS} >= {"eliza.h", "eliza_inference.h", "eliza_voice.h"}
    assert len(declared()) > 60


def test_the_library_exports_exactly_the_declared_functions(library: Library) -> None:
    assert exported(library.path) == declared()


def test_the_library_exports_all_functions_of_version_12(library: Library) -> None:
    expected = names(TEXT) | names(VOICE) | names(ADDITIONS) | set(SAMPLERS)
    assert sorted(expected - exported(library.path)) == []
    assert library.abi_version == "12"


def test_the_library_exports_no_function_of_a_later_version(library: Library) -> None:
    assert exported(library.path).isdisjoint(names(LATER_VERSIONS))


def test_voice_is_declared_in_its_own_header() -> None:
    voice = (header_path().parent / "eliza_voice.h").read_text(encoding="utf-8")
    assert set(declared_functions(voice)) == names(VOICE)


def test_a_native_test_calls_every_function_with_bad_arguments() -> None:
    table = (ROOT / "native/tests/abi_arguments_test.cpp").read_text(encoding="utf-8")
    called = re.findall(r"^ *ARGUMENTS(?:_NULL)?\((\w+)\),", table, flags=re.MULTILINE)
    assert sorted(called) == sorted(declared())


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
@pytest.mark.parametrize("language", ["c99", "c++11"])
def test_each_header_compiles_on_its_own_without_warnings(
    header: Path, language: str, tmp_path: Path
) -> None:
    source = tmp_path / ("only.cpp" if "++" in language else "only.c")
    source.write_text(f'#include "eliza/{header.name}"\n', encoding="utf-8")
    compile_source(source, "-fsyntax-only", f"-std={language}")


@pytest.mark.parametrize(
    ("struct", "size", "offsets"),
    [
        ("eliza_llm_stream_config_t", 80, CONFIG_OFFSETS),
        ("EliVerifierEvent", 40, VERIFIER_EVENT_OFFSETS),
    ],
)
def test_a_struct_has_the_layout_of_the_abi_in_c_and_in_cffi(
    struct: str, size: int, offsets: dict[str, int], tmp_path: Path
) -> None:
    assert compiled_layout(struct, list(offsets), tmp_path) == (size, offsets)
    assert cffi_layout(struct) == (size, offsets)


def test_the_stats_have_the_same_layout_in_c_and_in_cffi(tmp_path: Path) -> None:
    layout = cffi_layout("eliza_llm_stream_stats_t")
    assert compiled_layout("eliza_llm_stream_stats_t", list(layout[1]), tmp_path) == layout


def test_released_fields_of_the_stats_keep_their_offsets() -> None:
    size, offsets = cffi_layout("eliza_llm_stream_stats_t")
    fields = sorted(offsets, key=lambda name: offsets[name])
    released = ["select_us", "n_past", "n_vocab", "finish_reason", "trie_active", "select_ns"]
    assert fields[15:21] == released
    assert [offsets[name] for name in released] == [120, 128, 132, 136, 140, 144]
    assert offsets["strategies"] == 152
    assert size >= 160
    assert size % 8 == 0


def cffi_layout(struct: str) -> tuple[int, dict[str, int]]:
    ffi, _ = header_ffi()
    layout = ffi.typeof(struct)
    return ffi.sizeof(layout), {name: field.offset for name, field in layout.fields}


def compiled_layout(struct: str, fields: list[str], folder: Path) -> tuple[int, dict[str, int]]:
    offsets = "".join(
        f'    printf("{name} %zu\\n", offsetof({struct}, {name}));\n' for name in fields
    )
    source = folder / f"{struct}.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        '#include "eliza/eliza_inference.h"\n'
        f'int main(void) {{\n    printf("%zu\\n", sizeof({struct}));\n{offsets}    return 0;\n}}\n',
        encoding="utf-8",
    )
    program = source.with_suffix("")
    compile_source(source, "-o", program, "-std=c99")
    size, *lines = subprocess.run(
        [program], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return int(size), {name: int(offset) for name, offset in (line.split() for line in lines)}


def compile_source(source: Path, *options: str | Path) -> None:
    cplusplus = source.suffix == ".cpp"
    compiler = os.environ.get("CXX", "c++") if cplusplus else os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"needs the compiler {compiler}")
    include = header_path().parent.parent
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    result = subprocess.run(
        [compiler, *warnings, f"-I{include}", *options, source], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
