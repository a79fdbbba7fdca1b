"""elizaOS's runners, `Model` and the command line with elizaOS's own library."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator

import pytest
from demo_prompts import should_respond_prompt
from elizaos_fake import BYTES, REFUSE, STREAM, TEXT, TRIE, Fake, Fakes, bound
from sync_runner import SyncRunner

from eliza_ffi import Gbnf, cli
from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.elizaos import (
    FfiStreamingGenerateArgs,
    FfiStreamingResult,
    FfiStreamingRunner,
    generate_args,
)
from eliza_ffi.errors import InvalidArgumentError, ModelError, NotSupportedError
from eliza_ffi.library.loading import Library, header_ffi
from eliza_ffi.model import Model

# The fake returns -2 for this payload. If the library has no probe, set_token_trie may return void,
# and -2 may be a random register value.
REFUSED_PAYLOAD = TokenTreePayload.from_json(
    '{"modelId":"m","descriptors":[{"path":"p","leaves":[{"name":"REFUSE","tokens":[65]}]}]}'
)
ARGS = FfiStreamingGenerateArgs([1, 2], token_tree_payload=REFUSED_PAYLOAD)


@pytest.fixture
def fake(fakes: Fakes) -> Fake:
    return fakes(STREAM)


def test_text_chunks_are_whole_characters(fake: Fake) -> None:
    binding, ctx = bound(fake)
    chunks: list[str] = []
    args = FfiStreamingGenerateArgs([1], on_text_chunk=chunks.append)
    SyncRunner(binding, ctx).generate_with_usage(args)
    assert chunks == list(TEXT)


def test_an_incomplete_last_character_is_reported_as_u_fffd(fake: Fake) -> None:
    binding, ctx = bound(fake)
    runner = SyncRunner(binding, ctx)
    result = runner.generate_with_usage(FfiStreamingGenerateArgs([1], max_tokens=3))
    assert result.text == "Gr\ufffd"
    assert result.tokens == BYTES[:3]
    assert result.finish_reason == "length"


def test_without_the_probe_the_result_of_set_token_trie_is_ignored(fakes: Fakes) -> None:
    fake = fakes(STREAM | TRIE - {"token_trie_supported"})
    binding, ctx = bound(fake)
    result = SyncRunner(binding, ctx).generate_with_usage(ARGS)
    assert result.text == TEXT
    assert fake.calls[:3] == ["open", "prefill", "set"]
    assert fake.calls[-2:] == ["clear", "close"]
    assert binding.trie_modes == 0


def test_an_error_contains_the_librarys_message(fake: Fake) -> None:
    binding, ctx = bound(fake)
    with pytest.raises(ModelError, match=r"cannot open the model missing\.gguf: no model there"):
        binding.create("missing.gguf")
    with pytest.raises(
        InvalidArgumentError, match=r"cannot prefill 2 tokens: token 2 is not for prompts"
    ):
        SyncRunner(binding, ctx).generate_with_usage(FfiStreamingGenerateArgs([REFUSE, 1]))
    assert fake.calls == ["open", "prefill", "close"]


def test_model_generates_with_elizaos_library_but_does_not_choose(fake: Fake) -> None:
    with Model("any", library=fake.path) as model:
        assert model.generate([1, 2]).text == TEXT
        with pytest.raises(NotSupportedError, match="has no token-trie sampler"):
            model.choose([1, 2], ["A", "B"])
    with pytest.raises(NotSupportedError, match="has no eliza_inference_set_option"):
        Model("any", library=fake.path, n_ctx=128)


def test_doctor_lists_the_functions_that_a_library_lacks(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--model", "any", "--library", str(fake.path)]) == 1
    out = capsys.readouterr().out
    assert "ABI 12" in out
    assert re.search(r"missing symbols +eliza_inference_\w+, ", out)
    assert "eliza_inference_free_tokens" in out
    assert re.search(r"problem +.* has no token-trie sampler\n", out)


# ---- this project's engine, with only the exports of elizaOS's library --------------------------

PROMPT = should_respond_prompt("could you look something up for me?", "dm")


@pytest.fixture(scope="module")
def elizaos_model(elizaos_engine: Library) -> Iterator[Model]:
    with Model(library=elizaos_engine) as model:
        yield model


def test_elizaos_library_has_stream_functions_and_no_trie_functions(
    elizaos_engine: Library,
) -> None:
    _, declared = header_ffi()
    missing = set(elizaos_engine.missing_symbols)
    assert {name for name in declared if "token_trie" in name} <= missing
    in_every_version = ("next", "generate", "cancel", "reset", "reset_keep", "supported")
    assert not {f"eliza_inference_llm_stream_{name}" for name in in_every_version} & missing
    assert not {name for name in declared if "tokenize" in name} & missing
    assert elizaos_engine.is_elizaos


@pytest.mark.parametrize("is_async", [True, False])
def test_elizaos_library_uses_the_grammar_instead_of_choices(
    is_async: bool, elizaos_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """The runner warns once."""
    choices = as_label_set(["RESPOND", "IGNORE"])
    args = generate_args(
        elizaos_model,
        PROMPT,
        max_tokens=20,
        schema=Gbnf('root ::= "no trie " ("here" | "there")'),
        token_tree_payload=choices.payload(elizaos_model.tokenize, elizaos_model.detokenize),
    )
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        runner = (FfiStreamingRunner if is_async else SyncRunner)(
            elizaos_model.binding, elizaos_model.session.ctx
        )
        for _ in range(2):
            outcome = runner.generate_with_usage(args)
            result = outcome if isinstance(outcome, FfiStreamingResult) else asyncio.run(outcome)
            assert result.text in ("no trie here", "no trie there")
            assert (result.leaf, result.finish_reason) == (None, "end")
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "this library has no token-trie sampler"
    ]


def test_elizaos_library_generates_the_same_tokens(elizaos_model: Model, tiny_model: Model) -> None:
    for prompt in (PROMPT, "Once upon a time"):
        ours = tiny_model.generate(prompt, max_tokens=24)
        theirs = elizaos_model.generate(prompt, max_tokens=24)
        assert theirs.tokens == ours.tokens
        assert theirs.tokens
        assert theirs.finish_reason == ours.finish_reason
