"""Sampling through the library: settings, draws inside spans, reasoning, and reproducibility."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray
from sampler_chain import remaining
from sampling_strategies import assert_draws_follow, softmax64

from eliza_ffi import Speculation, cli
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import STOP_AT_LEAF, TRIE_SAMPLE, StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.sampling import PRESETS, Sampling

OFF = Sampling(seed=1)
DRAWS = ("cdf", "gumbel")


class Sampled:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.binding = model.binding
        self.ctx = model.session.ctx
        self.n_vocab = int(model.describe()["model"]["n_vocab"])
        self.prompt = model.tokenize("Which tool helps best? Answer: ", add_special=True)

    def set_options(self, options: dict[str, str]) -> None:
        """Set options for new streams, and reset all other sampling options to their defaults."""
        for key, value in {**OFF.to_options(), **options}.items():
            self.binding.set_option(self.ctx, key, value)

    @contextmanager
    def stream(self, sampling: Sampling | None = None) -> Iterator[Any]:
        stream = self.binding.open(self.ctx, StreamConfig())
        try:
            if sampling is not None:
                self.binding.set_sampling(stream, sampling.to_json())
            yield stream
        finally:
            self.binding.close(stream)

    def chain(self, sampling: Sampling | None = None) -> str:
        with self.stream(sampling) as stream:
            return ";".join(self.binding.describe_chain(stream))

    def draw(
        self, sampling: Sampling, leaves: Sequence[tuple[int, ...]] | None = None
    ) -> tuple[int, ...]:
        """Sample after the prompt: one of the leaves, or any token if there are no leaves."""
        with self.stream(sampling) as stream:
            self.binding.prefill(stream, self.prompt)
            if leaves is None:
                return self.binding.next(stream).tokens
            named = tuple(TokenTreeLeaf(str(i), leaf) for i, leaf in enumerate(leaves))
            payload = TokenTreePayload("", (TokenTreeDescriptor("p", named),)).to_json()
            self.binding.set_token_trie(stream, payload, TRIE_SAMPLE | STOP_AT_LEAF)
            return tuple(self._pull(stream, sys.maxsize))

    def pull(self, sampling: Sampling, prompt: str, n: int) -> list[int]:
        """Pull at least `n` tokens, or fewer if generation ends."""
        with self.stream(sampling) as stream:
            self.binding.prefill(stream, self.model.tokenize(prompt))
            return self._pull(stream, n)

    def text(self, sampling: Sampling, prompt: str, n: int) -> str:
        return self.model.detokenize(self.pull(sampling, prompt, n), unparse_special=True)

    def _pull(self, stream: Any, n: int) -> list[int]:
        tokens: list[int] = []
        done = False
        while len(tokens) < n and not done:
            step = self.binding.next(stream)
            tokens += step.tokens
            done = step.done
        return tokens


@pytest.fixture(scope="module")
def sampled(library: Library) -> Iterator[Sampled]:
    with Model(library=library, n_threads=1) as model:
        yield Sampled(model)


@pytest.fixture(scope="module")
def logits_after(hooks_path: Path, sampled: Sampled) -> Callable[[Sequence[int]], NDArray[Any]]:
    """Return a function that computes the logits after some tokens with plain llama.cpp."""
    from eliza_ffi._resources import default_model_path

    ffi: Any = cffi.FFI()
    ffi.cdef("int eliza_test_logits(const char *, const int32_t *, size_t, float *, size_t);")
    lib: Any = ffi.dlopen(str(hooks_path))
    path = str(default_model_path()).encode()

    def logits(tokens: Sequence[int]) -> NDArray[Any]:
        out = np.zeros(sampled.n_vocab, dtype=np.float32)
        written = lib.eliza_test_logits(
            path, list(tokens), len(tokens), ffi.from_buffer("float[]", out), len(out)
        )
        assert written == len(out)
        return out

    return logits


# ---- settings by name ----------------------------------------------------------------------------

# For every sampler of llama.cpp: settings that turn it on, and the resulting chain.
SAMPLERS: dict[str, tuple[dict[str, Any], str]] = {
    "repeat penalty": ({"repeat_penalty": 1.1}, "penalties;dist"),
    "frequency penalty": ({"frequency_penalty": 0.5}, "penalties;dist"),
    "presence penalty": ({"presence_penalty": 0.5}, "penalties;dist"),
    "DRY": ({"dry_multiplier": 0.8}, "dry;dist"),
    "top-n-sigma": ({"top_n_sigma": 1.0}, "top_n_sigma;dist"),
    "top-k": ({"top_k": 40}, "top_k;dist"),
    "typical-p": ({"typical_p": 0.9}, "typ_p;dist"),
    "top-p": ({"top_p": 0.9}, "top_p;dist"),
    "min-p": ({"min_p": 0.1}, "min_p;dist"),
    "XTC": ({"xtc_probability": 0.5}, "xtc;dist"),
    "temperature": ({"temperature": 0.8}, "temperature;dist"),
    "dynamic temperature": ({"dynatemp_range": 0.5}, "temperature;dist"),
    "mirostat 1": ({"mirostat": 1}, "mirostat"),
    "mirostat 2": ({"mirostat": 2}, "mirostat_v2"),
    "adaptive-p": ({"adaptive_target": 0.5, "samplers": "adaptive_p"}, "adaptive_p"),
    "logit bias": ({"logit_bias": ((5, -1.5), (6, -np.inf))}, "logit_bias;dist"),
    "infill": ({"samplers": "infill"}, "infill;dist"),
    "Gumbel-max": ({"draw": "gumbel"}, "gumbel"),
    "greedy": ({"temperature": 0.0}, "greedy"),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_can_be_turned_on_by_option_and_by_setting(
    sampled: Sampled, name: str
) -> None:
    changes, chain = SAMPLERS[name]
    params = Sampling(**{"temperature": 1.0, **changes})
    options = params.to_options()
    sampled.set_options({key: options[key] for key in ("temperature", *changes)})
    assert sampled.chain() == chain
    sampled.set_options({})
    assert sampled.chain() == "greedy"
    assert sampled.chain(params) == chain


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_by_name_equals_its_settings(sampled: Sampled, preset: str) -> None:
    sampled.set_options({"preset": preset})
    by_name = sampled.chain()
    sampled.set_options({})
    assert by_name == sampled.chain(Sampling.preset(preset))
    sampling = Sampling.preset(preset, seed=4)
    with sampled.stream() as stream:
        sampled.binding.set_sampling(stream, json.dumps({"preset": preset, "seed": 4}))
        sampled.binding.prefill(stream, sampled.prompt)
        assert sampled.binding.next(stream).tokens == sampled.draw(sampling)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("dynatemp_range", "-1", "0 (off) to 1000000"),
        ("dynatemp_exponent", "-1", "0 to 1000000"),
        ("top_k", "-1", "0 (off) to 2147483647"),
        ("min_p", "1.5", "0 (off) to 1"),
        ("typical_p", "2", "0 to 1 (off)"),
        ("top_n_sigma", "-1", "0 (off) to 1000000"),
        ("xtc_probability", "2", "0 (off) to 1"),
        ("xtc_threshold", "2", "0 to 1"),
        ("repeat_last_n", "-1", "0 (off) to 16777216 tokens"),
        ("repeat_penalty", "-1", "0 or 1 (off) to 1000000"),
        ("frequency_penalty", "inf", "-1000000 to 1000000"),
        ("presence_penalty", "nan", "-1000000 to 1000000"),
        ("dry_multiplier", "-1", "0 (off) to 1000000"),
        ("dry_base", "0.9", "1 to 1000000"),
        ("dry_allowed_length", "-1", "0 to 2147483647 tokens"),
        ("dry_penalty_last_n", "-1", "0 (off) to 16777216 tokens"),
        ("dry_sequence_breakers", '[""]', "a string of 1 to 40 bytes without a NUL"),
        ("mirostat_tau", "-1", "0 to 1000000"),
        ("mirostat_eta", "2", "0 to 1"),
        ("adaptive_target", "2", "0 to 1, or below 0 (off)"),
        ("adaptive_decay", "1", "0 to 0.99"),
        ("seed", "4294967295", "random, or 0 to 4294967294"),
        ("reasoning_budget", "-2", "-1 (no limit) to 2147483647 tokens"),
        ("reasoning_budget", "2147483648", "-1 (no limit) to 2147483647 tokens"),
    ],
)
def test_a_rejected_option_names_the_allowed_values_and_changes_nothing(
    sampled: Sampled, key: str, value: str, allowed: str
) -> None:
    """`native/tests/sampling_test.cpp` tests the other options."""
    sampled.set_options({"temperature": "0.8"})
    with pytest.raises(ElizaError) as error:
        sampled.binding.set_option(sampled.ctx, key, value)
    assert key in str(error.value)
    assert allowed in str(error.value)
    assert sampled.chain() == "temperature;dist"


def test_an_unknown_option_lists_every_setting(sampled: Sampled) -> None:
    with pytest.raises(ElizaError) as error:
        sampled.binding.set_option(sampled.ctx, "topk", "5")
    options = str(error.value).partition("known options: ")[2].removesuffix(" (status -2)")
    listed = options.split(", ")
    assert {field.name for field in fields(Sampling)} <= set(listed)


# ---- inside spans --------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "sharper": {"temperature": 0.6},
    "filtered": {"temperature": 1.5, "top_k": 5, "min_p": 0.05},
    "nucleus": {"temperature": 1.2, "top_p": 0.8, "samplers": "temperature;top_p"},
}


@pytest.fixture(scope="module")
def allowed_ids(sampled: Sampled, logits_after: Callable[..., NDArray[Any]]) -> list[int]:
    """Return eight tokens of different probabilities, in ascending order of their ids."""
    logits = logits_after(sampled.prompt)
    most_likely = np.argsort(-logits)
    return sorted(most_likely[[0, 1, 2, 4, 6, 9, 13, 20]].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("draw", DRAWS)
def test_draws_in_a_span_follow_the_softmax_of_the_allowed_tokens(
    sampled: Sampled,
    logits_after: Callable[..., NDArray[Any]],
    allowed_ids: list[int],
    draw: str,
    name: str,
) -> None:
    settings = SETTINGS[name]
    of_allowed = logits_after(sampled.prompt)[allowed_ids]
    left = remaining(Sampling(**settings), of_allowed.tolist(), allowed_ids)
    expected = np.zeros(sampled.n_vocab)
    expected[[*left]] = softmax64([*left.values()])
    leaves = [(token,) for token in allowed_ids]
    draws = [
        sampled.draw(Sampling(**settings, draw=draw, seed=seed), leaves)[0] for seed in range(2000)
    ]
    assert_draws_follow(draws, expected)


# ---- reasoning budget ----------------------------------------------------------------------------

TAGS = {"reasoning_start": "<plan>", "reasoning_end": "</plan>"}
"""Tags that consist of several tokens each in the embedded model's vocabulary."""


