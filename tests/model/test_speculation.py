"""Speculative decoding: the same tokens in fewer forward passes.

The weights are random and in full precision. Then a batch differs from single tokens only by the
order of additions, which changes no argmax.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from elizaos_fake import STREAM, Fakes
from sync_runner import SyncRunner

from eliza_ffi import CacheOptions, Gbnf, Speculation, cli
from eliza_ffi.elizaos import FfiStreamingGenerateArgs, generate_args, runner_of
from eliza_ffi.errors import InvalidArgumentError, ModelError, NotSupportedError
from eliza_ffi.library.binding import VerifierEvent
from eliza_ffi.library.cffi_values import TOKENS_PER_PULL
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig, StreamStep
from eliza_ffi.model import Model

PROMPT = "one two three four five six. one two three four five six. one two three four"
ENDLESS = 'root ::= ([a-z]+ " ")+'
FULL_PRECISION = CacheOptions(type_k="f32", type_v="f32")


@pytest.fixture(scope="module")
def model(library: Library, plain_path: Path) -> Iterator[Model]:
    with Model(plain_path, library=library, n_ctx=1024, n_threads=1, seed=5) as model:
        yield model


@contextmanager
def opened(model: Model, **config: Any) -> Iterator[Any]:
    stream = model.binding.open(
        model.session.ctx,
        StreamConfig(draft_min=1, cache_type_k="f32", cache_type_v="f32", **config),
    )
    try:
        model.binding.prefill(stream, model.tokenize(PROMPT, add_special=True))
        yield stream
    finally:
        model.binding.close(stream)


# ---- The same tokens ---------------------------------------------------------------------------


def test_repeated_text_is_guessed_without_a_draft_model(tiny_model: Model) -> None:
    grammar = 'root ::= ("one two three four ")+'
    alone = tiny_model.generate("Count: ", 60, schema=Gbnf(grammar))
    with_guesses = tiny_model.generate(
        "Count: ", 60, schema=Gbnf(grammar), speculation=Speculation(max_tokens=6)
    )
    assert alone.stats is not None
    assert with_guesses.stats is not None
    assert with_guesses.text == alone.text
    assert with_guesses.stats.tokens_accepted > 10
    assert with_guesses.stats.forward_passes < alone.stats.forward_passes


# ---- Several tokens in one step ----------------------------------------------------------------


@pytest.fixture
def args(model: Model, plain_path: Path) -> FfiStreamingGenerateArgs:
    """Return arguments with drafts that are longer than one pull can return."""
    return generate_args(
        model,
        PROMPT,
        max_tokens=100,
        cache=FULL_PRECISION,
        speculation=Speculation(max_tokens=80, drafter=plain_path),
    )


def by_the_synchronous_runner(model: Model, args: FfiStreamingGenerateArgs) -> list[StreamStep]:
    runner = SyncRunner(model.binding, model.session.ctx)
    return list(runner.generate_stream(args))


def by_the_asynchronous_runner(model: Model, args: FfiStreamingGenerateArgs) -> list[StreamStep]:
    async def steps() -> list[StreamStep]:
        return [step async for step in runner_of(model).generate_stream(args)]

    return asyncio.run(steps())


@pytest.mark.parametrize("run", [by_the_synchronous_runner, by_the_asynchronous_runner])
def test_a_step_has_all_checked_tokens_and_none_is_lost(
    model: Model,
    args: FfiStreamingGenerateArgs,
    run: Callable[[Model, FfiStreamingGenerateArgs], list[StreamStep]],
) -> None:
    steps = run(model, args)
    tokens = [token for step in steps for token in step.tokens]
    alone = model.generate(PROMPT, 100, cache=FULL_PRECISION)
    assert tuple(tokens) == alone.tokens
    assert "".join(step.text for step in steps) == alone.text
    assert max(len(step.tokens) for step in steps) == TOKENS_PER_PULL
    assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(step.drafted for step in steps) == sum(step.accepted for step in steps) > 90


def test_the_runner_and_the_library_count_the_same_guesses(
    model: Model, args: FfiStreamingGenerateArgs
) -> None:
    result = asyncio.run(runner_of(model).generate_with_usage(args))
    assert result.stats is not None
    assert result.usage.drafted == result.stats.tokens_drafted > 90
    assert result.usage.accepted == result.stats.tokens_accepted
    assert result.usage.completion_tokens == len(result.tokens) == 100


# ---- Verifier events ---------------------------------------------------------------------------


def test_verifier_events_match_the_tokens_and_statistics(tiny_model: Model) -> None:
    model, plain_path = tiny_model, tiny_model.path
    binding, events, tokens, drafted = model.binding, list[VerifierEvent](), list[int](), 0
    binding.set_verifier_callback(model.session.ctx, events.append)
    # The drafter does not apply the penalty, so some guesses are wrong. The grammar never ends.
    config = {"mtp_drafter_path": plain_path, "repeat_penalty": 1.5, "gbnf_grammar": ENDLESS}
    with opened(model, draft_max=4, **config) as stream:
        for _ in range(40):
            step = binding.next(stream)
            tokens += step.tokens
            drafted += step.drafted
        stats = binding.stats(stream)
        binding.set_verifier_callback(model.session.ctx, None)
        n_events = len(events)
        for _ in range(5):
            binding.next(stream)
    assert len(events) == n_events, "no events after they are switched off"
    assert stats.tokens_drafted == drafted
    assert stats.tokens_accepted == sum(len(event.accepted) for event in events)
    dropped = 0
    for event in events:
        if event.rejected is None:
            assert event.corrected == ()
            continue
        first, last = event.rejected
        dropped += last - first + 1
        assert tokens[first - len(event.accepted) : first] == list(event.accepted)
        assert event.corrected == (tokens[first],)
    assert dropped == stats.tokens_drafted - stats.tokens_accepted > 0


def test_a_stream_survives_an_exception_in_the_verifier_callback(
    model: Model, plain_path: Path
) -> None:
    def complain(event: VerifierEvent) -> None:
        raise KeyError(len(event.accepted))

    binding = model.binding
    with opened(model, draft_max=3, mtp_drafter_path=str(plain_path)) as stream:
        binding.set_verifier_callback(model.session.ctx, complain)
        with pytest.raises(KeyError, match="3"):
            for _ in range(4):
                binding.next(stream)
        binding.set_verifier_callback(model.session.ctx, None)
        assert binding.next(stream).tokens


# ---- Errors ------------------------------------------------------------------------------------


def test_an_unusable_drafter_is_named_in_the_error(
    model: Model, random_model_path: Callable[..., Path], tmp_path: Path
) -> None:
    missing = tmp_path / "missing.gguf"
    with pytest.raises((ModelError, InvalidArgumentError), match=str(missing)):
        model.generate(PROMPT, speculation=Speculation(max_tokens=4, drafter=missing))
    other = random_model_path("llama-bpe", n_embd=64, n_layers=2, seed=1)
    with pytest.raises((ModelError, InvalidArgumentError), match=str(other)):
        model.generate(PROMPT, speculation=Speculation(max_tokens=4, drafter=other))
    assert model.generate(PROMPT, 3).tokens, "the model is still usable"


def test_a_library_without_speculation_raises(tmp_path: Path) -> None:
    fake = Fakes(tmp_path)(STREAM)
    with Model("any", library=fake.path) as model:
        assert model.generate([1]).text
        with pytest.raises(
            NotSupportedError, match="no speculative decoding: leave speculation out"
        ):
            model.generate([1], speculation=Speculation(max_tokens=4))


# ---- The command line ----------------------------------------------------------------------------


def test_the_command_line_writes_the_same_text_with_speculation(
    library: Library, plain_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["generate", "--model", str(plain_path), "--library", str(library.path)]
    common += ["--threads", "1", "--prompt", PROMPT, "--max-tokens", "30"]
    texts = []
    for more in ([], ["--draft-max", "4"], ["--draft-max", "4", "--drafter", str(plain_path)]):
        assert cli.main([*common, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0].strip()
    assert texts == [texts[0]] * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--drafter", "d.gguf"], "--drafter requires --draft-max"),
        (["--draft-max", "257"], "--draft-max must be 0 to 256, got 257"),
        (["--draft-max", "-1"], "--draft-max must be 0 to 256, got -1"),
    ],
)
def test_invalid_speculation_arguments_exit_with_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", "--prompt", "x", *options]) == 2
    assert said in capsys.readouterr().err
