"""The runner against real libraries of earlier versions, through cffi."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from older_library import TEXT, OlderCalls, build_older_library

from eliza_ffi import Gbnf, cli
from eliza_ffi.choices.label_set import string_choices
from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.cli.demo_prompts import should_respond_prompt
from eliza_ffi.elizaos import (
    FfiStreamingGenerateArgs,
    FfiStreamingResult,
    FfiStreamingRunner,
    SyncStreamingRunner,
    generate_args,
)
from eliza_ffi.errors import (
    AbiMismatchError,
    InvalidArgumentError,
    LibraryLoadError,
    ModelError,
    NativeFault,
    NotSupportedError,
)
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import Library, header_ffi
from eliza_ffi.model import Model

PAYLOAD = TokenTreePayload.from_json(
    '{"modelId":"m","descriptors":[{"path":"p","leaves":[{"name":"A","tokens":[65]}]}]}'
)
ARGS = FfiStreamingGenerateArgs([1, 2], token_tree_payload=PAYLOAD)
BYTES = tuple(TEXT.encode())


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("older")
    return {
        "next": build_older_library(folder / "next", "WITH_NEXT"),
        "generate": build_older_library(folder / "generate", "WITH_NEXT", "WITH_GENERATE"),
        "stats": build_older_library(folder / "stats", "WITH_NEXT", "WITH_STATS"),
        "void trie": build_older_library(folder / "void", "WITH_NEXT", "WITH_VOID_TRIE"),
        "version 3": build_older_library(folder / "three", "WITH_NEXT", abi_version="3"),
        "version 4": build_older_library(folder / "four", "WITH_NEXT", abi_version="4"),
        "version 13": build_older_library(folder / "thirteen", "WITH_NEXT", abi_version="13"),
        "no version": build_older_library(folder / "none", "WITH_NEXT", abi_version="new"),
        "no open": build_older_library(folder / "open", "WITH_NEXT", "WITHOUT_OPEN"),
        "push only": build_older_library(folder / "push", "WITH_GENERATE"),
    }


def test_without_the_trie_symbols_the_runner_warns_once_and_goes_on(
    libraries: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    ctx = binding.create("any")
    calls = OlderCalls(libraries["next"])
    runner = FfiStreamingRunner(binding, ctx)
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        for _ in range(3):
            result = asyncio.run(runner.generate_with_usage(ARGS))
            assert result.text == TEXT
            assert result.tokens == BYTES
            assert result.finish_reason == "end"
            assert (result.leaf, result.stats) == (None, None)
    assert [record.getMessage()[:40] for record in caplog.records] == [
        "this library has no token-trie sampler: "
    ]
    pulls = ["next"] * (len(BYTES) + 1)
    assert calls() == ["open", "prefill", *pulls, "close"] * 3
    binding.destroy(ctx)


def test_a_character_cut_in_two_is_put_together(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    ctx = binding.create("any")
    chunks: list[str] = []
    args = FfiStreamingGenerateArgs([1], on_text_chunk=chunks.append)
    SyncStreamingRunner(binding, ctx).generate_with_usage(args)
    assert chunks == list(TEXT)
    binding.destroy(ctx)


def test_a_generation_that_ends_inside_a_character_says_so(libraries: dict[str, Path]) -> None:
    for kind in ("next", "generate"):
        binding = CffiBinding(Library(libraries[kind]))
        ctx = binding.create("any")
        runner = SyncStreamingRunner(binding, ctx)
        result = runner.generate_with_usage(FfiStreamingGenerateArgs([1], max_tokens=3))
        assert result.text == "Gr\ufffd"
        assert result.tokens == BYTES[:3]
        assert result.finish_reason == "length"
        binding.destroy(ctx)


def test_what_an_older_library_does_not_count_is_0(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["stats"]))
    ctx = binding.create("any")
    stats = binding.stats(binding.open(ctx, FfiStreamingGenerateArgs([1]).config()))
    assert stats.prompt_tokens == 7
    assert (stats.passes_shared, stats.sequences, stats.wait_us) == (0, 0, 0)
    assert (stats.bytes_copied, stats.strategies) == (0, ())
    binding.destroy(ctx)


def test_a_trie_setter_that_returns_nothing_is_not_misread(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["void trie"]))
    ctx = binding.create("any")
    calls = OlderCalls(libraries["void trie"])
    result = SyncStreamingRunner(binding, ctx).generate_with_usage(ARGS)
    assert result.text == TEXT
    assert calls()[:3] == ["open", "prefill", "set"]
    assert calls()[-2:] == ["clear", "close"]
    assert binding.trie_modes() == 0
    binding.destroy(ctx)


def test_an_abandoned_stream_is_closed(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    ctx = binding.create("any")
    calls = OlderCalls(libraries["next"])
    steps = SyncStreamingRunner(binding, ctx).generate_stream(FfiStreamingGenerateArgs([1]))
    assert next(steps).text == "G"
    steps.close()
    assert calls()[-1] == "close"
    binding.destroy(ctx)


def test_an_exception_in_the_text_callback_ends_the_generation_and_comes_out(
    libraries: dict[str, Path],
) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    ctx = binding.create("any")
    calls = OlderCalls(libraries["next"])

    def complain(text: str) -> None:
        raise KeyError(text)

    args = FfiStreamingGenerateArgs([1], on_text_chunk=complain)
    with pytest.raises(KeyError, match="G"):
        SyncStreamingRunner(binding, ctx).generate_with_usage(args)
    assert calls()[-1] == "close"
    binding.destroy(ctx)


def test_an_exception_in_a_token_callback_comes_out_of_generate(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["generate"]))
    ctx = binding.create("any")
    stream = binding.open(ctx, ARGS.config())
    seen: list[int] = []

    def on_token(token: int, text: str) -> bool:
        seen.append(token)
        raise KeyError(token)

    with pytest.raises(KeyError, match=str(BYTES[0])):
        binding.generate(stream, 0, on_token)
    assert seen == [BYTES[0]]
    binding.close(stream)
    binding.close(stream)
    binding.destroy(ctx)


def test_an_error_text_of_the_library_reaches_the_exception(libraries: dict[str, Path]) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    with pytest.raises(ModelError, match=r"cannot open the model missing\.gguf: no model there"):
        binding.create("missing.gguf")
    ctx = binding.create("any")
    calls = OlderCalls(libraries["next"])
    with pytest.raises(
        InvalidArgumentError, match=r"cannot prefill 2 tokens: token 0 is not for prompts"
    ):
        SyncStreamingRunner(binding, ctx).generate_with_usage(FfiStreamingGenerateArgs([0, 1]))
    assert calls() == ["open", "prefill", "close"]
    with pytest.raises(NativeFault, match="cannot prefill 1 tokens: the disk is on fire"):
        SyncStreamingRunner(binding, ctx).generate_with_usage(FfiStreamingGenerateArgs([9]))
    binding.destroy(ctx)


def test_versions_4_to_12_are_accepted_and_others_named(libraries: dict[str, Path]) -> None:
    assert Library(libraries["version 4"]).abi_version == "4"
    assert Library(libraries["next"]).abi_version == "11"
    for kind, version in (("version 3", "3"), ("version 13", "13"), ("no version", "new")):
        with pytest.raises(AbiMismatchError, match=f"speaks ABI version '{version}'; .* speaks 12"):
            Library(libraries[kind])


def test_a_library_that_lacks_a_required_symbol_is_rejected_by_name(
    libraries: dict[str, Path],
) -> None:
    with pytest.raises(LibraryLoadError, match="lacks eliza_inference_llm_stream_open"):
        Library(libraries["no open"])
    with pytest.raises(LibraryLoadError) as caught:
        Library(libraries["push only"])
    assert str(caught.value) == (
        f"{libraries['push only']} is not a usable libelizainference: expected the functions that "
        "every library of ABI version 4 to 12 has, but it lacks eliza_inference_llm_stream_next"
    )


def test_missing_symbols_are_reported_in_the_headers_order(libraries: dict[str, Path]) -> None:
    library = Library(libraries["next"])
    _, declared = header_ffi()
    assert library.missing_symbols == tuple(n for n in declared if n in library.missing_symbols)
    assert library.missing_symbols[0] == "eliza_inference_free_tokens"
    assert "eliza_inference_set_token_trie" in library.missing_symbols
    assert library.has("eliza_inference_llm_stream_next")
    assert not library.has("eliza_inference_set_token_trie")
    assert not set(library.missing_symbols) & {"eliza_inference_create"}


def test_what_an_older_library_lacks_is_named_when_it_is_asked_for(
    libraries: dict[str, Path],
) -> None:
    binding = CffiBinding(Library(libraries["next"]))
    ctx = binding.create("any")
    with pytest.raises(NotSupportedError, match=r"version 11\) has no eliza_inference_tokenize"):
        binding.tokenize(ctx, "text")
    with pytest.raises(NotSupportedError, match="has no eliza_inference_llm_stream_generate"):
        binding.generate(object(), 0, lambda token, text: False)  # type: ignore[arg-type]
    assert binding.trie_modes() == 0
    binding.destroy(ctx)


def test_the_friendly_model_generates_on_an_older_library_but_does_not_choose(
    libraries: dict[str, Path],
) -> None:
    with Model("any", library=libraries["next"]) as model:
        assert model.generate([1, 2]).text == TEXT
        with pytest.raises(NotSupportedError, match="has no token-trie sampler"):
            model.choose([1, 2], ["A", "B"])
    with pytest.raises(NotSupportedError, match="has no eliza_inference_set_option"):
        Model("any", library=libraries["next"], n_ctx=128)


def test_doctor_lists_what_an_older_library_lacks(
    libraries: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--model", "any", "--library", str(libraries["next"])]) == 1
    out = capsys.readouterr().out
    assert re.search(r"abi version +11\n", out)
    assert re.search(r"missing symbols +eliza_inference_free_tokens, ", out)
    assert re.search(r"problem +.* has no token-trie sampler\n", out)


# ---- this version's engine, exporting what elizaOS's own library does ---------------------------

PROMPT = should_respond_prompt("could you look something up for me?", "dm")


@pytest.fixture(scope="module")
def older_model(older_engine: Library) -> Iterator[Model]:
    with Model(library=older_engine) as model:
        yield model


def test_the_older_engine_has_no_function_of_the_trie_and_every_one_of_streams(
    older_engine: Library,
) -> None:
    _, declared = header_ffi()
    missing = set(older_engine.missing_symbols)
    assert {name for name in declared if "token_trie" in name} <= missing
    in_every_version = ("next", "generate", "cancel", "reset", "reset_keep", "supported")
    assert not {f"eliza_inference_llm_stream_{name}" for name in in_every_version} & missing
    assert not {name for name in declared if "tokenize" in name} & missing
    assert older_engine.is_older


@pytest.mark.parametrize("is_async", [True, False])
def test_the_older_engine_obeys_the_grammar_where_choices_were_asked_for_and_warns_once(
    is_async: bool, older_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    choices = string_choices(["RESPOND", "IGNORE"])
    args = generate_args(
        older_model,
        PROMPT,
        max_tokens=20,
        shape=Gbnf('root ::= "no trie " ("here" | "there")'),
        token_tree_payload=choices.payload(older_model.tokenize, older_model.detokenize),
    )
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        runner = (FfiStreamingRunner if is_async else SyncStreamingRunner)(
            older_model.binding, older_model.session.ctx
        )
        for _ in range(2):
            outcome = runner.generate_with_usage(args)
            result = outcome if isinstance(outcome, FfiStreamingResult) else asyncio.run(outcome)
            assert result.text in ("no trie here", "no trie there")
            assert (result.leaf, result.finish_reason) == (None, "end")
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "this library has no token-trie sampler"
    ]


def test_the_older_engine_does_not_choose(older_model: Model) -> None:
    with pytest.raises(NotSupportedError, match=r"elder.* has no token-trie sampler"):
        older_model.choose(PROMPT, ["RESPOND", "IGNORE"])


def test_the_older_engine_generates_the_same_tokens(older_model: Model, tiny_model: Model) -> None:
    for prompt in (PROMPT, "Once upon a time"):
        ours = tiny_model.generate(prompt, max_tokens=24)
        theirs = older_model.generate(prompt, max_tokens=24)
        assert theirs.tokens == ours.tokens
        assert theirs.tokens
        assert theirs.finish_reason == ours.finish_reason
