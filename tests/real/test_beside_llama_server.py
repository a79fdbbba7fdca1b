"""Real models give the same results as in llama-server, which reads the same files.

The models are SmolLM2-135M-Instruct (a chat template, 49,152 tokens) and Gemma 3 270M (a base model
with sliding-window attention, 262,144 tokens). Both programs have the same version of llama.cpp.

With 4-bit weights, ggml also quantizes its intermediate values, and a small difference in rounding
becomes a large one: llama-server's own log-probabilities of likely tokens change by up to 0.8 if it
runs with ``--flash-attn off`` or ``--no-repack``. So most tests use copies of the files with f32
weights, and f32 KV caches; then the two programs differ only in the order of their sums. The tests
of the original files allow differences as large as those between two llama-servers with different
settings.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from exhaustive_ranking import label_logprobs
from fetch_real_models import REAL_DATA, FetchError, fetch
from full_precision import write_in_full_precision
from numpy.typing import NDArray

from bench.together.llama_server import asked, find_llama_server, serving
from eliza_ffi import CacheOptions
from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.evidence.scoring import ScoringRule
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.real

MODELS = ("smollm2", "gemma3-270m")
# Several threads wait for each other at every operation, which takes long on a busy machine.
SIZES: dict[str, Any] = {"n_ctx": 2048, "n_threads": 1}
F32: dict[str, Any] = {"cache": CacheOptions(type_k="f32", type_v="f32")}
SERVER_F32 = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")

LOGPROB = {"smollm2": 0.001, "gemma3-270m": 0.02}
"""Tolerances of log-probabilities in full precision.

Gemma's is larger because ggml reads its activation function, GELU, from a table with f16 values:
llama-server's own log-probabilities change by 0.009 with ``--flash-attn``."""
COSINE = 0.9999
"""The lowest cosine similarity of embeddings in full precision."""
DIVERGENCE = 0.05
"""The highest KL divergence of next-token distributions of the original files, in nats."""
ORIGINAL_LOGPROB = 0.5
"""Tolerance of log-probabilities of the original files."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pair:
    """An open model, and the port of a llama-server with the same file."""

    name: str
    model: Model
    port: int
    tolerance: float
    cache: dict[str, Any] = field(default_factory=dict)

    def post(self, path: str, **body: Any) -> Any:
        """Send a request to the server and return the JSON of the response."""
        return asked(self.port, path, body)

    def top(self, prompt: Sequence[int], n: int) -> dict[int, float]:
        """Return llama-server's `n` most probable next tokens and their log-probabilities."""
        # If the sampled token were a part of a character, the response would not contain it. The
        # bias makes the sampled token a whole letter; log-probabilities are computed before it.
        bias = [[self.model.tokenize("a")[0], 1000]]
        body = {"prompt": list(map(int, prompt)), "n_predict": 1, "n_probs": n, "logit_bias": bias}
        response = self.post("/completion", **body)
        (step,) = response["completion_probabilities"]
        return {token["id"]: token["logprob"] for token in step["top_logprobs"]}

    def logprobs(self, prompt: Sequence[int]) -> Floats:
        """Return llama-server's log-probabilities of all tokens of the vocabulary."""
        return _logprobs(self, tuple(map(int, prompt)))

    def label_tokens(self, label: str) -> tuple[int, ...]:
        """Return llama-server's tokens of a label."""
        return tuple(self.post("/tokenize", content=label, parse_special=False)["tokens"])


@functools.lru_cache(maxsize=64)
def _logprobs(pair: Pair, prompt: tuple[int, ...]) -> Floats:
    found = pair.top(prompt, pair.model.describe()["model"]["n_vocab"])
    assert sorted(found) == list(range(len(found)))
    return np.array([found[i] for i in range(len(found))])


def llama_server() -> Path:
    program, peer = find_llama_server()
    if program is None:
        pytest.skip(f"llama-server: {peer.problem}")
    return program


def original_file(name: str) -> Path:
    try:
        return fetch(name)
    except FetchError as error:
        pytest.skip(str(error))


def full_precision_file(name: str) -> Path:
    """Return a copy of a model whose weights are f32, written on first use (a minute)."""
    original = original_file(name)
    path = ROOT / "build" / "real" / f"{name}-{REAL_DATA[name].sha256[:12]}-f32.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_in_full_precision(original, path.with_suffix(f".{os.getpid()}")).replace(path)
    return path


@pytest.fixture(scope="module", params=MODELS)
def original(request: pytest.FixtureRequest, library: Library) -> Iterator[Pair]:
    """Return a model as downloaded, with default settings."""
    program, path = llama_server(), original_file(request.param)
    with (
        Model(path, library=library, **SIZES) as model,
        serving(program, path, n_slots=1, choices=(), **SIZES) as server,
    ):
        yield Pair(request.param, model, server.port, ORIGINAL_LOGPROB)


@pytest.fixture(scope="module", params=MODELS)
def exact(request: pytest.FixtureRequest, library: Library) -> Iterator[Pair]:
    """Return a model in full precision."""
    program, path = llama_server(), full_precision_file(request.param)
    with (
        Model(path, library=library, **SIZES) as model,
        serving(program, path, n_slots=1, choices=(), more=SERVER_F32, **SIZES) as server,
    ):
        yield Pair(request.param, model, server.port, LOGPROB[request.param], F32)


