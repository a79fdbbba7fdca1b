"""Choices in any tokenization match llama.cpp's grammar and llguidance, token by token.

At every step, all three must allow exactly the tokens after which the text can still become a
choice. The allowed tokens are compared on vocabularies of four sizes, and greedy
decisions are compared on models. `native/tests/text_choices_test.cpp` compares allowed tokens with
llama.cpp's grammar.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from effort import share
from llguidance import LLMatcher, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper
from native_vocabulary import NativeVocabulary
from token_bytes import GreedySpeller, TokenBytes

from bench.choosing.other_libraries import LlGuidanceTokenizer
from eliza_ffi._resources import default_model_path

pytestmark = pytest.mark.slow


# Parts of action names, and strings that tokenizers split in unusual ways.
# fmt: off
PIECES = (
    "SEND", "_", "EMAIL", "MESSAGE", "GO", "A", "REPLY", "IGNORE", "create", "Note", "x", "1", "42",
    " ", "  ", "\n", "\t", '"', "\\", "{", "}", ",", "'", "é", "ß", "日", "本語", "🙂", "e\u0301",
)
# fmt: on


def random_choices(dice: random.Random, most: int = 12) -> tuple[str, ...]:
    """Return distinct strings. Some share a prefix, contain other strings or begin with them."""
    count, texts = dice.randint(1, most), dict[str, None]()
    alphabet = dice.sample(PIECES, dice.randint(2, 10))
    while len(texts) < count:
        longer = dice.choice([*texts, ""]) if dice.random() < 0.3 else ""
        texts[longer + "".join(dice.choices(alphabet, k=dice.randint(1, 5)))] = None
    return tuple(texts)


@functools.cache
def vocabulary_of(name: str | None) -> TokenBytes:
    """Return a vocabulary by name; None = the embedded model's vocabulary."""
    return TokenBytes.read(name) if name else TokenBytes.from_file(Path(default_model_path()))


@functools.cache
def llguidance_of(name: str | None) -> LLTokenizer:
    vocabulary = vocabulary_of(name)
    speller = GreedySpeller(vocabulary.texts)
    tokenizer = LlGuidanceTokenizer(
        vocabulary.names, vocabulary.control, vocabulary.eos, speller.spell
    )
    return LLTokenizer(TokenizerWrapper(tokenizer))


def matcher_of(texts: Sequence[str], tokenizer: LLTokenizer) -> LLMatcher:
    start = " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    lark = f'%llguidance {{"no_forcing": true}}\nstart: {start}'
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(lark))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def allowed_by(matcher: LLMatcher, control: Sequence[int]) -> list[int]:
    """Return the allowed tokens, except some control tokens, in ascending order."""
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return np.setdiff1d(np.flatnonzero(bits), control, assume_unique=True).tolist()


# ---- allowed tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_sets"),
    [
        (None, share(2000)),
        ("llama-spm", share(500)),
        ("llama-bpe", share(150)),
        ("gemma-4", share(60)),
    ],
    ids=["2k", "32k", "128k", "262k"],
)
def test_allowed_tokens_match_llguidance_at_every_step(
    hooks_path: Path, name: str | None, n_sets: int
) -> None:
    vocabulary, tokenizer = vocabulary_of(name), llguidance_of(name)
    native = NativeVocabulary(hooks_path, vocabulary.texts)
    dice = random.Random(11)
    n_steps = n_with_several = 0
    for _ in range(n_sets):
        texts = random_choices(dice)
        walk, matcher = native.walk({"choices": texts}), matcher_of(texts, tokenizer)
        ends = {text.encode() for text in texts}
        place = b""
        while allowed := walk.allowed():
            assert allowed == allowed_by(matcher, vocabulary.control), (texts, place)
            assert matcher.is_accepting() == (place in ends), (texts, place)
            n_steps += 1
            n_with_several += len(allowed) > 1
            token = dice.choice(allowed)
            place += vocabulary.texts[token]
            walk.accept(token)
            assert matcher.consume_token(token)
        # No token can follow, so both must agree that the string is a complete choice.
        assert place in ends
        assert matcher.is_accepting()
        assert matcher.is_stopped() or allowed_by(matcher, vocabulary.control) == []
    assert n_steps > 3 * n_sets
    assert n_with_several > n_sets


# ---- greedy decisions ----------------------------------------------------------------------------