def test_a_reasoning_budget_works_with_other_settings(sampled: Sampled, library: Library) -> None:
    ends = [sampled.model.tokenize(e, parse_special=True) for e in ("<|endoftext|>", "<|im_end|>")]
    sampling = Sampling.preset(
        "creative",
        seed=3,
        reasoning_budget=4,
        logit_bias=[(end, -np.inf) for (end,) in ends],
        **TAGS,
    )
    assert sampled.chain(sampling) == "reasoning_budget;logit_bias;top_p;dist"
    # Each run uses a new model, because a prompt in the cache changes the rounding of logits.
    runs = []
    for _ in range(2):
        with Model(library=library, n_threads=1) as model:
            runs.append(model.generate("Say hello. <plan>", 20, sampling=sampling))
    assert "</plan>" in runs[0].text
    assert runs[1].tokens == runs[0].tokens
    with_guesses = sampled.model.generate(
        "Say hello. <plan>",
        20,
        sampling=sampling,
        speculation=Speculation(max_tokens=4, drafter=sampled.model.path),
    )
    assert "</plan>" in with_guesses.text


# ---- reproducibility -----------------------------------------------------------------------------


def generate(*arguments: str) -> list[str]:
    return ["generate", "--prompt", "User: hello\nAssistant:", "--max-tokens", "12", *arguments]


@pytest.mark.parametrize("preset", PRESETS)
def test_text_depends_only_on_preset_and_seed(
    library: Library, capsys: pytest.CaptureFixture[str], preset: str
) -> None:
    """The text does not depend on the run or the number of threads."""
    texts = []
    for threads in ("1", "2", "1"):
        options = ["--seed", "7", "--threads", threads, "--library", str(library.path)]
        assert cli.main(generate("--preset", preset, *options)) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0].strip()
    assert texts == [texts[0]] * 3


@pytest.mark.slow
def test_text_is_the_same_in_another_process_and_differs_by_seed(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    def arguments(seed: int) -> list[str]:
        options = ["--preset", "creative", "--seed", str(seed), "--library", str(library.path)]
        return generate(*options)

    texts = []
    for seed in range(3):
        assert cli.main(arguments(seed)) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) > 1
    command = [sys.executable, "-m", "eliza_ffi", *arguments(0)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == texts[0]