# ---- Tokens and chat templates -----------------------------------------------------------------

HARD_STRINGS = {
    "emoji": "👩‍👩‍👧 🇩🇪 👍🏽 ☺️ 🫠",
    "CJK": "日本語のテキスト、中文文本。한국어 텍스트",
    "right to left": "שלום עולם، مرحبا بالعالم",
    "combining": "e\u0301 \u00e9 a\u0308 Z\u0351\u036b ﬁ Å",
    "spaces": "a  b   c    d\tt\t\te \u00a0f\u2003g",
    "newlines": "one\ntwo\n\nthree\r\nfour\n\n\n\n  five",
    "space at both ends": "  both ends   ",
    "only spaces": "     ",
    "only newlines": "\n\n\n",
    "trailing newline": "end\n",
    "control tokens": "<|im_end|> <|im_start|>user <bos><eos></s><start_of_turn>model [INST]",
    "digits": "31415926535897932384626433832795028841971 1,000,000.00 0x7fffffff ½ ٣٤",
    "control characters": "a\x01b\x02\x07\x1b[31mred\x7f\x9f\u200b\ufeff",
    "case and punctuation": "DON'T don't I'LL we'll!?…—“quoted” _under_score CamelCase",
    "code": "def f(x):\n\treturn {'a': [1, 2]}  # ok\n    if x != None: pass",
    "unassigned": "\U0010ffff\ue000\ufffd",
    "long word": "Donaudampfschifffahrtsgesellschaft" * 4 + "a" * 100,
}


@pytest.mark.parametrize("text", HARD_STRINGS.values(), ids=HARD_STRINGS)
def test_tokens_match(original: Pair, text: str) -> None:
    for add_special in (False, True):
        for parse_special in (False, True):
            flags = {"add_special": add_special, "parse_special": parse_special}
            theirs = original.post("/tokenize", content=text, **flags)["tokens"]
            assert original.model.tokenize(text, **flags) == theirs
            back = original.post("/detokenize", tokens=theirs)["content"]
            assert original.model.detokenize(theirs, unparse_special=True) == back


CONVERSATIONS: dict[str, list[dict[str, str]]] = {
    "one message": [{"role": "user", "content": "Hello!"}],
    "system": [
        {"role": "system", "content": "Answer in French.\nBe brief."},
        {"role": "user", "content": "Good morning"},
    ],
    "several turns": [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3 + 3?"},
        {"role": "assistant", "content": "6"},
        {"role": "user", "content": "Thanks 😀 谢谢"},
    ],
    "spaces": [{"role": "user", "content": "  \n indented\n\n  "}],
    "empty": [{"role": "user", "content": ""}],
    "code": [{"role": "user", "content": 'What does `{{ x }} {% if %}` mean? \\n "q" <b>&amp;'}],
    "two of a role": [
        {"role": "user", "content": "First."},
        {"role": "user", "content": "Second."},
    ],
}


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_chat_templates_match(original: Pair, messages: list[dict[str, str]]) -> None:
    if original.name == "gemma3-270m":
        pytest.skip("a base model without a chat template")
    theirs = original.post("/apply-template", messages=messages)["prompt"]
    assert original.model.chat_template.render(messages) == theirs
    flags = {"add_special": True, "parse_special": True}
    tokens = original.post("/tokenize", content=theirs, **flags)["tokens"]
    assert original.model.chat_tokens(messages) == tokens


# ---- Text and log-probabilities ----------------------------------------------------------------

PROMPTS = {
    "fact": "The capital of France is",
    "list": "The first ten prime numbers are 2, 3, 5,",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "German": "Der Hund läuft über die Straße, und die Katze",
    "Chinese": "人工智能的发展",
    "chat": "<|im_start|>user\nName three colors.<|im_end|>\n<|im_start|>assistant\n",
    # Longer than Gemma's window of 512 tokens.
    "long": " ".join(
        f"On day {i} the ship was {i * 7 % 90} miles from the port." for i in range(60)
    ),
}
N_TOKENS = 32


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_greedy_text_matches(exact: Pair, prompt: str) -> None:
    check_greedy_text(exact, prompt)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_greedy_text_of_the_original_file_matches(original: Pair, prompt: str) -> None:
    check_greedy_text(original, prompt)


def check_greedy_text(pair: Pair, prompt: str) -> None:
    """Check that texts are equal, or that they part where tokens are about equally probable.

    If they differ, every token of our text must be about as probable as the most probable one, by
    llama-server's log-probabilities after the same prefix.
    """
    tokens = pair.model.prompt_tokens(prompt)
    ours = pair.model.generate(tokens, N_TOKENS, **pair.cache)
    body = {"prompt": tokens, "n_predict": N_TOKENS, "temperature": 0.0, "cache_prompt": False}
    if ours.text == pair.post("/completion", **body)["content"]:
        return
    gaps = []
    for i, token in enumerate(ours.tokens):
        top = pair.top([*tokens, *ours.tokens[:i]], 20)
        gaps.append(max(top.values()) - top.get(token, -np.inf))
    assert max(gaps) <= 2 * pair.tolerance


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_log_probabilities_match(exact: Pair, prompt: str) -> None:
    tokens = exact.model.prompt_tokens(prompt)
    (first,) = exact.model.generate(tokens, 1, logprobs=100, **F32).logprobs or ()
    theirs = exact.logprobs(tokens)
    assert len(first.top) == 100
    for token in first.top:
        assert token.logprob == pytest.approx(theirs[token.token], abs=exact.tolerance)
    assert first.top[-1].logprob >= np.sort(theirs)[-100] - exact.tolerance


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_log_probabilities_of_the_original_file_match(original: Pair, prompt: str) -> None:
    tokens = original.model.prompt_tokens(prompt)
    (first,) = original.model.generate(tokens, 1, logprobs=1000).logprobs or ()
    ours = {token.token: token.logprob for token in first.top}
    theirs = original.top(tokens, 1000)
    both = sorted(set(ours) & set(theirs))
    p = np.exp([theirs[token] for token in both])
    divergence = p @ [theirs[token] - ours[token] for token in both]
    assert p.sum() > 0.9
    assert divergence < DIVERGENCE


# ---- Labels ------------------------------------------------------------------------------------

LABELS = {
    "one token each": ([" Paris", " London", " Rome", " the", " a"], "The capital of France is"),
    "several tokens": (
        [
            " New York City",
            " New Orleans",
            " New Delhi",
            " San Francisco",
            " Los Angeles, California",
        ],
        "The city with the most inhabitants is",
    ),
    "one is the beginning of another": (
        [" positive", " negative", " very positive", " very", " negative, but polite"],
        "Review: I love this film.\nSentiment:",
    ),
    "not English": (["是", "不是", "我不知道", "😀", " ja"], "这是一个问题。答案是"),
}


@pytest.mark.parametrize(("labels", "prompt"), LABELS.values(), ids=LABELS)
def test_label_probabilities_match(exact: Pair, labels: list[str], prompt: str) -> None:
    prompt_tokens = exact.model.prompt_tokens(prompt)
    expected = np.exp(
        label_logprobs(
            [exact.label_tokens(label) for label in labels],
            lambda prefix: exact.logprobs([*prompt_tokens, *prefix]).astype(np.float32),
        )
    )
    assert expected.sum() == pytest.approx(1.0, abs=1e-4)
    chosen = exact.model.choose(prompt, labels, probabilities=True, **F32)
    assert chosen.probabilities is not None
    ours = [chosen.probabilities[label] for label in labels]
    assert ours == pytest.approx(expected, abs=exact.tolerance)
    assert expected[chosen.index] >= expected.max() - exact.tolerance
    ranked = dict(exact.model.rank(prompt, labels, len(labels), **F32))
    assert [ranked[label] for label in labels] == pytest.approx(expected, abs=exact.tolerance)


@pytest.mark.parametrize("scoring", ["constrained", "full"])
def test_decisions_match(exact: Pair, scoring: ScoringRule) -> None:
    """Compute the scores of a decision's options from llama-server's log-probabilities."""
    given = "I was charged twice for my parcel and nobody answers the phone."
    options = ["billing", "technical support", "sales", "sales of spare parts"]
    question = Choice("Which team should answer?", options)

    def written(given: str, _: object) -> str:
        return f"{given}\nThe team that should answer:\n"

    prompt = exact.model.prompt_tokens(written(given, None))
    labels = [exact.label_tokens(label) for label in options]
    if scoring == "constrained":
        scores = label_logprobs(
            labels, lambda prefix: exact.logprobs([*prompt, *prefix]).astype(np.float32)
        )
    else:
        scores = np.array(
            [
                sum(exact.logprobs([*prompt, *label[:i]])[token] for i, token in enumerate(label))
                for label in labels
            ]
        )
    expected = np.exp(log_softmax(scores))
    answer = exact.model.decide(given, question, prompt=written, scoring=scoring, orders=1, **F32)[
        "0"
    ]
    assert answer.distribution == pytest.approx(expected, abs=exact.tolerance)


# ---- Embeddings --------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("name", MODELS)
def test_embeddings_match(library: Library, name: str, pooling: str) -> None:
    program, path = llama_server(), full_precision_file(name)
    texts = [text for text in PROMPTS.values() if "<|" not in text]
    texts += [HARD_STRINGS["CJK"], "x"]
    more = ("--embedding", "--pooling", pooling, "--ubatch-size", "2048")
    with serving(program, path, n_slots=1, choices=(), more=more, **SIZES) as server:
        rows = asked(server.port, "/v1/embeddings", {"input": texts})["data"]
    theirs = np.array([row["embedding"] for row in sorted(rows, key=lambda row: row["index"])])
    with Model(path, library=library, **SIZES) as model:
        ours = model.embed(texts, pooling)
    cosines = np.sum(ours * theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    assert (cosines > COSINE).all()
    assert (ours[:-1] @ ours[-1] < 0.999).any()
